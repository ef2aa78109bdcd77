"""XSP is on no package index: no command or workflow in the docs installs it from one."""

from __future__ import annotations

import re

import pytest

from tests.docs.commands import PAGES, ROOT

_FROM_AN_INDEX = re.compile(r"pip install (?:-\S+ )*['\"]?xsp(?:\[[\w,]*\])?['\"]?(?=\s|$)(?!\s*@)")
_FILES = (*PAGES, *sorted((ROOT / "docs" / "examples").iterdir()), *sorted((ROOT / "runners").rglob("*.py")))


def test_nothing_is_installed_from_an_index_that_does_not_have_it() -> None:
    lines = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in _FILES
        for line in path.read_text(encoding="utf-8").splitlines()
        if _FROM_AN_INDEX.search(line) and (line.startswith("    ") or path.suffix != ".md")
    ]
    assert lines == []


@pytest.mark.parametrize("line", ["pip install xsp", "pip install -U 'xsp[figures]'", "pip install xsp # all of it"])
def test_what_would_ask_an_index_is_seen(line: str) -> None:
    assert _FROM_AN_INDEX.search(line)


@pytest.mark.parametrize("line", ["pip install '.[figures]'", "pip install 'xsp @ git+https://HOST/PATH@REVISION'"])
def test_what_asks_none_is_let_through(line: str) -> None:
    assert not _FROM_AN_INDEX.search(line)
