"""Device activities: each with its launch, layer, launch configuration and hardware counters, in one frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from xsp_analyze import formulas
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_model import Attribution, Kind, Level
from xsp_model.columns.arrays import lookup, nullable_index
from xsp_model.columns.tree import innermost
from xsp_model.vocabulary import AVERAGED, FLOP_COUNTS, STALLS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model import Trace
    from xsp_model.columns.arrays import Ints

__all__ = [
    "AXES",
    "COUNTERS",
    "WORK_COLUMNS",
    "Moved",
    "are_known",
    "attach_counters",
    "attributed_host",
    "attribution_bases",
    "column_at",
    "counted_launches",
    "counted_time",
    "counter_columns",
    "counter_sums",
    "derived_counters",
    "device_activities",
    "device_work",
    "every_span",
    "gpu_ops",
    "moved_bytes",
    "origins",
    "shapes_at",
    "shapes_of",
    "share_among_layers",
    "summed_columns",
    "with_bounds",
    "with_shapes",
]

# Work that belongs to layers otherwise than by its launch: shared among several, or captured elsewhere.

_LAYER = ("layer_index", "layer_name", "layer_type")
_ALONE = 1.0


def origins(trace: Trace, spans: pl.Series) -> Ints:
    """For each device activity the span above which its operator stands: its own, or where its node was captured."""
    captured = (
        trace.scan("kernels")
        .filter(pl.col("captured_in_id").is_not_null())
        .select("span_id", "captured_in_id")
        .collect()
    )
    own = spans.to_numpy()
    if captured.is_empty():
        return own
    at = lookup(captured["span_id"].to_numpy(), own)
    return np.where(at >= 0, captured["captured_in_id"].to_numpy()[at], own)


def attribution_bases(trace: Trace, spans: pl.Series) -> pl.Series:
    """For each span how its layer is known, an `AttributionBasis`; null where it simply is that of its launch."""
    bases = trace.scan("attributions").select("span_id", "basis").unique("span_id", keep="first").collect()
    at = lookup(bases["span_id"].to_numpy(), spans.to_numpy())
    return bases["basis"].gather(nullable_index(at)).alias("attribution_basis")


def share_among_layers(
    trace: Trace, rows: pl.DataFrame, *, time: str, count: str, by_weight: tuple[str, ...] = ()
) -> pl.DataFrame:
    """The rows (of spans, `span_id`) with a row a layer in place of each that several layers share.

    Whole ns are shared without a remainder: the parts of a row add up to it. It is counted with the layer that has
    most of it. `by_weight`: other amounts. A column `layer_id` becomes that of the part.
    """
    shares = trace.scan("attributions").filter(pl.col("weight") < _ALONE).collect()
    if shares.is_empty():
        return rows
    layers = trace.scan("layers").select(pl.col("span_id").alias("layer_id"), *_LAYER)
    described = shares.lazy().join(layers, on="layer_id", how="left", maintain_order="left").collect()
    ordered = described.sort("span_id", -pl.col("weight"), "layer_id").with_columns(
        pl.col("weight").cum_sum().over("span_id").alias("end"),
        pl.int_range(pl.len()).over("span_id").alias("part"),
        pl.len().over("span_id").alias("parts"),
    )
    is_shared = rows["span_id"].is_in(ordered["span_id"].unique().implode())
    own = [name for name in ("layer_id", *_LAYER) if name in rows.columns]
    shared = rows.filter(is_shared).drop(own).with_row_index("number")
    joined = shared.join(ordered, on="span_id", how="inner", maintain_order="left_right")
    split = joined.with_columns(
        _part(time, rows.schema[time]),
        pl.when(pl.col("part") == 0).then(pl.col(count)).otherwise(pl.col(count) * 0).alias(count),
        *(pl.col(name) * pl.col("weight") for name in by_weight),
    )
    parts = split.select(pl.col(name).cast(kind) for name, kind in rows.schema.items())
    return pl.concat([rows.filter(~is_shared), parts])


def _part(time: str, kind: pl.DataType) -> pl.Expr:
    """The part's time: up to the whole share so far, less what was given before."""
    last = pl.col("part") == pl.col("parts") - 1
    until = pl.when(last).then(pl.col(time).cast(pl.Float64)).otherwise(pl.col(time) * pl.col("end"))
    until = until.floor() if kind.is_integer() else until
    return (until - until.shift(1, fill_value=0.0).over("number")).alias(time)


