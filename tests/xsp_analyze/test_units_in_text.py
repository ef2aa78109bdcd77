"""A number is scaled to a unit for people in `xsp_analyze/text/`: seen in the syntax of all other modules."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import xsp_analyze

if TYPE_CHECKING:
    from collections.abc import Iterator

_ANALYZE = Path(xsp_analyze.__file__).parent
_UNIT = r"\s?(%|[nuµm]s|s|min|[kKMGT]i?B|[kMGTP]?(B|FLOP)/s|[kMG]?Hz)(?![\w/])"
_SCALED = rf"(?!\s?(ns|s)\b){_UNIT}"
"""Of what is written behind a number; nanoseconds, bytes and flop are as they are stored."""
_MAY_WRITE = {
    "export/benchmark_script.py": "a script that runs without XSP",
    "frames/coverage.py": "entries of the ledger, which are sentences, say percent",
    "pages/compare/sentences.py": "takes the unit off again",
}
_MODULES = sorted(
    path.relative_to(_ANALYZE)
    for path in _ANALYZE.rglob("*.py")
    if path.relative_to(_ANALYZE).parts[0] != "text" and path.relative_to(_ANALYZE).as_posix() not in _MAY_WRITE
)


def scaled_numbers(source: str) -> Iterator[str]:
    """Numbers that a module writes with such a unit, but limits, which stand as their author chose them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            behind = [*node.values[1:], ast.Constant("")]
            for part, text in zip(node.values, behind, strict=True):
                if isinstance(part, ast.FormattedValue) and not _is_limit(part.value) and _is_scaled(part, text):
                    yield f"{node.lineno}: {ast.unparse(part.value)}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\{\}" + _SCALED, node.value):
            yield f"{node.lineno}: {node.value}"


def _is_scaled(part: ast.FormattedValue, behind: ast.expr) -> bool:
    spec = ast.unparse(part.format_spec) if part.format_spec else ""
    text = behind.value if isinstance(behind, ast.Constant) else ""
    return "%'" in spec or bool(isinstance(text, str) and re.match(_SCALED, text))


def _is_limit(value: ast.expr) -> bool:
    """`limit.SHARE`, or another constant, as a number of some unit."""
    names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
    return all(name in {"limit", "round"} or name.isupper() for name in names)


@pytest.mark.parametrize("path", _MODULES, ids=str)
def test_units_become_text_in_one_place(path: Path) -> None:
    written = list(scaled_numbers((_ANALYZE / path).read_text(encoding="utf-8")))
    assert not written, "xsp_analyze.text.units says durations, sizes, shares and quantities"


@pytest.mark.parametrize("source", ['f"{x:.1%}"', 'f"{t / 1e6:.2f} ms"', 'f"{b >> 20} MiB"', 'pl.format("{} %", a)'])
def test_what_counts_as_a_scaled_number(source: str) -> None:
    assert list(scaled_numbers(source))


def test_numbers_as_stored_and_limits_are_none() -> None:
    assert not list(scaled_numbers('f"{time} ns, {size} bytes, {limit.SHARE:.0%}, {limit.NS / 1000:g} µs"'))
