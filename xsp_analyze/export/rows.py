"""Spans with their details a bounded number at a time, as Python rows, and what writers say of each."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_model import Kind, Level
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_model import Trace

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
    "own_layers",
    "rows",
    "text",
    "twins",
]

# Spans with their details a bounded number at a time, as Python rows for writers.

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
    """As `rows`, in frames."""
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


# What writers say of a span beside its times: a category, its name as recorded, and what is known of it.
#
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
