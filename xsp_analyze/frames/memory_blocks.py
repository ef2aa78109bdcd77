"""Blocks of memory: from when to when each was in use, what allocated it, and what it is used for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.steps import host_steps
from xsp_model import Level, MemoryKind, Phase
from xsp_model.tree import innermost, outermost

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace

__all__ = ["SERIES", "memory_blocks", "memory_events"]

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
        "operator": _at(spans["name"].cast(pl.String), calls),
        "call_end_ns": _at(end, calls),
        "phase_end_ns": _at(end, steps),
        "phase": own["phase"].cast(pl.String),
        "step": own["step"],
        "layer_span": own["layer_id"],
        "named": named,
    })  # fmt: skip
    return facts.join(texts, on="named", how="left", maintain_order="left").drop("named")


def _at(column: pl.Series, positions: pl.Series) -> pl.Series:
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
