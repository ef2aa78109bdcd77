"""The part of a trace that one wants to export: a step, some levels."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import positions_in
from xsp_analyze.frames.serving_steps import of_phase, parsed_phase, serving_steps
from xsp_analyze.frames.steps import marked_steps
from xsp_model import Attribution, Finding, Kind, LedgerKind, Level, Trace, TraceBuilder, XspError
from xsp_model.columns.tree import ancestors, innermost
from xsp_model.limits import limits
from xsp_model.schema import TABLES
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_model.columns.arrays import Bools

__all__ = [
    "DETAILS",
    "JSON_ARGUMENTS",
    "Row",
    "arguments",
    "category",
    "frames",
    "launches",
    "metrics",
    "name",
    "of_system",
    "own_layers",
    "part_of",
    "rows",
    "systems_of",
    "text",
    "twins",
]

_NAMES_SHOWN = 12
_REFERENCES = {"operators": "forward_id", "kernels": "captured_in_id", "allocations": "owner_id"}


def part_of(
    trace: Trace, *, step: int | None = None, levels: Sequence[str] = (), serving_phase: str | None = None
) -> Trace:
    """The spans of one step, of the levels given (empty: all) and of a phase's steps; times stay as they are.

    A span whose parent is left out becomes a child of its nearest ancestor that is not. Layers of work in the step
    are kept even where they were called outside it. Device work whose layer's level is left out counts as the
    model's. XspError where no such span is in the trace.
    """
    if step is None and not levels and serving_phase is None:
        return trace
    spans = trace.frame("spans")
    keep = _spans_to_keep(spans, step, levels, None if serving_phase is None else _of_phase(trace, serving_phase))
    if not keep.any():
        raise XspError(
            _nothing(spans, step, levels, serving_phase), advice="`xsp info` says which steps and levels there are"
        )
    builder = TraceBuilder()
    for name in TABLES:
        if name != "spans":
            builder.add(name, _rows(trace.frame(name), name, keep))
    builder.add("spans", _attach_to_what_is_kept(spans, keep))
    left_out = int((~keep).sum())
    builder.note([Finding(LedgerKind.PART_OF_TRACE, count=left_out)])
    return builder.build()


def systems_of(trace: Trace) -> dict[str, list[int]]:
    """The runs by what they are of: model, framework and device, as runs name them; in order."""
    systems: dict[str, list[int]] = {}
    for run, *names in trace.frame("runs").select("run_id", "model", "framework", "device_name").iter_rows():
        systems.setdefault(", ".join(filter(None, names)), []).append(run)
    return systems


def of_system(trace: Trace, part: str) -> Trace:
    """The runs of the one system whose name holds these words; XspError where none does, or several."""
    systems = systems_of(trace)
    matching = [part] if part in systems else [name for name in systems if part.casefold() in name.casefold()]
    if len(matching) != 1:
        what = f"{len(matching)} systems of the trace are" if matching else "no system of the trace is"
        names = "; ".join(sorted(matching or systems)[:_NAMES_SHOWN])
        raise XspError(f"{what} called {part!r}", advice=f"Choose one: {names or 'its runs name none'}")
    runs = pl.DataFrame({"old": systems[matching[0]]}).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("run_id")
    )
    keep = trace.frame("spans")["run_id"].is_in(systems[matching[0]]).to_numpy()
    builder = TraceBuilder()
    for name in TABLES:
        rows = trace.frame(name)
        if name == "ledger":
            rows = rows.filter(pl.col("kind").cast(pl.String) != str(LedgerKind.SEVERAL_SYSTEMS))
        kept = rows.filter(pl.Series(keep)) if name == "spans" else _rows(rows, name, keep)
        if "run_id" in kept.columns:
            number = pl.col("run_id").replace_strict(runs["old"], runs["run_id"], default=None, return_dtype=pl.Int64)
            of_none = pl.col("run_id").is_null()  # in the ledger
            kept = kept.filter(of_none | pl.col("run_id").is_in(runs["old"].implode())).with_columns(number)
        builder.add(name, kept)
    return builder.build()


def _of_phase(trace: Trace, serving_phase: str) -> pl.DataFrame:
    return of_phase(marked_steps(trace), serving_steps(trace), parsed_phase(serving_phase))


def _spans_to_keep(spans: pl.DataFrame, step: int | None, levels: Sequence[str], steps: pl.DataFrame | None) -> Bools:
    unknown = sorted(set(levels) - {str(level) for level in LEVELS})
    if unknown:
        raise XspError(f"there is no level {unknown[0]!r}", advice=f"Levels: {', '.join(map(str, LEVELS))}")
    keep: Bools = np.ones(spans.height, dtype=np.bool_)
    if step is not None:
        keep = (spans["step"] == step).fill_null(value=False).to_numpy(writable=True)
    if steps is not None:
        keep &= positions_in(steps, spans, ("run_id", "step")) >= 0
    if step is not None or steps is not None:
        keep |= _layers_of(spans, keep)
    if levels:
        keep &= spans["level"].cast(pl.String).is_in(list(levels)).to_numpy()
    return keep


def _layers_of(spans: pl.DataFrame, keep: Bools) -> Bools:
    """The layers that kept spans belong to, with what holds them."""
    mask: Bools = np.zeros(spans.height, dtype=np.bool_)
    mask[spans["layer_id"].filter(pl.Series(keep)).drop_nulls().unique().to_numpy()] = True
    held = np.flatnonzero(mask)
    for up in ancestors(spans["parent_id"].fill_null(-1).to_numpy()):
        mask[up[held][up[held] >= 0]] = True
    return mask


def _nothing(spans: pl.DataFrame, step: int | None, levels: Sequence[str], serving_phase: str | None) -> str:
    if step is not None and not (spans["step"] == step).any():
        return f"the trace has no step {step}"
    if serving_phase is not None and not levels:
        return f"step {step} is no {serving_phase} step"
    return f"the trace has no spans of level {' or '.join(levels)}{f' in step {step}' if step is not None else ''}"


def _rows(frame: pl.DataFrame, name: str, keep: Bools) -> pl.DataFrame:
    kept = frame.filter(pl.Series(keep[frame["span_id"].to_numpy()])) if "span_id" in frame.columns else frame
    if name == "attributions":
        return kept.filter(pl.Series(keep[kept["layer_id"].to_numpy()]))
    column = _REFERENCES.get(name)
    return kept if column is None else kept.with_columns(_within(kept[column], keep))


def _within(reference: pl.Series, keep: Bools) -> pl.Series:
    there = pl.Series(keep[reference.fill_null(0).to_numpy()]) & reference.is_not_null()
    return pl.select(pl.when(there).then(reference).alias(reference.name)).to_series()


def _attach_to_what_is_kept(spans: pl.DataFrame, keep: Bools) -> pl.DataFrame:
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    above = np.append(innermost(parent, keep), -1)[parent]
    layer = _within(spans["layer_id"], keep)
    lost = (pl.col("attribution").cast(pl.String) == Attribution.LAYER) & layer.is_null()
    attribution = (
        pl.when(lost).then(pl.lit(str(Attribution.MODEL_ONLY))).otherwise(pl.col("attribution").cast(pl.String))
    )
    return spans.with_columns(
        pl.select(pl.when(pl.lit(pl.Series(above >= 0))).then(pl.lit(pl.Series(above)))).to_series().alias("parent_id"),
        layer,
        attribution.cast(pl.Categorical).alias("attribution"),
    ).filter(pl.Series(keep))


# Spans with their details a bounded number at a time, as Python rows, and what writers say of each.

Row = dict[str, Any]
DETAILS: Sequence[str] = ("layers", "operators", "ranges", "kernels", "copies")
"""Tables with at most one row a span; their columns have names of their own."""


def text(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The frame with words as text."""
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def rows(trace: Trace, *conditions: pl.Expr, run_id: int | None = None, **more: pl.DataFrame) -> Iterator[Row]:
    """Every span in order with the columns of its details and `in_TABLE` for each table that has a row for it.

    `more` are frames keyed by a unique `span_id`, whose columns are added; `conditions` are of columns of `spans`. At
    most 50,000 rows are held at a time.
    """
    for frame in frames(trace, *conditions, run_id=run_id, **more):
        yield from frame.iter_rows(named=True)