def attributed_host(trace: Trace) -> pl.DataFrame:
    """Host operators that layers are known of beside their calls: span_id, run_id, step, duration_ns, layer_id."""
    operators = trace.scan("spans").filter(pl.col("level") == str(Level.OPERATOR))
    first = trace.scan("attributions").select("span_id", "layer_id").unique("span_id", keep="first")
    columns = ("span_id", "run_id", "step", pl.col("duration_ns").fill_null(0))
    return first.join(operators.select(columns), on="span_id", how="inner").sort("span_id").collect()


# Hardware counters of device activities, and what follows from them.

COUNTERS: Sequence[str] = ("flop_count", "dram_read_bytes", "dram_write_bytes", "achieved_occupancy")
"""The counters that every frame of activities has as columns; others are there where they were measured."""
_METRICS = {
    "flop_count": "flop_count_sp",
    "dram_read_bytes": "dram_read_bytes",
    "dram_write_bytes": "dram_write_bytes",
    "achieved_occupancy": "achieved_occupancy",
}
_FLOP = pl.col("flop_count")
_SHARES = ("achieved_occupancy", *AVERAGED)
_FURTHER = {name: name for name in (*FLOP_COUNTS, "dram_bytes", *AVERAGED) if name != _METRICS["flop_count"]}


def attach_counters(trace: Trace, activities: pl.DataFrame) -> pl.DataFrame:
    """The activities with `counter_columns` (Float64, null: not measured); modelled numbers do not count."""
    source, metric = pl.col("source").cast(pl.String), pl.col("metric").cast(pl.String)
    metric_of = _METRICS | _FURTHER
    measured = (
        trace.scan("metrics").filter(metric.is_in(metric_of.values()), ~source.str.starts_with("model")).collect()
    )
    if measured.is_empty():
        return activities.with_columns(pl.lit(None, dtype=pl.Float64).alias(c) for c in COUNTERS)
    present = set(measured["metric"].cast(pl.String).unique())
    columns = _METRICS | {column: name for column, name in _FURTHER.items() if name in present}
    values = measured.group_by("span_id", maintain_order=True).agg(
        pl.col("value").filter(metric == name).first().alias(column) for column, name in columns.items()
    )
    return activities.join(values, on="span_id", how="left", maintain_order="left")


def counter_columns(rows: pl.DataFrame) -> list[str]:
    """The columns of the rows that hold counters: COUNTERS, and others where measured."""
    return [*COUNTERS, *(c for c in _FURTHER if c in rows.columns)]


def summed_columns(rows: pl.DataFrame) -> list[str]:
    """The `counter_columns` that add up over kernels: all but occupancy and other shares."""
    return [c for c in counter_columns(rows) if c not in _SHARES]


def are_known(rows: pl.DataFrame) -> bool:
    """Whether any counter of any row was measured."""
    return any(rows[c].null_count() < rows.height for c in counter_columns(rows))


class Moved(NamedTuple):
    """Columns of a group with flop, bytes and time of the work of which both flop and DRAM traffic are known.

    Of other work intensity and bandwidth tell nothing: flop without its bytes would make the one too high.
    """

    flop: str
    moved_bytes: str
    moved_ns: str

    @classmethod
    def of(cls, flop_column: str) -> Moved:
        """The counters that stand beside the flop count."""
        return cls(*(f"{flop_column}_{name}" for name in ("with_traffic", "traffic_bytes", "traffic_ns")))

    @property
    def names(self) -> tuple[str, str, str]:
        """All three."""
        return self.flop, self.moved_bytes, self.moved_ns


def counted_time(flop_column: str) -> str:
    """The column with the device time for which this flop count is known: what throughput refers to."""
    return "counted_ns" if flop_column == "flop_count" else f"{flop_column}_ns"


