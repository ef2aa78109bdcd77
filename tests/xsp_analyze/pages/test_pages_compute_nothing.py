"""Pages lay out what analyses, and functions in `frames/`, have computed: seen in their syntax."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import xsp_analyze.pages

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAGES = Path(xsp_analyze.pages.__file__).parent
_VIEWER = _PAGES / "viewer"
"""Draws any stretch of a trace at any level of detail: what it adds up is how many boxes become one."""

_MODULES = sorted(path.relative_to(_PAGES) for path in _PAGES.rglob("*.py") if _VIEWER not in path.parents)

_AGGREGATES = {
    "agg", "corr", "cum_count", "cum_max", "cum_min", "cum_prod", "cum_sum", "cumsum", "describe", "diff", "dot",
    "ewm_mean", "group_by", "group_by_dynamic", "join_asof", "map_batches", "map_elements", "mean", "mean_horizontal",
    "median", "mode",  "over", "pct_change", "pivot", "product", "quantile", "rolling", "searchsorted",
    "shift", "sql", "std", "sum", "sum_horizontal", "unpivot", "upsample", "value_counts", "var",
}  # fmt: skip
_MAY_ADD_UP = {"total_of"}
"""Of formulas: the whole of a bar is the sum of its parts, and a sentence says a column's."""
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


def computations(source: str) -> Iterator[str]:
    """What a module computes, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _AGGREGATES:
            yield f"{node.lineno}: .{node.func.attr}()"
        if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC) and any(map(_is_column, ast.walk(node))):
            yield f"{node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Import) and any(alias.name == "numpy" for alias in node.names):
            yield f"{node.lineno}: numpy"
        if isinstance(node, ast.ImportFrom) and node.module == "xsp_analyze.formulas":
            yield from (f"{node.lineno}: {alias.name}" for alias in node.names if alias.name not in _MAY_ADD_UP)


def _is_column(node: ast.AST) -> bool:
    """Whether it is of polars' expressions, as `pl.col`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pl"


@pytest.mark.parametrize("path", _MODULES, ids=str)
def test_pages_lay_out_what_others_compute(path: Path) -> None:
    computed = list(computations((_PAGES / path).read_text(encoding="utf-8")))
    assert not computed, "a number belongs to the analysis it comes from, or to a function in xsp_analyze/frames/"


@pytest.mark.parametrize(
    "source",
    [
        'rows.group_by("step").len()',
        "rows.select(pl.col('a').sum())",
        "rows.select(pl.col('a') / pl.col('b'))",
        "rows.filter(pl.col('a') + 1 > limit)",
        "import numpy as np",
        "from xsp_analyze.formulas import quotient",
    ],
)
def test_what_counts_as_computing(source: str) -> None:
    assert list(computations(source))
