"""The page on declarative kernels: its Python runs, and the tile programs that it shows are those of its kernels."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs" / "declarative.md").read_text(encoding="utf-8")


def test_page_runs_and_shows_what_its_kernels_become(tmp_path):
    blocks = re.findall(r"^```(python)?\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    file = tmp_path / "page.py"
    file.write_text("\n".join(text for kind, text in blocks if kind), encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = re.sub(r"^ *|line \d+", "", done.stdout, flags=re.MULTILINE)
    shown = [text for kind, text in blocks if not kind]
    assert len(shown) == 3
    for text in shown:
        assert re.sub(r"^ *|line \d+", "", text, flags=re.MULTILINE) in printed, text
