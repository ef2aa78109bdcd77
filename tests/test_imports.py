"""How the files of the whole tree import each other: in no circle, and few of them loose in a package."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("xsp", "xsp_model", "xsp_ingest", "xsp_analyze", "runners")
_MAX_LOOSE = 8
_Graph = dict[str, set[str]]


def _files() -> Mapping[str, Path]:
    files = {}
    for package in _PACKAGES:
        for file in (_ROOT / package).rglob("*.py"):
            name = ".".join(file.relative_to(_ROOT).with_suffix("").parts)
            files[name.removesuffix(".__init__").replace("runners", "xsp_runners", 1)] = file
    return files


def _imports(node: ast.AST, *, types: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports below a node, in functions too; those for annotations alone only if `types` says so."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test) and not types:
            for other in child.orelse:
                yield from _imports(other, types=types)
        else:
            yield from _imports(child, types=types)


def _imported(statement: ast.Import | ast.ImportFrom, files: Mapping[str, Path]) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    assert not statement.level, "imports are absolute"
    module = statement.module or ""
    for alias in statement.names:
        name = f"{module}.{alias.name}"
        yield name if name in files else module


def _graph(*, types: bool) -> _Graph:
    files = _files()
    graph: _Graph = {}
    for name, file in files.items():
        names = (
            imported
            for statement in _imports(ast.parse(file.read_text(encoding="utf-8")), types=types)
            for imported in _imported(statement, files)
        )
        graph[name] = {imported for imported in names if imported in files and imported != name}
    return graph


def _circle(graph: _Graph) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.slow
def test_no_files_import_each_other_in_a_circle() -> None:
    """Those in functions count as well: an import put there only to dodge a circle is still one."""
    assert _circle(_graph(types=False)) == []


def test_no_files_need_each_other_for_their_annotations() -> None:
    assert _circle(_graph(types=True)) == []


def test_a_circle_is_found() -> None:
    assert sorted(set(_circle({"a": {"b"}, "b": {"c"}, "c": {"a"}}))) == ["a", "b", "c"]
    assert _circle({"a": {"b"}, "b": set()}) == []


@pytest.mark.parametrize("package", ["xsp", "xsp_ingest", "xsp_analyze"])
def test_few_modules_are_loose_in_a_package(package: str) -> None:
    """The model stays flat, tables and rules of one thing; of the runners, what is started by its path or imported."""
    loose = [file for file in (_ROOT / package).glob("*.py") if not file.name.startswith("__")]
    assert len(loose) <= _MAX_LOOSE


def test_what_others_import_a_module_lists() -> None:
    """`__all__` is what a reader may count on: other modules import nothing else, and nothing private."""
    modules = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in _files().items()}
    lists = {name: listed for name, tree in modules.items() if (listed := _listed(tree)) is not None}
    unlisted = [
        f"{name}: {node.module}.{alias.name}"
        for name, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in lists
        for alias in node.names
        if alias.name not in lists[node.module] and f"{node.module}.{alias.name}" not in modules
    ]
    assert not unlisted


def _listed(tree: ast.Module) -> set[str] | None:
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() | ast.Tuple() as names):
                return set(ast.literal_eval(names))
    return None
