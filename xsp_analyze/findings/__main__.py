"""`python -m xsp_analyze.findings FOLDER` writes the pages of the docs anew."""

from __future__ import annotations

import argparse
from pathlib import Path

from xsp_analyze.findings.pages import pages

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m xsp_analyze.findings", description="Writes a page a rule.")
    parser.add_argument("folder", type=Path, help="made where it is missing")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
