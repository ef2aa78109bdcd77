"""Of every file at hand: no modelled work that cannot be, and the same work in a mean step, each step and all of them.

Files of other people's beside the real traces: XSP_CORPUS names their folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.formulas import quotient
from xsp_analyze.needs import holds
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_model import Trace

_REPO = Path(__file__).resolve().parents[3]
_REAL = Path(os.environ.get("XSP_REAL", _REPO.parent / "shared" / "real"))
_TRACES = (".json", ".json.gz", ".pb", ".sqlite", ".zip")
_EXPLAINED = 1.05
_KEYS = ["operator", "shapes", "dtypes"]
_AMOUNTS = ["count", "modelled_count", "device_sum_ns", "modelled_flop", "modelled_bytes"]


def traces_in(folder: Path | None) -> list[Path]:
    files = sorted(folder.rglob("*")) if folder and folder.is_dir() else []
    return [f for f in files if f.is_file() and f.name.endswith(_TRACES) and not {"bad", "reference"} & {*f.parts}]


def corpus() -> list[Path]:
    named = os.environ.get("XSP_CORPUS")
    return traces_in(_REAL.parent / "cases") + traces_in(Path(named) if named else None)


def table(trace: Trace, identity: str, steps: str) -> pl.DataFrame | None:
    try:
        return run(find(identity), StepView.of(trace, steps)).table
    except XspError:
        return None


def impossible(trace: Trace) -> Iterator[str]:
    """What cannot be in the tables of modelled work, in words."""
    for steps in ("all", "mean", "each"):
        for identity in ("B11", "B23"):
            rows = table(trace, identity, steps)
            if rows is not None:
                yield from (f"{identity} {steps}: {each}" for each in _of_operators(rows))
        for identity, columns in (("A15", ["roof_share"]), ("B24", ["mfu", "hfu"])):
            rows = table(trace, identity, steps)
            if rows is not None and "work_basis" in rows.columns:
                rows = rows.filter(pl.col("work_basis").ne_missing("measured"))
            if rows is not None:
                above = [column for column in columns if (rows[column] > 1).any()]
                yield from (f"{identity} {steps}: {column} is {rows[column].to_list()}" for column in above)
    yield from _differences(trace)


def _of_operators(rows: pl.DataFrame) -> Iterator[str]:
    above = rows.filter(pl.col("roof_share") > 1)
    for row in above.filter(pl.col("above_roof").is_null()).iter_rows(named=True):
        yield f"{row['operator']} is at {row['roof_share']} of its roof, and nothing says why"
    for row in above.filter(pl.col("above_roof") == "rates", pl.col("roof_share") > _EXPLAINED).iter_rows(named=True):
        yield f"{row['operator']} is at {row['roof_share']}, which is no matter of rates"
    if above["gain_ns"].drop_nulls().len():
        yield "time is to be gained above the roof"
    held = rows.filter(pl.col("roof_share") > 0).drop_nulls("gain_ns")
    spent = held.select(quotient(pl.col("roof_ns"), pl.col("roof_share")).sum()).item()
    if spent and held["roof_ns"].sum() > spent:
        yield f"all operators together are at {held['roof_ns'].sum() / spent} of their roofs"


def _differences(trace: Trace) -> Iterator[str]:
    """Rows of B23 that differ in a mean step and its steps, or in all and each."""
    every, each, mean = (table(trace, "B23", steps) for steps in ("all", "each", "mean"))
    if every is None or each is None or mean is None:
        return
    view = StepView.of(trace, "mean")
    if view.steps["run_id"].n_unique() != 1:
        return
    inside = each.join(view.steps.select("step").unique(), on="step", how="semi")
    sums = inside.group_by(_KEYS).agg(pl.col(_AMOUNTS).sum() / view.steps.height, pl.col("roof_ns").null_count() == 0)
    both = mean.join(sums, on=_KEYS, how="full", nulls_equal=True, suffix="_each")
    for row in both.iter_rows(named=True):
        yield from _difference(row)
    for row in each.join(every, on=_KEYS, how="anti", nulls_equal=True).iter_rows(named=True):
        yield f"{row['operator']} {row['shapes']} is in a step, and not in all"


def _difference(row: dict[str, Any]) -> Iterator[str]:
    if row["operator_each"] is None or row["operator"] is None:
        yield f"{row['operator'] or row['operator_each']}: in the mean step or in its steps alone"
        return
    # Steps in which none of the calls took any time have no row of their own.
    short = row["count"] > row["count_each"] * (1 + 1e-9)
    for amount in ("device_sum_ns",) if short else _AMOUNTS:
        one, other = row[amount] or 0, row[f"{amount}_each"] or 0
        if abs(one - other) > 1e-6 * max(one, other):
            yield f"{row['operator']} {row['shapes']}: {amount} is {one} in the mean step, {other} in its steps"


def assert_possible(path: Path) -> None:
    try:
        trace = convert([path], Options())
    except XspError:
        pytest.skip("no trace, or refused")
    if not holds(StepView.of(trace, "all").of_trace, "operators"):
        pytest.skip("without operators")
    assert list(impossible(trace)) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", traces_in(_REPO / "fixtures"), ids=lambda p: "-".join(p.parts[-2:]))
def test_modelled_work_of_fixtures_is_possible(path: Path) -> None:
    assert_possible(path)


@pytest.mark.real
@pytest.mark.parametrize("path", traces_in(_REAL), ids=lambda p: "-".join(p.parts[-2:]))
def test_modelled_work_of_real_traces_is_possible(path: Path) -> None:
    assert_possible(path)


@pytest.mark.real
@pytest.mark.parametrize("path", corpus(), ids=lambda p: "-".join(p.parts[-2:]))
def test_modelled_work_of_other_files_is_possible(path: Path) -> None:
    assert_possible(path)
