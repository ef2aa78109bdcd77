"""Limits hold within `with`, in its thread and in copies of its context; and no test sets them in another way."""

from __future__ import annotations

import ast
import re
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from xsp_model.limits import Limits, limits, override_limits

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = Path(__file__).resolve().parents[2]
_PRODUCT = ("xsp", "xsp_model", "xsp_ingest", "xsp_analyze")
_FOLDERS = ("tests", "fuzz", "benchmarks")
_CAPITALS = re.compile(r"_?[A-Z][A-Z_]+")
_NUMBERS = (ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)
_SET_IN_TEXT = re.compile(r"^\s*\w+\.(\w+) = ", re.MULTILINE)
_PATCHES = ("setattr", "object")  # of monkeypatch, and of mock.patch


def test_limits_hold_within_alone() -> None:
    with override_limits(pass_rows=7, tied_spans=11):
        assert limits() == replace(Limits(), pass_rows=7, tied_spans=11)
        with override_limits(pass_rows=3):
            assert limits() == replace(Limits(), pass_rows=3, tied_spans=11)
        assert limits().pass_rows == 7
    assert limits() == Limits()


def test_they_are_as_before_after_an_error() -> None:
    with pytest.raises(KeyError), override_limits(pass_rows=7):
        raise KeyError
    assert limits() == Limits()


def test_a_name_that_is_none_is_an_error() -> None:
    with pytest.raises(TypeError, match="pass_columns"), override_limits(pass_columns=7):
        pytest.fail("entered")
    assert limits() == Limits()


def test_a_thread_has_the_usual_ones_unless_it_runs_in_a_copy_of_the_context() -> None:
    with override_limits(pass_rows=7), ThreadPoolExecutor(1) as thread:
        assert thread.submit(limits).result() == Limits()
        assert thread.submit(copy_context().run, limits).result().pass_rows == 7


def _trees(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for file in sorted((_ROOT / folder).rglob("*.py")):
            yield file.relative_to(_ROOT).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def _constants(module: ast.Module) -> Iterator[str]:
    """The names in capitals of a module's numbers."""
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_number(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            yield from (name for name in names if _CAPITALS.fullmatch(name))


def _is_number(value: ast.expr) -> bool:
    nodes = list(ast.walk(value))
    constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
    are_numbers = bool(constants) and all(type(each) in (int, float) for each in constants)
    return are_numbers and all(isinstance(node, _NUMBERS) for node in nodes)


def _patched(tree: ast.AST) -> Iterator[str]:
    """What is set in something else, for a while or for good, in the program or in one that it has as a text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PATCHES:
            texts = [arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant)]
            yield from (text.rpartition(".")[2] for text in texts if isinstance(text, str))
        elif isinstance(node, ast.Assign):
            yield from (target.attr for target in node.targets if isinstance(target, ast.Attribute))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _SET_IN_TEXT.findall(node.value)


def test_no_test_sets_a_number_of_ours_by_its_name() -> None:
    ours = {name for _, module in _trees(*_PRODUCT) for name in _constants(module)}
    assert len(ours) > 100
    patches = {name: sorted(ours & set(_patched(tree))) for name, tree in _trees(*_FOLDERS)}
    assert {name: patched for name, patched in patches.items() if patched} == {}, "set by limits.override_limits"


@pytest.mark.parametrize(
    "program",
    [
        'patch.setattr(scratch, "PIECE", size)',
        'patch.setattr("xsp_model.columns.arrays.PIECE", 7)',
        'mock.patch.object(scratch, "PIECE", 7)',
        "scratch.PIECE = 7",
        "run('import scratch\\nscratch.PIECE = 7')",
    ],
)
def test_a_number_set_by_its_name_shows(program: str) -> None:
    assert list(_patched(ast.parse(program))) == ["PIECE"]
