"""Identifiers use the field's words, and functions are verbs or noun phrases.

Those that docs/glossary.md lists as not to be used bind nothing in the code, alone or, but for a few, in a compound.
"""

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
_PRODUCT = ("xsp", "xsp_model", "xsp_ingest", "xsp_analyze", "runners")
_FINE_IN_COMPOUNDS = {"known", "place", "sort", "trust", "sorts", "word", "words", "whole", "broken", "codes", "given"}
_PARTICIPLES = frozenset(
    re.findall(
        r"\w+",
        """
        begun bent blown born bound bought broken brought built caught chosen done drawn driven fed felt
        found frozen given gone ground grown held hidden hung kept known laid left lent lost made meant met
        paid seen sent shaken shown slept sold spent spoken stood struck stuck sung swept taken taught
        thought thrown told torn understood worn wound written
        """,
    )
)
_NO_PARTICIPLES = frozenset(re.findall(r"\w+", "bed embed exceed feed hundred indeed need proceed seed speed succeed"))
_PARTICLES = frozenset(
    re.findall(
        r"\w+",
        """
        about above after again all alone also and any apart as aside at back before behind below beside
        between both by down each else for from in into not of off on once only or out over per so than
        there through to together twice under up with within without
        """,
    )
)
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


def _is_participle(token: str) -> bool:
    return token in _PARTICIPLES or (len(token) > 3 and token.endswith("ed") and token not in _NO_PARTICIPLES)


def _is_bare_participle(name: str) -> bool:
    """`_named`, `told_by`: nothing behind the participle says what is named; `named_rows` is rows."""
    tokens = [token for token in name.lower().split("_") if token]
    if not tokens or not _is_participle(tokens[0]):
        return False
    rest = next((token for token in tokens[1:] if not _is_participle(token)), None)
    return rest is None or rest in _PARTICLES


@pytest.mark.parametrize(
    ("name", "is_bare"),
    [
        ("_named", True),
        ("told_by", True),
        ("left_out", True),
        ("named_rows", False),
        ("read", False),
        ("seed_of", False),
    ],
)
def test_what_a_bare_participle_is(name: str, *, is_bare: bool) -> None:
    assert _is_bare_participle(name) is is_bare


@pytest.mark.parametrize("package", [*_PRODUCT, "benchmarks", "docs/gen", "fixtures", "fuzz"])
def test_functions_are_verbs_or_noun_phrases(package: str) -> None:
    bare = [
        f"{path.relative_to(_REPO)}:{node.lineno}: {node.name}"
        for path in sorted((_REPO / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_bare_participle(node.name)
    ]
    assert not bare


def test_functions_of_scripts_are_verbs_or_noun_phrases() -> None:
    defined = re.compile(r"\bfunction (\w+)\(|\bconst (\w+) = (?:async )?\(?[\w, ]*\)? =>")
    bare = []
    for path in sorted((_REPO / "xsp_analyze/pages/assets").rglob("*.js")):
        names = (match[1] or match[2] for match in defined.finditer(path.read_text(encoding="utf-8")))
        bare += [f"{path.name}: {name}" for name in names if _is_bare_participle(re.sub("([A-Z])", r"_\1", name))]
    assert not bare


@pytest.mark.parametrize("package", _PRODUCT)
def test_no_identifier_hides_one_of_them_in_a_compound(package: str) -> None:
    tokens = {one for one in _BANNED if "_" not in one} - _FINE_IN_COMPOUNDS
    uses = [
        f"{path.relative_to(_REPO)}:{line}: {name}"
        for path in sorted((_REPO / package).rglob("*.py"))
        for name, line in _bound(ast.parse(path.read_text(encoding="utf-8")))
        if tokens & set(name.lower().split("_"))
    ]
    assert not uses


@pytest.mark.parametrize("package", _PRODUCT)
def test_docstrings_say_what_their_subject_is(package: str) -> None:
    """What begins with "As" or "Those" has its subject elsewhere."""
    elliptic = [
        f"{path.relative_to(_REPO)}:{node.lineno}: {node.name}"
        for path in sorted((_REPO / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and (ast.get_docstring(node) or "").startswith(("As ", "Those "))
    ]
    assert not elliptic
