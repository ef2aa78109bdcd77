"""Memory: from when to when each block was in use, the curve of what is in use, and what was in use at its peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.steps import host_steps
from xsp_model import Level, MemoryKind, Phase
from xsp_model.columns.tree import innermost, outermost

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.columns.arrays import Ints

__all__ = [
    "KIND_COLUMNS",
    "RECORDED",
    "SERIES",
    "SUMMED",
    "alive_at_peak",
    "memory_at",
    "memory_blocks",
    "memory_curve",
    "memory_events",
    "memory_peaks",
    "of_series",
    "samples_in_use",
]

# Blocks of memory: from when to when each was in use, what allocated it, and what it is used for.

SERIES = ("run_id", "device_id")
"""What has a curve of its own: a device of a run, or (null) its host's memory."""
_SPACE = ("run_id", "process_id", "device_id", "address")
_EVENT = ("sequence", "time_ns", "bytes")
_OWNER = ("operator", "call_end_ns", "phase_end_ns", "phase", "step", "layer_span", "call_lines")


def memory_events(frames: TraceView) -> pl.DataFrame:
    """The table `allocations` in its order, its labels as text."""
    events = frames.own_runs.frame("allocations")
    return events.with_columns(pl.col("category", "source_lines").cast(pl.String))


def memory_blocks(frames: TraceView) -> pl.DataFrame:
    """One row a block with an address that was seen given out: `first` and `last`, the events that did and undid that.

    `last` and `end_ns` are null where it was in use to the end. With its size, what allocated it, and its kind; in
    order of `first`. A block that is given out again, without having been taken back, ends then.
    """
    events = frames.once(memory_events).filter(pl.col("address").is_not_null())
    in_place = events.sort(*_SPACE, "sequence", nulls_last=True).with_columns(
        pl.col(name).shift(-1).over(_SPACE).alias(f"next_{name}") for name in ("sequence", "time_ns")
    )
    blocks = in_place.filter(pl.col("bytes") > 0).select(
        *SERIES,
        pl.col("sequence").alias("first"),
        pl.col("next_sequence").alias("last"),
        pl.col("time_ns").alias("start_ns"),
        pl.col("next_time_ns").alias("end_ns"),
        "bytes",
        "owner_id",
        "category",
        "source_lines",
    )
    owned = _with_owners(frames.trace, blocks.sort("run_id", "first"))
    return _with_kinds(owned, _first_steps(frames.trace))


def _with_owners(trace: Trace, blocks: pl.DataFrame) -> pl.DataFrame:
    """The blocks with the outermost operator that ran then, its phase, step and layer, and the lines that called it."""
    owners = blocks["owner_id"].drop_nulls().unique().sort()
    facts = _of_owners(trace, owners) if len(owners) else pl.DataFrame(schema=_no_owners())
    joined = blocks.join(facts, on="owner_id", how="left", maintain_order="left")
    layers = trace.frame("layers").select(
        pl.col("span_id").alias("layer_span"),
        "layer_index",
        pl.col("layer_name", "layer_type", "path").cast(pl.String),
    )
    return joined.join(layers, on="layer_span", how="left", maintain_order="left").with_columns(
        pl.coalesce("source_lines", "call_lines").alias("source_lines")
    )


def _no_owners() -> dict[str, pl.DataType]:
    text, number = pl.String(), pl.Int64()
    texts = ("operator", "phase", "call_lines")
    return {"owner_id": number, **{name: text if name in texts else number for name in _OWNER}}


