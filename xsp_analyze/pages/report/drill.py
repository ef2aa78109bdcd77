"""What a click on a layer shows: the layer's own facts, and its parts from the operators down to the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.core import Column, Result, Role
from xsp_analyze.formulas import known_sum, quotient, total_of
from xsp_analyze.frames import coverage
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance, numbers_in_order
from xsp_analyze.frames.kernels.activities import column_at, origins
from xsp_analyze.frames.kernels.kernel_means import layer_executions
from xsp_analyze.frames.kernels.measured_work import GRAPH_REPLAY
from xsp_analyze.frames.layers.layer_time import LAYER_KEY
from xsp_analyze.pages import blocks
from xsp_analyze.pages.report.time_tree import above
from xsp_analyze.text.units import count, share
from xsp_model import Attribution, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.pages.blocks import Block
    from xsp_analyze.pages.report.time_tree import SpanPaths
    from xsp_analyze.service.answers import Answers
    from xsp_analyze.trace.runs import Runs
    from xsp_analyze.trace.step_view import StepView
    from xsp_model import Trace
    from xsp_model.arrays import Ints

__all__ = ["HOST_COLUMNS", "WORK_COLUMNS", "device_parts", "drill", "host_parts"]

# What a layer is made of: its device work by operator, library call and kernel, and its operators on the host.

_LABELS = ("operator", "library", "kernel_name", "kind", "phase")
_COUNTED = ("flop_count", "dram_read_bytes", "dram_write_bytes")
WORK_COLUMNS = (
    Column("operator", pl.String(), "Operators around the launch, outermost first, innermost last.", role=Role.LABEL),
    Column("library", pl.String(), "The library call around the launch.", role=Role.LABEL),
    Column("kernel_name", pl.String(), "What ran on the device.", role=Role.KEY),
    Column("kind", pl.String(), "kernel, memcpy, memset or graph.", role=Role.LABEL),
    Column("phase", pl.String(), "When it ran: forward, recompute, backward, optimizer or other.", role=Role.LABEL),
    Column("count", pl.Float64(), "How often."),
    Column("duration_ns", pl.Float64(), "Its device time.", "ns"),
    Column("flop_count", pl.Float64(), "FP32 operations.", "flop"),
    Column("dram_read_bytes", pl.Float64(), "Bytes read from device memory.", "byte"),
    Column("dram_write_bytes", pl.Float64(), "Bytes written to device memory.", "byte"),
    Column("achieved_occupancy", pl.Float64(), "Active warps over the most possible, weighted by duration."),
)
HOST_COLUMNS = (
    Column("operator", pl.String(), "The framework's operator, as called in the layer or in its backward pass."),
    Column("count", pl.Float64(), "How often."),
    Column("host_ns", pl.Float64(), "How long its calls took on the host, operators called in them included.", "ns"),
    Column("self_ns", pl.Float64(), "Of that, outside of the operators called in them.", "ns"),
)


def device_parts(frames: StepView) -> pl.DataFrame:
    """One row a layer, operator path, library call and kernel: LAYER_KEY and WORK_COLUMNS, longest first in a layer.

    Numbers are those of A08: of a mean step, or of the whole trace.
    """
    rows = frames.once(layer_executions)
    work = rows.with_columns(
        *_around_launches(frames.trace, origins(frames.trace, rows["span_id"])),
    )
    is_replay = pl.col("attribution") == str(Attribution.GRAPH_REPLAY)
    replay = pl.lit(GRAPH_REPLAY).cast(pl.Categorical)
    named = (pl.when(is_replay).then(replay).otherwise(c).alias(c) for c in ("layer_name", "layer_type"))
    index = pl.when(~is_replay).then("layer_index").alias("layer_index")
    return _sum_parts(work.with_columns(index, *named))


def _sum_parts(work: pl.DataFrame) -> pl.DataFrame:
    weighted = (pl.col("achieved_occupancy") * pl.col("duration_ns")).sum()
    time_counted = pl.col("duration_ns").filter(pl.col("achieved_occupancy").is_not_null()).sum()
    keys = (*LAYER_KEY, *_LABELS)
    number, first = numbers_by_appearance(*group_ids(work.select(keys)))
    sums = (
        work.with_columns(pl.Series("number", number))
        .group_by("number", maintain_order=True)
        .agg(
            pl.col("count").sum(),
            pl.col("duration_ns").sum(),
            *(known_sum(pl.col(c)) for c in _COUNTED),
            pl.when(time_counted > 0).then(quotient(weighted, time_counted)).alias("achieved_occupancy"),
        )
        .drop("number")
    )
    return (
        work.select(keys)[first]
        .with_columns(pl.col(pl.Categorical).cast(pl.String))
        .hstack(sums)
        .sort(*LAYER_KEY, -pl.col("duration_ns"), *_LABELS, nulls_last=True)
    )


def _around_launches(trace: Trace, work: Ints) -> list[pl.Series]:
    """`operator` and `library` of each activity: what of these it was launched in, within the layer around."""
    spans = trace.scan("spans")
    parent = spans.select(pl.col("parent_id").fill_null(-1)).collect().to_series().to_numpy()
    levels = spans.select("level").collect().to_series()
    is_layer, is_operator, is_library = (
        (levels == str(level)).to_numpy() for level in (Level.LAYER, Level.OPERATOR, Level.LIBRARY)
    )
    start = parent[work] if len(work) else work
    operators, libraries = (above(start, parent, mask, stop=is_layer) for mask in (is_operator, is_library))
    return [
        _path_names(trace, operators, both_ends=True).alias("operator"),
        _path_names(trace, libraries, both_ends=False).alias("library"),
    ]


def _path_names(trace: Trace, paths_of: SpanPaths, *, both_ends: bool) -> pl.Series:
    """The innermost name of each row's path, and before it the outermost, as `outer > inner`, if there are several."""
    names = column_at(trace, "name", pl.Series(paths_of.spans, dtype=pl.Int64)).cast(pl.String)
    code, first = numbers_in_order(*group_ids([names]))
    which, paths = paths_of.paths_by_code(code)
    texts_of = names[first].to_list()
    texts = [_ends([texts_of[c] for c in path if c >= 0], both_ends=both_ends) for path in paths.tolist()]
    return pl.Series(texts, dtype=pl.String).cast(pl.Categorical).gather(which)


