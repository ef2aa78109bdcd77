"""Traces of two operators, of which metrics say what they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from xsp_model import Trace

__all__ = ["two_operators", "with_metrics", "work_of"]


def two_operators(folder: Path) -> Trace:
    """aten::mm (2 x 5 times 5 x 7), 4 us; my::op, 2 us, which launches work itself and in an aten::mm, 8 us."""
    made = KinetoTrace()
    made.operator("aten::mm", 0, 40_000, shapes=[[2, 5], [5, 7]])
    made.launch("gemm", 10_000, 230_000, 4_000)
    made.operator("my::op", 110_000, 80_000, shapes=[[2, 5]])
    made.launch("mine", 112_000, 240_000, 2_000)
    made.operator("aten::mm", 120_000, 40_000, shapes=[[2, 5], [5, 7]])
    made.launch("gemm", 130_000, 250_000, 8_000)
    return convert([made.write(folder / "t.json")], Options())


def with_metrics(trace: Trace, name: str, values: Mapping[str, float], source: str = "modelled by XLA") -> Trace:
    """The trace with these metrics of every operator of the name."""
    spans = trace.frame("spans").filter(pl.col("name").cast(pl.String) == name, pl.col("level") == "operator")
    rows = [
        {"span_id": span, "metric": metric, "value": float(value), "unit": "1", "source": source}
        for span in spans["span_id"]
        for metric, value in values.items()
    ]
    before = trace.frame("metrics").with_columns(pl.col(pl.Categorical).cast(pl.String))
    return trace.with_tables({"metrics": pl.concat([before, pl.DataFrame(rows)], how="diagonal")})


def work_of(trace: Trace) -> list[tuple[object, ...]]:
    table = run(find("B11"), StepView.of(trace)).table
    columns = ["operator", "count", "modelled_flop", "modelled_bytes", "device_sum_ns", "modelled_share"]
    return table.select(columns).rows()
