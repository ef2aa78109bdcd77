"""Roles are applied by the views: nothing else reads them, and an analysis cannot forget to."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import xsp
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_analyze.trace.trace_view import TraceView
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_model import Trace

_ROOT = Path(__file__).resolve().parents[3]
_MAY_READ = ("xsp_analyze/trace/", "xsp_analyze/merge/", "xsp_analyze/export/")
"""The views; what writes roles; and traces for other programs, which are the tables as they are."""

_MODULES = {"xsp_analyze.trace.roles", "xsp_analyze.trace.timed_runs"}
_OF_RUNS = {name for name, table in TABLES.items() if "run_id" in {column.name for column in table.columns}}
_OF_WORK = {"spans", "counters", "allocations", "page_faults", "step_times"}
"""Of these the tables that say what was done; the others describe runs, devices and what was lost."""
_IDENTITY = "xsp_analyze/history/facts.py"
"""Makes a digest of all that a run holds."""


def _sources() -> Mapping[str, str]:
    files = (file for package in ("xsp", "xsp_analyze") for file in (_ROOT / package).rglob("*.py"))
    return {file.relative_to(_ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def _reads_of_roles(source: str) -> Iterator[int]:
    """Lines that import what knows roles, or take the column `role` of a table."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=module) if module in _MODULES:
                yield node.lineno
            case ast.Subscript(slice=ast.Constant(value="role")):
                yield node.lineno
            case ast.Call(func=ast.Attribute(attr="col" | "select"), args=names) if any(map(_is_role, names)):
                yield node.lineno


def _tables_of_all_runs(source: str) -> Iterator[int]:
    """Lines that take rows of runs from a trace itself, of whatever level and batch size they are."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            of_trace = node.func.attr in {"scan", "frame", "pieces", "table"} and _name(node.func.value) == "trace"
            if of_trace and isinstance(node.args[0], ast.Constant) and node.args[0].value in _OF_RUNS:
                yield node.lineno


def _work_of_all_runs(source: str, *, in_frames: bool) -> Iterator[int]:
    """Lines that take from a trace itself what was done in its runs.

    A walk up the tree takes the parents of all spans; and a function in `frames/` that is given a trace is asked by a
    view, which says what is looked up.
    """
    tree = ast.parse(source)
    above = {below: node for node in ast.walk(tree) for below in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="scan" | "frame" | "pieces" | "table", value=whose),
                args=[ast.Constant(value=name), *_],
            ) if name in _OF_WORK and _name(whose) == "trace":
                is_given = in_frames and isinstance(whose, ast.Name) and _is_parameter(node, above)
                if not is_given and not _takes_parents(node, above):
                    yield node.lineno


def _is_parameter(node: ast.AST, above: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether `trace` is what the function around is given."""
    while not isinstance(node, ast.FunctionDef):
        if node not in above:
            return False
        node = above[node]
    return "trace" in {argument.arg for argument in node.args.args}


def _takes_parents(node: ast.AST, above: Mapping[ast.AST, ast.AST]) -> bool:
    """Whether `.select` with the column `parent_id` follows at once."""
    match above[node]:
        case ast.Attribute(attr="select") as method:
            columns = ast.walk(above[method])
            return any(isinstance(each, ast.Constant) and each.value == "parent_id" for each in columns)
    return False


def _is_role(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == "role"


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_only_the_views_read_roles() -> None:
    others = {name: source for name, source in _sources().items() if not name.startswith(_MAY_READ)}
    assert {name: lines for name, source in others.items() if (lines := list(_reads_of_roles(source)))} == {}


def test_an_analysis_says_of_which_runs_its_rows_are() -> None:
    analyses = {name: source for name, source in _sources().items() if name.startswith("xsp_analyze/analyses/")}
    assert {name: lines for name, source in analyses.items() if (lines := list(_tables_of_all_runs(source)))} == {}


def test_what_was_done_is_asked_of_the_views() -> None:
    others = {name: source for name, source in _sources().items() if not name.startswith((*_MAY_READ, _IDENTITY))}
    of_all_runs = {
        name: lines
        for name, source in others.items()
        if (lines := list(_work_of_all_runs(source, in_frames=name.startswith("xsp_analyze/frames/"))))
    }
    assert of_all_runs == {}


@pytest.mark.parametrize(
    "source",
    [
        "from xsp_analyze.trace.roles import roles_of",
        'runs.filter(pl.col("role") == "kernels")',
        'dict(zip(runs["run_id"], runs["role"]))',
        'runs.select("run_id", "role")',
    ],
)
def test_a_read_of_roles_is_found(source: str) -> None:
    assert list(_reads_of_roles(source)) == [1]


def test_a_table_of_all_runs_is_found() -> None:
    assert list(_tables_of_all_runs('frames.trace.scan("spans")')) == [1]
    assert list(_tables_of_all_runs('frames.of_trace.kernel_runs.scan("spans")')) == []


def test_work_of_all_runs_is_found() -> None:
    for source in (
        'view.trace.scan("spans").filter(a)',
        'trace.frame("counters")',
        'def f(view):\n    trace.scan("spans")',
    ):
        assert list(_work_of_all_runs(source, in_frames=True))
    of_trace = 'def f(trace): return trace.scan("spans").filter(a)'
    assert list(_work_of_all_runs(of_trace, in_frames=False))
    assert not list(_work_of_all_runs(of_trace, in_frames=True))
    assert not list(_work_of_all_runs('view.trace.scan("spans").select("parent_id", "kind")', in_frames=False))


@pytest.fixture(scope="module")
def profile() -> Trace:
    return xsp.open(_ROOT / "fixtures/run_set/convnet_v100_synthetic").trace


def test_a_range_of_a_profile_is_listed_once(profile: Trace) -> None:
    """Its runs of layers and of kernels both name the steps."""
    table = run(find("nvtx_pace"), StepView.of(profile)).table
    assert table["name"].to_list() == [f"ProfilerStep#{step}" for step in range(5)]


def test_ranges_that_the_run_of_kernels_lacks_are_those_of_layers() -> None:
    trace = xsp.open(_ROOT / "fixtures/run_set/results_synthetic").trace
    view = StepView.of(trace)
    assert run(find("nvtx_pace"), view).table["run_id"].to_list() == [*view.of_trace.layer_runs] * 3
    assert view.of_trace.kernel_runs != view.of_trace.layer_runs


def test_what_each_run_of_a_profile_gives(profile: Trace) -> None:
    view = TraceView(profile)
    taken = (view.model_runs, view.layer_runs, view.kernel_runs, view.serialised_runs, view.counter_runs)
    assert [list(runs) for runs in taken] == [[0], [1], [2], [2], [3, 4, 5]]
    assert list(view.own_runs) == list(view.timed_runs) == [0, 1, 2, 3, 4, 5]
    assert view.kernel_runs.scan("spans").collect()["run_id"].unique().to_list() == [2]
