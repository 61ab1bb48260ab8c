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
    shown = [text for kind, text in blocks if not kind]
    assert len(shown) == 3
    for text in shown:
        assert outline(text) in outline(done.stdout), text


def outline(text: str) -> str:
    """What each line is, whatever the printer's format: its first word, or all of a finding but its line number."""
    lines = [line.strip() for line in text.split("\n")]
    words = [re.sub(r"^line \d+", "", w) if w.startswith("line ") else re.split(r"\W", w)[0] for w in lines]
    return "\n".join(words)
