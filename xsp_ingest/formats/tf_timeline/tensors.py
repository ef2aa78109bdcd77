"""What a timeline says of tensors: their shapes, where they were made, and how much memory is in use."""

from __future__ import annotations

import json
import re

import polars as pl

from xsp_ingest.formats.tf_timeline.lanes import TENSORS
from xsp_ingest.staging.raw import frame_of

__all__ = ["memory", "tensors"]

_TYPE = re.compile(r"dtype: DT_(\w+)")
_SIZE = re.compile(r"size: (-?\d{1,18})")
_SHAPE = re.compile(r"shape \{(.*?)\n\}", re.DOTALL)
_REQUESTED = r"requested_bytes: (\d{1,18})"
_DEVICE = r"(?i)^GPU_(\d{1,6})_"


def tensors(operators: pl.DataFrame, snapshots: pl.DataFrame) -> pl.DataFrame:
    """One row an operator (`row`) whose inputs' tensors are all described: their shapes and types as JSON.

    And those of the tensor that it made, `output_shape` and `output_dtype`; null: not described.
    """
    described = {name: _described(text) for name, text in snapshots.select("name", "snapshot").drop_nulls().iter_rows()}
    rows = [
        (
            row,
            json.dumps([described[i][0] for i in inputs]),
            json.dumps([described[i][1] for i in inputs]),
            json.dumps(described[node][0]) if node in described else None,
            described[node][1] if node in described else None,
        )
        for row, node, inputs in operators.select("row", "node", "inputs").iter_rows()
        if inputs and all(i in described for i in inputs)
    ]
    texts = ("input_shapes", "input_dtypes", "output_shape", "output_dtype")
    schema = {"row": pl.Int64(), **dict.fromkeys(texts, pl.String())}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _described(text: str) -> tuple[list[int], str]:
    shape, dtype = _SHAPE.search(text), _TYPE.search(text)
    return [int(size) for size in _SIZE.findall(shape[1])] if shape else [], dtype[1].lower() if dtype else ""


def memory(
    created: pl.DataFrame, snapshots: pl.DataFrame, counters: pl.DataFrame, lanes: pl.DataFrame, process_id: int
) -> pl.DataFrame:
    """The staging table `allocations`: each tensor's bytes in the lane that made it, and memory in use over time."""
    requested = pl.col("snapshot").str.extract(_REQUESTED).cast(pl.Int64, strict=False)
    sizes = snapshots.select("pid", "id", requested.alias("bytes")).unique(
        ["pid", "id"], keep="first", maintain_order=True
    )
    compute = lanes.filter(pl.col("role") != TENSORS).select("device", pl.col("pid").alias("compute_pid"), "device_id")
    made = (
        created.drop_nulls("start_ns")
        .join(sizes, on=["pid", "id"], how="inner", maintain_order="left")
        .join(
            lanes.filter(pl.col("role") == TENSORS).select("pid", "device"),
            on="pid",
            how="inner",
            maintain_order="left",
        )
        .join(compute, on="device", how="inner", maintain_order="left")
        .filter(pl.col("bytes") > 0)
        .select(thread(pl.col("compute_pid"), pl.col("tid")), pl.col("start_ns").alias("time_ns"), "device_id", "bytes")
    )
    in_use = counters.drop_nulls(["start_ns", "value"]).select(
        pl.col("start_ns").alias("time_ns"),
        pl.col("name").str.extract(_DEVICE).cast(pl.Int64, strict=False).alias("device_id"),
        pl.col("value").alias("allocated_bytes"),
    )
    both = pl.concat([made, in_use], how="diagonal")
    return frame_of("allocations", both.with_columns(pl.lit(process_id, pl.Int64).alias("process_id")))


def thread(pid: pl.Expr, tid: pl.Expr) -> pl.Expr:
    """A number for a lane: timelines number lanes anew in each of their processes."""
    return (pid * (1 << 20) + tid).alias("thread_id")