def counter_sums(rows: pl.DataFrame) -> list[pl.Expr]:
    """Aggregates a group of the rows' counters: sums of the known ones, shares weighted by duration.

    Beside each flop count stands its `counted_time`, and what intensity is made of: see `Moved`.
    """
    summed = summed_columns(rows)
    flops = [c for c in summed if c.startswith("flop_count")]
    if not are_known(rows):
        further = [name for c in flops for name in (counted_time(c), *Moved.of(c).names)]
        return [pl.lit(None, pl.Float64).alias(c) for c in (*counter_columns(rows), *further)]
    sums = [formulas.known_sum(pl.col(c)).alias(c) for c in summed]
    duration = pl.col("duration_ns")
    means = [formulas.weighted_mean(pl.col(c), duration).alias(c) for c in _SHARES if c in rows.columns]
    times = [duration.filter(pl.col(c).is_not_null()).sum().alias(counted_time(c)) for c in flops]
    return [*sums, *means, *times, *(each for c in flops for each in _moved_sums(c, rows.columns))]


def _moved_sums(flop_column: str, columns: Sequence[str]) -> list[pl.Expr]:
    flop, moved, names = pl.col(flop_column), moved_bytes(columns), Moved.of(flop_column)
    both = flop.is_not_null() & moved.is_not_null()
    values = {names.flop: flop, names.moved_bytes: moved, names.moved_ns: pl.col("duration_ns")}
    return [formulas.known_sum(value.filter(both)).cast(pl.Float64).alias(name) for name, value in values.items()]


def moved_bytes(columns: Sequence[str]) -> pl.Expr:
    """DRAM traffic of a row: bytes read and written, or the two together where only that was measured."""
    apart = pl.col("dram_read_bytes") + pl.col("dram_write_bytes")
    return pl.coalesce(apart, "dram_bytes") if "dram_bytes" in columns else apart


def derived_counters(frame: pl.LazyFrame, ideal: float | None) -> pl.LazyFrame:
    """The frame with arithmetic_intensity, flop_per_s and memory_bound added from its aggregated counters."""
    names, beside = frame.collect_schema().names(), Moved.of("flop_count")
    grouped = beside.flop in names
    flop, moved = (pl.col(beside.flop), pl.col(beside.moved_bytes)) if grouped else (_FLOP, moved_bytes(names))
    return frame.with_columns(
        formulas.arithmetic_intensity(flop, moved, pl.lit(0.0)).alias("arithmetic_intensity"),
        formulas.flop_per_s(_FLOP, pl.col("counted_ns")).alias("flop_per_s"),
    ).with_columns(formulas.is_memory_bound(pl.col("arithmetic_intensity"), ideal).alias("memory_bound"))


_LIMIT = "launch__occupancy_limit_"
_LIMITED_BY = {"blocks": "blocks", "registers": "registers", "shared_mem": "shared memory", "warps": "warps"}


