"""A small sound trace for the model's tests, and the rows it is made of."""

from __future__ import annotations

import polars as pl

from xsp_model import Finding, LedgerKind, Trace, TraceBuilder

__all__ = ["sample_builder", "sample_trace"]

_SPANS = {
    #              step      layer     forward     backward    call       kernel
    "span_id": [90, 80, 70, 60, 50, 40],
    "parent_id": [None, 90, 80, 90, 70, 50],
    "level": ["model", "layer", "operator", "operator", "runtime", "kernel"],
    "kind": ["step", "module", "operator", "operator", "call", "kernel"],
    "name": ["ProfilerStep#1", "Linear_0", "aten::mm", "MmBackward0", "cudaLaunchKernel", "gemm"],
    "start_ns": [0, 10, 20, 600, 30, 100],
    "duration_ns": [1000, 500, 400, 100, 50, 300],
    "process_id": [1, 1, 1, 1, 1, 1],
    "thread_id": [1, 1, 1, 1, 1, None],
    "device_id": [None, None, None, None, None, 0],
    "stream_id": [None, None, None, None, None, 7],
    "correlation_id": [None, None, None, None, 5, 5],
    "layer_id": [None, None, None, None, None, 80],
    "attribution": [None, None, None, None, None, "layer"],
}


def sample_builder() -> TraceBuilder:
    """Six spans of one run, with ids that mean nothing and rows in no order."""
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [123], "source_path": ["trace.json"]}))
    builder.add("spans", pl.DataFrame(_SPANS).with_columns(run_id=pl.lit(0))[::-1])
    builder.add(
        "layers",
        pl.DataFrame(
            {
                "span_id": [80],
                "layer_index": [0],
                "layer_name": ["Linear_0"],
                "layer_type": ["Linear"],
                "source": ["module"],
                "is_container": [False],
            }
        ),
    )
    operators = {"span_id": [60, 70], "sequence_number": [3, 3], "forward_id": [70, None]}
    builder.add("operators", pl.DataFrame(operators))
    builder.add("kernels", pl.DataFrame({"span_id": [40], "grid_x": [4], "block_x": [128]}))
    builder.note([Finding(LedgerKind.NO_END, "one thing was odd", 2)])
    return builder


def sample_trace() -> Trace:
    """The trace of `sample_builder`; ids in it are 0 step, 1 layer, 2 forward, 3 call, 4 kernel, 5 backward."""
    return sample_builder().build()