def _of_owners(trace: Trace, owners: pl.Series) -> pl.DataFrame:
    """What is known of spans that held allocations."""
    spans = trace.frame("spans").select("span_id", "parent_id", "level", "name", "start_ns", "duration_ns", "phase",
                                        "step", "layer_id")  # fmt: skip
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    operator = (spans["level"] == str(Level.OPERATOR)).fill_null(value=False).to_numpy()
    optimizer = (spans["phase"] == str(Phase.OPTIMIZER)).fill_null(value=False).to_numpy()
    lines = trace.frame("operators").select("span_id", "source_lines")
    has_lines = spans["span_id"].is_in(lines.drop_nulls("source_lines")["span_id"].implode()).to_numpy()
    calls, steps, named = (
        pl.Series(of(parent, mask)[owners.to_numpy()])
        for of, mask in ((outermost, operator), (outermost, optimizer), (innermost, has_lines))
    )
    own, end = spans[owners], spans["start_ns"] + spans["duration_ns"]
    texts = lines.select(pl.col("span_id").alias("named"), pl.col("source_lines").cast(pl.String).alias("call_lines"))
    facts = pl.DataFrame({
        "owner_id": owners,
        "operator": _values_at(spans["name"].cast(pl.String), calls),
        "call_end_ns": _values_at(end, calls),
        "phase_end_ns": _values_at(end, steps),
        "phase": own["phase"].cast(pl.String),
        "step": own["step"],
        "layer_span": own["layer_id"],
        "named": named,
    })  # fmt: skip
    return facts.join(texts, on="named", how="left", maintain_order="left").drop("named")


def _values_at(column: pl.Series, positions: pl.Series) -> pl.Series:
    """The values at the positions, null for -1."""
    return column.gather(positions.set(positions < 0, None))


def _first_steps(trace: Trace) -> pl.DataFrame:
    """run_id and `steps_begin_ns` of each run that has steps."""
    steps = host_steps(trace)
    return steps.group_by("run_id").agg(pl.col("start_ns").min().alias("steps_begin_ns"))