def frames(
    trace: Trace, *conditions: pl.Expr, run_id: int | None = None, **more: pl.DataFrame
) -> Iterator[pl.DataFrame]:
    """What `rows` has, in frames."""
    tables: Mapping[str, pl.LazyFrame] = {name: trace.scan(name) for name in DETAILS} | {
        name: frame.lazy() for name, frame in more.items()
    }
    of_run = pl.lit(value=True) if run_id is None else pl.col("run_id") == run_id
    at_once = limits().exported_piece_spans
    for first in range(0, trace.row_count, at_once):
        inside = pl.col("span_id").is_between(first, first + at_once - 1)
        spans = trace.scan("spans").filter(inside, of_run, *conditions)
        for name, table in tables.items():
            there = table.filter(inside).with_columns(pl.lit(value=True).alias(f"in_{name}"))
            spans = spans.join(there, on="span_id", how="left", maintain_order="left")
        yield text(spans).collect()


# Categories and keys are those of PyTorch's profiler, so that tools for its traces know them.
_CATEGORIES: Mapping[str, str] = {
    Kind.STEP: "user_annotation",
    Kind.RANGE: "user_annotation",
    Kind.MODULE: "python_function",
    Kind.OPERATOR: "cpu_op",
    Kind.SYNC: "cuda_sync",
    Kind.KERNEL: "kernel",
    Kind.MEMCPY: "gpu_memcpy",
    Kind.MEMSET: "gpu_memset",
    Kind.GRAPH: "gpu_graph",
}
_DRIVER = re.compile(r"cu[A-Z]")
_LINE = re.compile(r"^(.+?):(\d+) ")
_HIP = re.compile(r"hip[A-Z]")
_ARGUMENTS: Mapping[str, str] = {
    # argument: the column it shows
    "level": "level",
    "phase": "phase",
    "step": "step",
    "layer": "own_layer",
    "attribution": "attribution",
    "device": "device_id",
    "context": "context_id",
    "stream": "stream_id",
    "correlation": "correlation_id",
    "External id": "external_id",
    "Sequence number": "sequence_number",
    "Fwd thread id": "forward_thread_id",
    "registers per thread": "registers_per_thread",
    "shared memory": "shared_bytes",
    "graph id": "graph_id",
    "graph node id": "graph_node_id",
    "bytes": "bytes",
    "path": "path",
    "allocated bytes": "allocated_bytes",
}
JSON_ARGUMENTS: Mapping[str, str] = {
    "Input Dims": "input_shapes",
    "Input type": "input_dtypes",
    "Input Strides": "input_strides",
    "Concrete Inputs": "concrete_inputs",
}
"""Names of what an operator was given, and the columns, whose texts are JSON."""


