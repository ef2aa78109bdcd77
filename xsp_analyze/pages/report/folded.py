"""The section in which equal layers are folded: blocks, their positions, and the single layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Column, Result, Role
from xsp_analyze.formulas import known_sum, quotient, total_of
from xsp_analyze.frames.layers.repeated_blocks import folded_layers, layer_times, standing_out
from xsp_analyze.frames.model_time import latency_of_model
from xsp_analyze.pages import blocks
from xsp_analyze.text.names import cut
from xsp_analyze.text.units import count, share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.service.answers import Answers

__all__ = ["blocks_of_layers"]

_MAX_ROWS = 4_000
_MAX_NAMED = 3  # blocks in the sentence above the table
_MAX_NAME = 48  # characters of each
_ORDER = ("top", "block_index", "position", "repetition")  # nulls first: what holds a row stands before it
_TEXT = ("name", "layer_type", "outlier")


def blocks_of_layers(answers: Answers) -> Section | None:
    """The tree of layers with equal ones folded; nothing where nothing repeats."""
    answer = answers.of("B28")
    if isinstance(answer, str) or answer.table.is_empty():
        return None
    rows = _rows(answers)
    total_ns = total_of(rows.filter(pl.col("depth") == 0)["latency_ns"])
    held_ns = total_of(answer.table["latency_ns"])
    of_blocks = (pl.col("block", "repetition_count").first(), pl.col("latency_ns").sum())
    parts = answer.table.group_by("block_index", maintain_order=True).agg(of_blocks).sort(-pl.col("latency_ns"))
    named = [
        f"{count} x {cut(block, _MAX_NAME)}" for block, count in parts.select("block", "repetition_count").iter_rows()
    ]
    more = f" and {count(len(named) - _MAX_NAMED)} more" if len(named) > _MAX_NAMED else ""
    held = f", {share(held_ns / total_ns)} of the latency of all layers" if total_ns else ""
    means = (
        f"Layers that are equal in type, shapes and order stand in one row: {', '.join(named[:_MAX_NAMED])}"
        f"{more}{held}."
        f" Open one for its positions, and a position for its single layers, {answers.basis}."
        " Median, least and most are over the repetitions."
    )
    return blocks.section("blocks", "Blocks", "Layers, equal ones folded", means, [_tree(answer, rows)])


def _rows(answers: Answers) -> pl.DataFrame:
    """Every row of the tree, what holds a row before it."""
    frames = answers.per_step
    members = folded_layers(frames)
    model = pl.lit(frames.once(latency_of_model)["model_ns"].item() or None, pl.Float64)
    top = pl.col("layer_index").min().over("block_index").alias("top")
    members = members.with_columns(top)
    keys = ["layer_index", "layer_name", "layer_type"]
    outside = layer_times(frames).join(members.select(keys), on=keys, how="anti", nulls_equal=True)
    parts = (_blocks(members), _positions(members), _layers(members, 2), _layers(outside, 0))
    rows = pl.concat(parts, how="diagonal_relaxed").sort(*_ORDER, nulls_last=[True, False, False, False])
    return rows.with_columns(quotient(pl.col("latency_ns"), model).alias("model_share"))


def _blocks(members: pl.DataFrame) -> pl.DataFrame:
    """A row a block: sums, and the spread of its repetitions, each with all its layers."""
    times = (known_sum(pl.col("latency_ns")), known_sum(pl.col("kernel_duration_ns")))
    each = members.group_by("top", "block_index", "block", "repetition", maintain_order=True).agg(*times)
    named = each.with_columns(
        pl.format("repetition {}", pl.col("repetition") + 1).alias("layer_name"),
        pl.lit(None, pl.Int64).alias("layer_index"),
    )
    return _spread(named, ["top", "block_index", "block"], 0).rename({"block": "name"})


def _positions(members: pl.DataFrame) -> pl.DataFrame:
    """A row a position of a block."""
    keys = ["top", "block_index", "position", "position_name", "position_type"]
    return _spread(members, keys, 1).rename({"position_name": "name", "position_type": "layer_type"})


def _spread(rows: pl.DataFrame, keys: Sequence[str], depth: int) -> pl.DataFrame:
    """Sums and spread of what has these keys; `leads_to` is the layer that stands out."""
    latency = pl.col("latency_ns")
    outlier, _ = standing_out(latency)
    largest = pl.col("layer_index").get(latency.arg_max())
    return rows.group_by(keys, maintain_order=True).agg(
        pl.lit(depth, pl.Int64).alias("depth"),
        pl.len().cast(pl.Int64).alias("count"),
        latency.median().cast(pl.Float64).alias("median_ns"),
        latency.min().cast(pl.Float64).alias("min_ns"),
        latency.max().cast(pl.Float64).alias("max_ns"),
        outlier,
        pl.when(outlier.is_not_null()).then(largest).alias("leads_to"),
        known_sum(latency),
        known_sum(pl.col("kernel_duration_ns")),
    )


def _layers(rows: pl.DataFrame, depth: int) -> pl.DataFrame:
    keys = [key for key in ("top", "block_index", "position", "repetition") if key in rows.columns]
    here = rows.select(*keys, "layer_index", "layer_name", "layer_type", "latency_ns", "kernel_duration_ns")
    top = () if "top" in keys else (pl.col("layer_index").alias("top"),)
    return here.with_columns(pl.lit(depth, pl.Int64).alias("depth"), *top).rename({"layer_name": "name"})


def _tree(answer: Result, rows: pl.DataFrame) -> Block:
    """The rows as a table that the page folds; `layer` is what links to single layers call each."""
    left_out = None
    if rows.height > _MAX_ROWS:
        first = f"The first {count(_MAX_ROWS)} of {count(rows.height)} rows"
        left_out = f"{first}. xsp analyze INPUT -a B28 and -a A02 write them all."
        rows = rows.head(_MAX_ROWS)

    def column(name: str, doc: str, unit: str = "") -> Column:
        return Column(name, rows.schema[name], doc, unit, role=Role.LABEL if name in _TEXT else Role.MEASURE)

    columns = [
        Column("name", rows.schema["name"], "The block, a position in it, or a layer.", role=Role.KEY),
        Column("depth", rows.schema["depth"], "How deep it stands.", role=Role.LABEL),
        column("layer_type", "What kind of layer it is."),
        column("count", "Repetitions of the block, or layers at the position."),
        column("latency_ns", "Latency of all of them, outside the layers inside them.", "ns"),
        column("median_ns", "Median over the repetitions.", "ns"),
        column("min_ns", "Least of them.", "ns"),
        column("max_ns", "Most of them.", "ns"),
        column("outlier", "The repetition that takes more than 10 % and 3.5 median deviations above the median."),
        column("kernel_duration_ns", "Device time of their work, backward included.", "ns"),
        column("model_share", "Their latency over that of the model."),
    ]
    result = Result(answer.analysis, rows, columns, answer.ledger_of, answer.provenance_of)
    table = blocks.table(result, bar="latency_ns", tree=True, name="blocks", left_out=left_out)
    return {
        **table,
        "type": "folded",
        "layer": rows["layer_index"].to_list(),
        "outlier": rows["leads_to"].to_list(),
    }
