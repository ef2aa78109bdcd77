"""`python -m xsp_analyze.findings FOLDER` writes the pages of the docs anew."""

from __future__ import annotations

import sys
from pathlib import Path

from xsp_analyze.findings.pages import pages

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
