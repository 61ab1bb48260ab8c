"""docs/runtime.md: its blocks run, and it names every environment variable and call-time error."""

import re
import subprocess
import sys
from pathlib import Path

from tilewright import errors
from tilewright.options import ENVIRONMENT

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = (ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")


def test_the_blocks_run(tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 2
    head = "import numpy as np\nimport tilewright\nimport tilewright.language as T\n"
    file = tmp_path / "page.py"
    file.write_text(head + "\n".join(blocks), encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_variable_is_explained():
    used = set()
    for path in (ROOT / "tilewright").rglob("*.py"):
        used |= set(re.findall(r"TILEWRIGHT_[A-Z_]+", path.read_text(encoding="utf-8")))
    assert used == set(ENVIRONMENT)
    table = PAGE.partition("## Environment variables")[2]
    assert set(re.findall(r"^\| `(TILEWRIGHT_[A-Z_]+)`", table, re.MULTILINE)) == set(ENVIRONMENT)


def test_every_error_of_a_call_is_in_the_table():
    raised = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and kind.__base__ is errors.LaunchError
    }
    raised |= {"ArgumentCountError", "ArgumentTypeError"}
    assert raised == set(re.findall(r"`(\w+Error)` \|$", PAGE, re.MULTILINE))
