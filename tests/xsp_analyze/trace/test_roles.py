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
