"""One wide row a span while planes are read, and how the rows are split into the staging tables in the end."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.xplane.details import copy_facts, kernel_facts
from xsp_ingest.staging.raw import RAW_TABLES, frame_of
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["WIDE", "is_backward", "tables", "wide"]

_I, _S, _W = pl.Int64(), pl.String(), pl.Categorical()
WIDE: Mapping[str, pl.DataType] = {
    **{name: kind for name, kind in RAW_TABLES["spans"].items() if name not in {"row", "issued_by_row"}},
    "layer_type": _S,  # of an operator or a layer: its type in the framework
    "place": _I,  # of a layer: its position among the layers of the model
    "path": _S,  # of a layer: names from the outermost around it down to it
    "shape": _S,  # of an operator: its inputs as `(float32[8,16];int32[])`
    "is_backward": pl.Boolean(),
    "flops": pl.Float64(),  # of an operator, as XLA models it
    "bytes_accessed": pl.Float64(),
    "kernel_details": _S,
    "memcpy_details": _S,
    "graph_id": _I,
    "graph_node_id": _I,
    "key": _I,  # of an operator: number by which work without a recorded launch refers to it
    "issued_by_key": _I,
    "captured_in_key": _I,  # of a replayed kernel: the operator that it is of
}
"""The columns of a wide row; those of `spans` mean the same."""
_BACKWARD = r"(?:^|/)gradients?(?:_tape)?(?:_\d+)?/|transpose\("
_MODELLED_BY = "modelled by XLA"
_INPUT = re.compile(r"(\w+)\[([\d,]*)\]")


def wide(rows: pl.DataFrame, level: Level, kind: Kind) -> pl.DataFrame:
    """The rows with every wide column; those absent are null."""
    labelled = rows.with_columns(level=pl.lit(str(level)), kind=pl.lit(str(kind)))
    return labelled.select(
        pl.col(name).cast(type_) if name in labelled.columns else pl.lit(None, type_).alias(name)
        for name, type_ in WIDE.items()
    )


def tables(parts: Iterable[pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The staging tables of the wide rows, except those that hold no spans' facts."""
    rows = pl.concat(list(parts)).with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    operators = rows.filter(pl.col("kind") == str(Kind.OPERATOR))
    return {
        "spans": frame_of("spans", _issued(rows)),
        "operators": frame_of("operators", _operators(operators)),
        "layers": frame_of("layers", _layers(rows)),
        "ranges": frame_of("ranges", _ranges(rows)),
        "kernels": frame_of("kernels", kernel_facts(_captured(rows).filter(pl.col("kind") == str(Kind.KERNEL)))),
        "copies": frame_of("copies", copy_facts(rows.filter(pl.col("kind").is_in(["memcpy", "memset"])))),
        "metrics": frame_of("metrics", _metrics(operators)),
    }


def _issued(rows: pl.DataFrame) -> pl.DataFrame:
    return _referring(rows, "issued_by")


def _captured(rows: pl.DataFrame) -> pl.DataFrame:
    return _referring(rows, "captured_in")


def _referring(rows: pl.DataFrame, relation: str) -> pl.DataFrame:
    """The rows with that of the operator to whose key each refers."""
    operators = rows.filter(pl.col("key").is_not_null()).select(
        pl.col("key").alias(f"{relation}_key"), pl.col("row").alias(f"{relation}_row")
    )
    return rows.join(operators, on=f"{relation}_key", how="left", maintain_order="left")


def _layers(rows: pl.DataFrame) -> pl.DataFrame:
    is_recorded = pl.any_horizontal(pl.col("layer_type", "place", "path").is_not_null())
    return rows.filter(is_recorded).select("row", "layer_type", "path", pl.col("place").alias("sequence_index"))


def is_backward() -> pl.Expr:
    """Whether an operator is one of the backward pass: as its row says, else as its name does."""
    return pl.col("is_backward").fill_null(pl.col("name").cast(pl.String).str.contains(_BACKWARD))


def _operators(rows: pl.DataFrame) -> pl.DataFrame:
    """Shapes where recorded; an operator that the framework named as a gradient counts as backward."""
    texts = rows["shape"].drop_nulls().unique(maintain_order=True)
    inputs = [_INPUT.findall(text) for text in texts]
    columns = {
        "shape": texts,
        "input_shapes": [json.dumps([[int(n) for n in dims.split(",") if n] for _, dims in each]) for each in inputs],
        "input_dtypes": [json.dumps([dtype for dtype, _ in each]) for each in inputs],
    }
    shapes = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
    return rows.join(shapes, on="shape", how="left", maintain_order="left").select(
        "row", "input_shapes", "input_dtypes", pl.when(is_backward()).then(1).alias("forward_thread_id")
    )


def _ranges(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("kind") == str(Kind.RANGE)).select(
        "row",
        pl.col("row").alias("range_id"),
        pl.col("name").cast(pl.String).alias("text"),
        pl.lit("Annotation").alias("style"),
    )


def _metrics(operators: pl.DataFrame) -> pl.DataFrame:
    """What XLA's cost model says of an operator."""
    units = {"flops": ("flop_count", "flop"), "bytes_accessed": ("bytes_accessed", "byte")}
    parts = [
        operators.filter(pl.col(column) > 0).select(
            "row",
            pl.lit(metric).alias("metric"),
            pl.col(column).alias("value"),
            pl.lit(unit).alias("unit"),
            pl.lit(_MODELLED_BY).alias("source"),
        )
        for column, (metric, unit) in units.items()
    ]
    return pl.concat(parts)
