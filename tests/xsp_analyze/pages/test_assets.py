"""Scripts of pages share one scope: no two may bind the same name, or draw the same type of block."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from xsp_analyze.pages.blocks import Packed, page_by_script, safe_json
from xsp_analyze.pages.report import page as report

_BOUND = re.compile(r"^(?:async )?(?:function\*?|const|let|class) +(\w+|\{[^}]*\}|\[[^\]]*\])", re.MULTILINE)
_DRAWS = re.compile(r"Object\.assign\(DRAW, \{(.*?)\}\)", re.DOTALL)


def _scripts(page: str) -> list[str]:
    """The scripts of a page, one behind the other, as its one script holds them."""
    return re.findall(r"<script>\s*(.*?)</script>", page, re.DOTALL)


@pytest.mark.parametrize(
    "scripts",
    [
        report._SCRIPTS,
        ("cohort.js",),
        ("ranks.js",),
    ],
)
def test_no_name_and_no_type_of_block_is_there_twice(scripts: tuple[str, ...]) -> None:
    page = page_by_script({"kind": "", "title": "", "short": [], "sections": [], "footer": ""}, scripts)
    (script,) = _scripts(page)
    names = Counter(_BOUND.findall(script))
    types = Counter(key for keys in _DRAWS.findall(script) for key in re.findall(r"(\w+):", keys))
    assert [name for name, times in names.items() if times > 1] == []
    assert [kind for kind, times in types.items() if times > 1] == []


def test_a_text_of_any_length_leaves_the_page_small_and_encoded_numbers_whole() -> None:
    long, numbers = "a" * 100_000, Packed("b" * 100_000)
    page = safe_json({"names": [long] * 10, "columns": {"start": numbers}, long: 1})
    assert "b" * 100_000 in page
    assert len(page) < 100_000 * 2 + 10 * 5_000
    assert "a" * 1_000 + "\u2026" + "a" * 1_000 in page