def _ends(names: Sequence[str], *, both_ends: bool) -> str | None:
    if both_ends and len(names) > 1:
        return f"{names[0]} > {names[-1]}"
    return names[-1] if names else None


def host_parts(frames: StepView) -> pl.DataFrame:
    """One row a layer and operator: LAYER_KEY and HOST_COLUMNS, longest of itself first in a layer.

    Times are per step where the frames are averaged (plain means), in the runs that layers are taken from.
    """
    spans = frames.of_trace.layer_runs.scan("spans").filter(
        pl.col("level").cast(pl.String) == str(Level.OPERATOR),
        pl.col("duration_ns").is_not_null(),
    )
    timed = spans.select("span_id", "parent_id", "run_id", "step", "name", "duration_ns", "layer_id").collect()
    inner = timed.group_by("parent_id").agg(pl.col("duration_ns").sum().alias("inner_ns"))
    own = timed.join(inner, left_on="span_id", right_on="parent_id", how="left", maintain_order="left").with_columns(
        (pl.col("duration_ns") - pl.col("inner_ns").fill_null(0)).clip(lower_bound=0).alias("self_ns")
    )
    chosen = frames.of_chosen_steps(own) if frames.is_mean else own
    layers = frames.trace.scan("layers").select(pl.col("span_id").alias("layer_id"), *LAYER_KEY).collect()
    steps = _steps(frames, frames.of_trace.layer_runs)
    return (
        chosen.join(layers, on="layer_id", how="inner", maintain_order="left")
        .with_columns(
            pl.col("name").cast(pl.String).alias("operator"), pl.col("layer_name", "layer_type").cast(pl.String)
        )
        .group_by(*LAYER_KEY, "operator", maintain_order=True)
        .agg(
            quotient(pl.len(), steps).alias("count"),
            quotient(pl.col("duration_ns").sum(), steps).alias("host_ns"),
            quotient(pl.col("self_ns").sum(), steps).alias("self_ns"),
        )
        .filter(pl.col("layer_index").is_not_null())
        .sort(*LAYER_KEY, -pl.col("self_ns"), "operator", nulls_last=True)
    )


def _steps(frames: StepView, runs: Runs) -> int:
    """Steps of one run that sums are divided by: runs are summed, as device time is."""
    if not frames.is_mean:
        return 1
    steps = runs.of(frames.steps)
    return max(steps["step"].n_unique(), 1)


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
