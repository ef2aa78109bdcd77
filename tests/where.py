"""`python -m tests.where A10` lists the tests of an analysis, those files first that ask most about it.

A test is of an analysis where its id stands in it as a text by itself, in its parameters or in a helper of its module
that it calls, or where it goes over the analyses of a folder; tests that go over all analyses are not listed.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_analyze.catalog import analyses_in, find

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["find_tests"]

_TESTS = Path(__file__).resolve().parent
_OWN = "tests/xsp_analyze/analyses/"
_FOLDER, _FOLDERS = "analyses_in:", ("nsys", "recipes")


def find_tests(identity: str) -> list[str]:
    """The tests as pytest takes them, `tests/xsp_analyze/analyses/test_kernels.py::test_name`."""
    names = {identity, *(_FOLDER + folder for folder in _FOLDERS if find(identity) in analyses_in(folder))}
    tests = [(path, name) for path, by_test in _texts_by_test().items() for name, texts in by_test if names & texts]
    count = Counter(path for path, _ in tests)
    ranked = sorted(tests, key=lambda one: (not one[0].startswith(_OWN), -count[one[0]], one[0]))
    return [f"{path}::{name}" for path, name in ranked]


@cache
def _texts_by_test() -> Mapping[str, Sequence[tuple[str, frozenset[str]]]]:
    files = sorted(_TESTS.rglob("test_*.py"))
    return {str(path.relative_to(_TESTS.parent)): _tests_in(ast.parse(path.read_text("utf-8"))) for path in files}


def _tests_in(module: ast.Module) -> list[tuple[str, frozenset[str]]]:
    named: dict[str, ast.AST] = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    for node in module.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named |= {target.id: node for target in targets if isinstance(target, ast.Name)}
    return [(name, _texts(node, named)) for name, node in named.items() if name.startswith("test_")]


def _texts(node: ast.AST, named: Mapping[str, ast.AST]) -> frozenset[str]:
    """Texts by themselves in a definition and in what it names of its module."""
    seen, pending = {id(node)}, [node]
    texts = set()
    while pending:
        for each in ast.walk(pending.pop()):
            if isinstance(each, ast.Call) and ast.unparse(each.func) == "analyses_in":
                texts.add(_FOLDER + str(ast.literal_eval(each.args[0])))
            elif isinstance(each, ast.Constant) and isinstance(each.value, str):
                texts.add(each.value)
            elif isinstance(each, ast.Name) and (other := named.get(each.id)) is not None and id(other) not in seen:
                seen.add(id(other))
                pending.append(other)
    return frozenset(texts)


if __name__ == "__main__":
    sys.stdout.writelines(f"{each}\n" for identity in sys.argv[1:] for each in find_tests(identity))
