"""What a click on a layer shows: the layer's own facts, and its parts from the operators down to the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Result
from xsp_analyze.formulas import total_of
from xsp_analyze.frames import coverage
from xsp_analyze.frames.layers.layer_time import LAYER_KEY
from xsp_analyze.pages import blocks
from xsp_analyze.pages.report.parts import HOST_COLUMNS, WORK_COLUMNS, device_parts, host_parts
from xsp_analyze.text.units import count, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.core import Column
    from xsp_analyze.pages.blocks import Block
    from xsp_analyze.service.answers import Answers

__all__ = ["drill"]

_MAX_PARTS = 6_000


def drill(answers: Answers, layers: Result) -> Block:
    """Both tables of parts, each with the row in `layers` that a part belongs to (-1: in no row)."""
    frames = answers.per_step
    row_of_layer = layers.table.select(*LAYER_KEY).with_row_index("place")
    work = _table(answers, layers, device_parts(frames), row_of_layer, WORK_COLUMNS, "duration_ns")
    host = _table(answers, layers, host_parts(frames), row_of_layer, HOST_COLUMNS, "self_ns")
    return {"work": work, "host": host, "basis": answers.basis}


def _table(
    answers: Answers,
    layers: Result,
    parts: pl.DataFrame,
    row_of_layer: pl.DataFrame,
    columns: Sequence[Column],
    by: str,
) -> Block:
    """The longest parts over all layers, in their order, as a table with `row`; what is left out is said."""
    keyed = row_of_layer.with_columns(pl.col("layer_name", "layer_type").cast(pl.String))
    joined = parts.join(keyed, on=LAYER_KEY, how="left", nulls_equal=True, maintain_order="left")
    note = None
    if joined.height > _MAX_PARTS:
        order = pl.col(by).rank("ordinal", descending=True)
        kept = joined.filter(order <= _MAX_PARTS)
        part = share(total_of(kept[by]) / (total_of(joined[by]) or 1.0))
        note = (
            f"Of all layers together the {count(_MAX_PARTS)} longest of {count(joined.height)} parts"
            f" are here, {part} of their"
            " time."
        )
        joined = kept
    shown = [c for c in columns if joined[c.name].null_count() < max(joined.height, 1)]
    result = Result(
        layers.analysis, joined.select(c.name for c in shown), shown, lambda: coverage.ledger(answers.per_step)
    )
    return {
        **blocks.table(result, bar=by, left_out=note),
        "row": joined["place"].cast(pl.Int64).fill_null(-1).to_list(),
        "unknown": [],
    }
