"""`python -m xsp_analyze.work_models docs/work-models.md` makes the page's list of models anew."""

from __future__ import annotations

import argparse
from pathlib import Path

from xsp_analyze.work_models.page import page

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m xsp_analyze.work_models", description="Makes a page's list anew.")
    parser.add_argument("page", type=Path, help="docs/work-models.md")
    path: Path = parser.parse_args().page
    path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