def _with_kinds(blocks: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """`kind`, by the rule that docs/analyses.md states; the first that holds."""
    freed = pl.col("end_ns")
    within = freed <= pl.max_horizontal("call_end_ns", pl.when(pl.col("phase") == Phase.OPTIMIZER).then("phase_end_ns"))
    kind = (
        pl.when(pl.col("category").is_not_null()).then("category")
        .when(within.fill_null(value=False)).then(_literal(MemoryKind.WORKSPACE))
        .when((pl.col("phase") == Phase.OPTIMIZER) & freed.is_null()).then(_literal(MemoryKind.OPTIMIZER_STATE))
        .when(pl.col("phase") == Phase.BACKWARD).then(_literal(MemoryKind.GRADIENTS))
        .when(pl.col("phase").is_in([Phase.FORWARD, Phase.RECOMPUTE])).then(_literal(MemoryKind.ACTIVATIONS))
        .when((pl.col("start_ns") < pl.col("steps_begin_ns")) & freed.is_null()).then(_literal(MemoryKind.WEIGHTS))
        .when(pl.col("phase").is_not_null()).then(_literal(MemoryKind.OTHER))
        .otherwise(_literal(MemoryKind.UNKNOWN))
    )  # fmt: skip
    return blocks.join(steps, on="run_id", how="left", maintain_order="left").with_columns(kind.alias("kind"))


def _literal(kind: MemoryKind) -> pl.Expr:
    return pl.lit(str(kind))


# Memory in use over time: in all, by kind, and when it was most.

RECORDED = "recorded"
"""The source counts what is in use."""
SUMMED = "summed"
"""Summed up from what was given out and taken back: what else was in use before the recording is not in it."""
KIND_COLUMNS = {
    str(kind): f"{kind.replace(' ', '_')}_bytes" for kind in MemoryKind if kind is not MemoryKind.BEFORE
} | {str(MemoryKind.BEFORE): "before_bytes"}
"""The column of each kind."""


def memory_curve(frames: TraceView) -> pl.DataFrame:
    """One row an event of a run and device: what was in use after it, in all and reserved, and how that is known.

    Sums begin at what was surely in use before: the most that was taken back beyond what had been given out. Where
    nothing says what was taken back, nothing is known of what is in use, and there are no rows. `rest` is the kind of
    what is in use and of no known block.
    """
    summed = pl.col("bytes").cum_sum().over(SERIES, order_by="sequence")
    counted = pl.col("allocated_bytes").is_not_null().any().over(SERIES)
    is_block = pl.col("bytes") != 0  # the others changed what is reserved
    nameless = (is_block & pl.col("address").is_null() & pl.col("category").is_null()).any().over(SERIES)
    events = frames.once(memory_events).with_columns(
        summed.alias("summed"), counted.alias("counted"), nameless.alias("nameless")
    )
    tells = (pl.col("bytes") < 0) | pl.any_horizontal(pl.col("allocated_bytes", "address", "category").is_not_null())
    divided = pl.col("category").is_not_null().all().over(SERIES)  # all of it, what was there before as well
    before = pl.min_horizontal(pl.col("summed").min().over(SERIES), 0)
    recorded = pl.col("allocated_bytes").forward_fill().over(SERIES, order_by="sequence")
    return (
        events.filter(tells.any().over(SERIES))
        .select(
            *SERIES,
            "sequence",
            "time_ns",
            pl.when("counted").then(recorded).otherwise(pl.col("summed") - before).alias("allocated_bytes"),
            "reserved_bytes",
            pl.when(pl.col("counted") | divided).then(pl.lit(RECORDED)).otherwise(pl.lit(SUMMED)).alias("basis"),
            pl.when("nameless")
            .then(pl.lit(str(MemoryKind.UNKNOWN)))
            .otherwise(pl.lit(str(MemoryKind.BEFORE)))
            .alias("rest"),
        )
        .drop_nulls("allocated_bytes")
    )


def memory_peaks(frames: TraceView) -> pl.DataFrame:
    """Of each run and device the event after which most was in use, the first of these; in this order."""
    curve = frames.once(memory_curve)
    at_most = curve.filter(pl.col("allocated_bytes") == pl.col("allocated_bytes").max().over(SERIES))
    return at_most.sort("sequence").unique(SERIES, keep="first", maintain_order=True).sort(*SERIES, nulls_last=True)


def memory_at(frames: TraceView, moments: pl.DataFrame) -> pl.DataFrame:
    """The moments (rows of `memory_curve`) with the bytes of each kind; together they are what was in use."""
    changes = frames.once(_changes)
    parts = [
        _memory_at(part, of_series(changes, run, device))
        for (run, device), part in moments.partition_by(SERIES, as_dict=True, maintain_order=True).items()
    ]
    return pl.concat(parts) if parts else _memory_at(moments, changes)


def of_series(rows: pl.DataFrame, run: object, device: object) -> pl.DataFrame:
    """The rows of one run and device."""
    return rows.filter(pl.col("run_id") == run, pl.col("device_id").eq_missing(pl.lit(device, pl.Int64)))


def _memory_at(moments: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    at = moments["sequence"].to_numpy()
    sums = {
        column: pl.Series(_sum_until(changes.filter(pl.col("kind") == kind), at), dtype=pl.Int64)
        for kind, column in KIND_COLUMNS.items()
    }
    rest = pl.col("allocated_bytes") - pl.sum_horizontal(*KIND_COLUMNS.values())
    added = moments.with_columns(**sums).with_columns(rest.alias("unaccounted"))
    return added.with_columns(
        pl.when(pl.col("rest") == kind).then(pl.col(column) + pl.col("unaccounted")).otherwise(column).alias(column)
        for kind, column in KIND_COLUMNS.items()
    ).drop("unaccounted")


def _sum_until(changes: pl.DataFrame, at: Ints) -> Ints:
    """The sum of all changes up to and with each event."""
    ordered = changes.sort("sequence")
    sums = np.concatenate(([0], ordered["change"].to_numpy().cumsum()))
    out: Ints = sums[np.searchsorted(ordered["sequence"].to_numpy(), at, side="right")]
    return out


def _changes(frames: TraceView) -> pl.DataFrame:
    """SERIES, sequence, kind, and the bytes by which what is in use of that kind changed then."""
    blocks = frames.once(memory_blocks)
    named = frames.once(memory_events).filter(pl.col("address").is_null(), pl.col("category").is_not_null())
    return pl.concat(
        [
            blocks.select(*SERIES, pl.col("first").alias("sequence"), "kind", pl.col("bytes").alias("change")),
            blocks.drop_nulls("last").select(
                *SERIES, pl.col("last").alias("sequence"), "kind", (-pl.col("bytes")).alias("change")
            ),
            named.select(*SERIES, "sequence", pl.col("category").alias("kind"), pl.col("bytes").alias("change")),
        ]
    )


# What is in use when most memory is: block by block, and what of it is no known block.


def alive_at_peak(frames: TraceView) -> pl.DataFrame:
    """One row a block in use at the peak of its run and device, and one a kind for what is of no block (`is_block`).

    Their bytes sum up to `total_bytes`, which is in use then, at `peak_time_ns`.
    """
    peaks = frames.once(memory_peaks)
    at = peaks.select(*SERIES, pl.col("sequence").alias("peak"), pl.col("allocated_bytes").alias("total_bytes"),
                      pl.col("time_ns").alias("peak_time_ns"))  # fmt: skip
    blocks = frames.once(memory_blocks).join(at, on=SERIES, how="inner", nulls_equal=True, maintain_order="left")
    alive = blocks.filter(
        pl.col("first") <= pl.col("peak"), pl.col("last").is_null() | (pl.col("last") > pl.col("peak"))
    )
    rest = _rest(memory_at(frames, peaks), at, alive)
    return pl.concat([alive.with_columns(is_block=pl.lit(value=True)), rest], how="diagonal").drop("peak")


def _rest(kinds: pl.DataFrame, at: pl.DataFrame, alive: pl.DataFrame) -> pl.DataFrame:
    """Of each kind what the blocks do not add up to."""
    by_kind = kinds.unpivot(list(KIND_COLUMNS.values()), index=SERIES, variable_name="column", value_name="all")
    names = {column: kind for kind, column in KIND_COLUMNS.items()}
    named = by_kind.with_columns(pl.col("column").replace_strict(names, return_dtype=pl.String).alias("kind"))
    seen = alive.group_by(*SERIES, "kind").agg(pl.col("bytes").sum())
    joined = named.join(seen, on=[*SERIES, "kind"], how="left", nulls_equal=True, maintain_order="left")
    left = joined.select(*SERIES, "kind", (pl.col("all") - pl.col("bytes").fill_null(0)).alias("bytes"))
    return (
        left.filter(pl.col("bytes") != 0)
        .join(at, on=SERIES, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(is_block=pl.lit(value=False))
    )


# What samples of counters tell, where no allocations do.

_IN_USE = ("allocated_bytes", "memory_in_use_bytes", "bytes_in_use", "memory_used_bytes")  # the first that there is


def samples_in_use(trace: Trace, max_moments: int) -> pl.DataFrame:
    """Moments of what counters say is in use and reserved; of each of equal stretches one, with most in use."""
    samples = (
        trace.frame("counters")
        .filter(pl.col("unit").cast(pl.String) == "byte")
        .with_columns(pl.col("counter").cast(pl.String), pl.col("value").cast(pl.Int64, strict=False))
        .drop_nulls("value")  # of more than 64 bits
    )
    rank = pl.col("counter").replace_strict({name: i for i, name in enumerate(_IN_USE)}, default=None)
    ranked = samples.with_columns(rank.alias("rank")).drop_nulls("rank")
    in_use = ranked.filter(pl.col("rank") == pl.col("rank").min().over(SERIES)).rename({"value": "allocated_bytes"})
    held = samples.filter(pl.col("counter") == "reserved_bytes").rename({"value": "reserved_bytes"})
    keys = [*SERIES, "time_ns"]
    by_time = held.group_by(keys).agg(pl.col("reserved_bytes").max())
    joined = in_use.join(by_time, on=keys, how="left", nulls_equal=True, maintain_order="left").sort(keys)
    begin, end = pl.col("time_ns").min().over(SERIES), pl.col("time_ns").max().over(SERIES)
    stretch = ((pl.col("time_ns") - begin) * (max_moments - 1)) // pl.max_horizontal(end - begin, 1)
    return (
        joined.with_columns(stretch.alias("stretch"))
        .group_by(*SERIES, "stretch", maintain_order=True)
        .agg(pl.col("time_ns", "allocated_bytes", "reserved_bytes").get(pl.col("allocated_bytes").arg_max()))
        .drop("stretch")
    )
