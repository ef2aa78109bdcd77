"""`python -m tests.helpers.planted FILE` writes the page of the docs anew."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.helpers.planted.page import page

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
