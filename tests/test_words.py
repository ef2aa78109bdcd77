"""Identifiers use the field's words: those that docs/glossary.md lists as not to be used bind nothing in the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_REPO = Path(__file__).resolve().parents[1]
_PACKAGES = ("xsp", "xsp_model", "xsp_ingest", "xsp_analyze", "runners", "tests")
_TOOLS = ("benchmarks", "fuzz", "fixtures", "docs", "recipes")
_PREFIXES = ("least", "most")
_HEADING = "## Words that identifiers do not use"


def _banned() -> frozenset[str]:
    table = (_REPO / "docs" / "glossary.md").read_text(encoding="utf-8").partition(_HEADING)[2]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    return frozenset(name.strip() for row in rows[1:] for name in row.split(","))


_BANNED = _banned()


def _is_banned(name: str) -> bool:
    plain = name.strip("_").lower()
    return plain in _BANNED or plain.split("_")[0] in _PREFIXES


def _bound(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that the code binds: variables, parameters, attributes, functions, classes, other names of imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            yield node.name or "", node.lineno
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname, node.lineno) for alias in node.names if alias.asname)
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def test_the_glossary_lists_words() -> None:
    assert {"place", "found", "desk", "or_null"} <= _BANNED


@pytest.mark.parametrize("package", [*_PACKAGES, *_TOOLS])
def test_no_identifier_is_one_of_them(package: str) -> None:
    uses = [
        f"{path.relative_to(_REPO)}:{line}: {name}"
        for path in sorted((_REPO / package).rglob("*.py"))
        for name, line in _bound(ast.parse(path.read_text(encoding="utf-8")))
        if _is_banned(name)
    ]
    assert not uses
