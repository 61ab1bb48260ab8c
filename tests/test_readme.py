"""The README's Python blocks run as they stand, each as a file of its own."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
HEAD = "import numpy as np\nimport tilewright\nimport tilewright.language as T\n"


def test_there_are_blocks():
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs(number, tmp_path):
    block = BLOCKS[number]
    file = tmp_path / "block.py"
    file.write_text(block if "import tilewright" in block else HEAD + block, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
