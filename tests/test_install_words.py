"""What is said about installing works: xsp is on no package index."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
# Not a requirement with an address (xsp @ git+https://...), nor the sentences that say it brings nothing.
_FROM_INDEX = re.compile(r"pip install (?:-\S+ )*['\"]?xsp\b(?! @ )(?!` (?:brings nothing|would not bring))")


def test_nothing_says_to_install_xsp_from_an_index() -> None:
    folders = ("docs", "recipes", "runners", "xsp", "xsp_analyze", "xsp_ingest", "xsp_model")
    files = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md"]
    files += [f for folder in folders for end in ("py", "md", "toml") for f in (_ROOT / folder).rglob(f"*.{end}")]
    hits = [f.relative_to(_ROOT) for f in files if _FROM_INDEX.search(f.read_text(encoding="utf-8"))]
    assert hits == []