def category(row: Row) -> str:
    """Which sort of event it is, as PyTorch's profiler calls them."""
    if row["kind"] != Kind.CALL:
        return _CATEGORIES[row["kind"]]
    if row["level"] == Level.LIBRARY:
        return "library"
    if _HIP.match(row["name"]):
        return "hip_runtime"
    return "cuda_driver" if _DRIVER.match(row["name"]) else "cuda_runtime"


def name(row: Row) -> str:
    """Its name as recorded, of a module with the mark of one."""
    if row["kind"] == Kind.MODULE:
        return f"nn.Module: {row['name']}"
    return str(row["text"] or row["name"])


def arguments(row: Row) -> Iterator[tuple[str, object]]:
    """What is known of the span, each under a name; texts of `JSON_ARGUMENTS` are JSON as a rule."""
    yield from ((key, row[column]) for key, column in _ARGUMENTS.items() if row[column] is not None)
    for what in ("grid", "block"):
        sizes = [row[f"{what}_{axis}"] for axis in "xyz"]
        if None not in sizes:
            yield what, sizes
    yield from ((key, row[column]) for key, column in JSON_ARGUMENTS.items() if row[column] is not None)
    if row["source_lines"] is not None:
        yield "Call stack", _call_stack(row["source_lines"])
    yield from ((metric["metric"], metric["value"]) for metric in row["metrics"] or ())


@lru_cache(maxsize=65_536)
def _call_stack(lines: str) -> str:
    """The lines as Kineto writes those of a call."""
    return ";".join(_LINE.sub(r"\1(\2): ", line) for line in lines.split("; "))


def launches(trace: Trace) -> pl.DataFrame:
    """For device work with a launch: where and when the launch began."""
    spans = trace.scan("spans")
    launch = spans.select(
        pl.col("span_id").alias("parent_id"),
        pl.col("start_ns").alias("launch_ns"),
        pl.col("process_id").alias("launch_process_id"),
        pl.col("thread_id").alias("launch_thread_id"),
    )
    work = spans.filter(pl.col("level").cast(pl.String) == Level.KERNEL).select("span_id", "parent_id")
    return work.join(launch, on="parent_id").drop("parent_id").collect()


def twins(trace: Trace) -> pl.DataFrame:
    """For backward operators: where and when the forward twin began."""
    forward = trace.scan("spans").select(
        pl.col("span_id").alias("forward_id"),
        pl.col("start_ns").alias("forward_ns"),
        pl.col("process_id").alias("forward_process_id"),
        pl.col("thread_id").alias("forward_thread_id"),
    )
    twins = trace.scan("operators").select("span_id", "forward_id").drop_nulls()
    return twins.join(forward, on="forward_id").drop("forward_id").collect()


def own_layers(trace: Trace) -> pl.DataFrame:
    """The name of the layer that each span belongs to."""
    names = trace.scan("layers").select(pl.col("span_id").alias("layer_id"), pl.col("layer_name").alias("own_layer"))
    return trace.scan("spans").select("span_id", "layer_id").join(names, on="layer_id").drop("layer_id").collect()


def metrics(trace: Trace) -> pl.DataFrame:
    """The metrics of each span that has any."""
    pairs = pl.struct(pl.col("metric").cast(pl.String), "value").alias("metrics")
    return trace.scan("metrics").group_by("span_id", maintain_order=True).agg(pairs).collect()