def with_bounds(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with what their kernels are held up by, null where not measured: BOUND_COLUMNS.

    `span_id` is the kernel, of a group the longest, whose launch limits occupancy.
    """
    absent = [pl.lit(None, pl.Float64).alias(c) for c in AVERAGED if c not in rows.columns]
    measured = rows.with_columns(absent)
    highest = pl.max_horizontal(list(STALLS))
    reason = pl.coalesce(pl.when(pl.col(c) == highest).then(pl.lit(what)) for c, what in STALLS.items())
    limits = trace.scan("metrics").filter(pl.col("metric").cast(pl.String).str.starts_with(_LIMIT)).collect()
    what = pl.col("metric").cast(pl.String).str.strip_prefix(_LIMIT).replace(_LIMITED_BY)
    lowest = limits.with_columns(what.alias("what")).filter(pl.col("value") == pl.col("value").min().over("span_id"))
    limiters = (
        lowest.sort("span_id", "what").group_by("span_id", maintain_order=True).agg(pl.col("what").str.join(" and "))
    )
    at = lookup(limiters["span_id"].to_numpy(), measured["span_id"].fill_null(-1).to_numpy())
    return measured.with_columns(
        reason.alias("stall_reason"),
        highest.alias("stall_share"),
        limiters["what"].gather(nullable_index(at)).alias("occupancy_limiter"),
    )


# Device activities in one frame, each with its launch, its layer and its launch configuration.

AXES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
"""The columns that hold a kernel's grid and block."""
_SPAN_COLUMNS = (
    "span_id",
    "parent_id",
    "run_id",
    "process_id",
    "device_id",
    "stream_id",
    "kind",
    "name",
    "start_ns",
    "duration_ns",
    "step",
    "phase",
    "layer_id",
    "attribution",
)
WORK_COLUMNS = ("span_id", "run_id", "process_id", "device_id", "step", "kind", "name", "attribution", "duration_ns")
"""What `device_work` has of each device activity."""


def device_work(trace: Trace) -> pl.DataFrame:
    """One row a device activity in order of start, in WORK_COLUMNS; a duration that is unknown counts as 0."""
    return (
        trace.scan("spans")
        .filter(pl.col("attribution").is_not_null())
        .select(WORK_COLUMNS)
        .with_columns(pl.col("duration_ns").fill_null(0))
        .collect()
    )


def device_activities(trace: Trace) -> pl.DataFrame:
    """One row a device activity in order of start: the span's columns (ns), with what analyses ask about it.

    `origin_id` is the span above which its operator stands: its own, or where its graph's node was captured.
    `call_start_ns`, `call_end_ns` and `call_thread_id` are of the runtime call that launched it, null where none is
    known; `launch_ns` is
    that start, or else its own; `layer_index`, `layer_name` and `layer_type` are those of the layer it is attributed
    to, else null; then counters.
    """
    activities = (
        trace.scan("spans")
        .filter(pl.col("attribution").is_not_null())
        .select(_SPAN_COLUMNS)
        .with_columns(pl.col("duration_ns").fill_null(0))
        .collect()
    )
    called = _with_calls(trace, activities).with_columns(pl.coalesce("call_start_ns", "start_ns").alias("launch_ns"))
    called = called.with_columns(pl.Series("origin_id", origins(trace, activities["span_id"])))
    layers = trace.scan("layers").select("span_id", "layer_index", "layer_name", "layer_type").collect()
    return attach_counters(trace, called.hstack(_matching(layers, called["layer_id"])))


def counted_launches(trace: Trace) -> pl.DataFrame:
    """Of a trace without device work the launches whose kernels were counted, as `device_activities` has kernels.

    Names are those of the calls; how long kernels ran is not known, and 0 here.
    """
    counted = trace.scan("metrics").select("span_id").unique()
    belongs = pl.when(pl.col("layer_id").is_not_null()).then(pl.lit(str(Attribution.LAYER)))
    launches = (
        trace.scan("spans")
        .filter(pl.col("level").cast(pl.String) == str(Level.RUNTIME))
        .join(counted, on="span_id", how="semi", maintain_order="left")
        .select(
            *(c for c in _SPAN_COLUMNS if c not in {"attribution", "duration_ns", "kind"}),
            belongs.otherwise(pl.lit(str(Attribution.MODEL_ONLY))).cast(pl.Categorical).alias("attribution"),
            pl.lit(str(Kind.KERNEL)).cast(pl.Categorical).alias("kind"),
            pl.lit(0, pl.Int64).alias("duration_ns"),
            pl.col("start_ns").alias("launch_ns"),
            pl.col("span_id").alias("origin_id"),
        )
        .collect()
    )
    layers = trace.scan("layers").select("span_id", "layer_index", "layer_name", "layer_type").collect()
    return attach_counters(trace, launches.hstack(_matching(layers, launches["layer_id"])))


def _with_calls(trace: Trace, activities: pl.DataFrame) -> pl.DataFrame:
    parents = activities["parent_id"]
    names = ("start_ns", "duration_ns", "level", "thread_id")
    start, duration, level, thread = (column_at(trace, name, parents) for name in names)
    is_call = level == str(Level.RUNTIME)  # else the parent is what issued the work, not its launch
    return activities.hstack(
        pl.select(
            pl.when(is_call).then(start).alias("call_start_ns"),
            pl.when(is_call).then(start + duration).alias("call_end_ns"),
            pl.when(is_call).then(thread).alias("call_thread_id"),
        )
    )


def column_at(trace: Trace, name: str, spans: pl.Series) -> pl.Series:
    """A column of the spans of these ids, null for null; only that column of them is ever held."""
    return trace.scan("spans").select(name).collect().to_series().gather(spans)


def every_span(trace: Trace, *columns: str | pl.Expr) -> pl.DataFrame:
    """Columns of all spans of all runs, a row a span id: to walk from span to span, and for no sum."""
    return trace.scan("spans").select(columns).collect()


def gpu_ops(trace: Trace) -> pl.LazyFrame:
    """Device work of all runs, each with its layer, operator, launching call and sizes: the view of SQL."""
    spans = trace.scan("spans")
    parents = spans.select("parent_id", is_operator=pl.col("level").cast(pl.String) == str(Level.OPERATOR)).collect()
    nearest = innermost(parents["parent_id"].fill_null(-1).to_numpy(), parents["is_operator"].to_numpy())
    call_end_ns = pl.col("start_ns") + pl.col("duration_ns")
    is_call = pl.col("level").cast(pl.String) == str(Level.RUNTIME)
    calls = spans.filter(is_call).select("span_id", call_name="name", call_end_ns=call_end_ns)
    operators = spans.select("span_id", operator_name="name")
    return (
        spans.filter(pl.col("level").cast(pl.String) == str(Level.KERNEL))
        .with_columns(operator_id=pl.lit(pl.Series(nearest)).gather("span_id"))
        .join(operators, left_on="operator_id", right_on="span_id", how="left")
        .join(calls, left_on="parent_id", right_on="span_id", how="left")
        .join(trace.scan("layers").select("span_id", "layer_name", "layer_type", "path"), left_on="layer_id",
              right_on="span_id", how="left")
        .join(trace.scan("kernels"), on="span_id", how="left")
        .join(trace.scan("copies"), on="span_id", how="left")
        .with_columns(waited_ns=pl.col("start_ns") - pl.col("call_end_ns"))
    )  # fmt: skip


def _matching(table: pl.DataFrame, spans: pl.Series) -> pl.DataFrame:
    """The table's row (but its span_id) for each of the spans, nulls where there is none."""
    at = lookup(table["span_id"].to_numpy(), spans.fill_null(-1).to_numpy())
    rows = nullable_index(at)
    return pl.DataFrame([column.gather(rows) for column in table.drop("span_id")])


def with_shapes(trace: Trace, activities: pl.DataFrame) -> pl.DataFrame:
    """The activities with the columns of AXES: grid and block, null for what is no kernel."""
    kernels = trace.scan("kernels").select("span_id", *AXES).collect()
    return activities.hstack(_matching(kernels, activities["span_id"]))


def shapes_of(trace: Trace, activities: pl.DataFrame) -> pl.Series:
    """A number for each activity, the same exactly for those of one grid and block; null for what is no kernel."""
    return _shapes(trace, activities)[0]


def shapes_at(trace: Trace, activities: pl.DataFrame) -> list[pl.Series]:
    """The columns `grid` and `block` of the activities: sizes along x, y and z, null where one of them is unknown."""
    number, distinct = _shapes(trace, activities)
    triples = distinct.select(
        pl.when(pl.all_horizontal(pl.col(axes).is_not_null())).then(pl.concat_list(axes)).alias(what)
        for what, axes in (("grid", AXES[:3]), ("block", AXES[3:]))
    )
    return [column.gather(number) for column in triples]


def _shapes(trace: Trace, activities: pl.DataFrame) -> tuple[pl.Series, pl.DataFrame]:
    """The activities' shapes as numbers, and the columns of AXES of each number: millions of kernels have a few."""
    kernels = trace.scan("kernels").select("span_id", *AXES).collect()
    number, first = numbers_by_appearance(*group_ids(kernels.select(AXES)))
    of_kernels = kernels.select("span_id", pl.Series("shape", number))
    return _matching(of_kernels, activities["span_id"])["shape"], kernels.select(AXES)[first]
