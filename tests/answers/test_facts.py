"""Every fact of the table: worked out anew by a script that imports nothing of ours, and asked of XSP."""

from __future__ import annotations

import ast
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import xsp
from tests.answers.facts import Fact, facts

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.mark.structures import ParameterSet

    from xsp import OpenTrace

_BY_HAND = Path(__file__).parent / "by_hand"
_IDS = [fact.id for fact in facts()]
_MIN_FACTS = 60


def _marks(fact: Fact, *, asks: bool) -> list[pytest.MarkDecorator]:
    marks = [pytest.mark.real] if fact.is_real else []
    return [*marks, pytest.mark.xfail(strict=True, reason=fact.differs)] if asks and fact.differs else marks


def _params(*, asks: bool) -> list[ParameterSet]:
    # by file, so that the readers' small caches hold
    return [
        pytest.param(fact, id=fact.id, marks=_marks(fact, asks=asks)) for fact in sorted(facts(), key=lambda f: f.file)
    ]


@pytest.fixture
def path_of(request: pytest.FixtureRequest, fixtures_dir: Path) -> Callable[[Fact], Path]:
    """Where a fact's file lies; a real one skips the test where there are none."""

    def path(fact: Fact) -> Path:
        root, _, rest = fact.file.partition("/")
        return (request.getfixturevalue("real_dir") if root == "real" else fixtures_dir) / rest

    return path


@lru_cache(maxsize=2)
def _open(path: Path) -> OpenTrace:
    return xsp.open(path, cache=False)


def same(got: object, expected: object, tolerance: float) -> bool:
    if isinstance(expected, list):
        return (
            isinstance(got, list)
            and len(got) == len(expected)
            and all(same(one, other, tolerance) for one, other in zip(got, expected, strict=True))
        )
    if isinstance(expected, bool | str):
        return bool(got == expected)
    return isinstance(got, int | float) and isinstance(expected, int | float) and abs(got - expected) <= tolerance


@pytest.mark.parametrize("fact", _params(asks=False))
def test_a_fact_is_what_the_script_by_hand_works_out(fact: Fact, path_of: Callable[[Fact], Path]) -> None:
    got = fact.worked_out(path_of(fact))

    assert same(got, fact.value, fact.tolerance), f"{fact.says} Worked out: {got}"


@pytest.mark.parametrize("fact", _params(asks=True))
def test_xsp_says_the_fact(fact: Fact, path_of: Callable[[Fact], Path]) -> None:
    path = path_of(fact)
    got = fact.answered(path if fact.asks_path else _open(path))

    tolerance = fact.tolerance if fact.tolerance_answer is None else fact.tolerance_answer
    assert same(got, fact.expected, tolerance), f"{fact.says} XSP: {got}, expected: {fact.expected}"


@pytest.mark.parametrize("script", sorted(_BY_HAND.glob("*.py")), ids=lambda path: path.stem)
def test_a_script_by_hand_imports_the_standard_library_and_its_neighbours_only(script: Path) -> None:
    tree = ast.parse(script.read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}

    foreign = {
        name
        for name in imported
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith("tests.answers.by_hand")
    }
    assert not foreign
    assert not {"importlib", "subprocess", "runpy"} & {name.split(".")[0] for name in imported}
    assert not {"__import__", "exec", "eval"} & calls


def test_there_are_enough_facts_and_each_has_a_name() -> None:
    assert len(set(_IDS)) == len(_IDS) >= _MIN_FACTS


@pytest.mark.real
def test_every_real_file_has_a_fact(real_dir: Path) -> None:
    files = [path for path in real_dir.rglob("*") if path.is_file() and path.name != "README.md"]
    inputs = {str(path.relative_to(real_dir)) for path in files if path.parts[len(real_dir.parts)] != "reference"}
    covered = [fact.file.removeprefix("real/") for fact in facts() if fact.is_real]

    assert not {name for name in inputs if not any(name == one or name.startswith(f"{one}/") for one in covered)}


def test_every_fixture_has_a_fact(fixtures_dir: Path) -> None:
    cases = {str(path.parent.relative_to(fixtures_dir)) for path in fixtures_dir.rglob("case.toml")}
    covered = [f"{fact.file.removeprefix('fixtures/')}/" for fact in facts() if not fact.is_real]

    usable = {case for case in cases if "/bad/" not in case}
    assert not {case for case in usable if not any(one.startswith(f"{case}/") for one in covered)}
