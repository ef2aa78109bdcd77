"""What may be put before a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from xsp_model import XspError
from xsp_model.errors import clean


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("void gemm<float>(int)", "void gemm<float>(int)"),
        ("Größe \u4e2d\u6587 \U0001f680", "Größe \u4e2d\u6587 \U0001f680"),
        ("red\x1b[31m", "red\\x1b[31m"),
        ("a\tb\nc", "a b c"),
        ("bell\x07 \x9b2J \x7f", "bell\\x07 \\x9b2J \\x7f"),
        ("gpj.\u202egemm", "gpj.\\u202egemm"),
        ("\u2066x\u2069\u200b\ufeff\u2028", "\\u2066x\\u2069\\u200b\\ufeff\\u2028"),
        ("half \ud83d", "half \\ud83d"),
    ],
)
def test_what_acts_without_being_seen_is_shown_as_its_code(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_an_error_is_one_line_without_controls() -> None:
    error = XspError("no table `a\n  b\x1b[2J`", path=Path("tr\u202eace.json"), advice="Export\nit again")
    assert str(error) == "tr\\u202eace.json: no table `a b\\x1b[2J`. Export it again"
