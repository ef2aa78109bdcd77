"""TensorFlow's own operators, by the names of their nodes, with the tensors that they made memory for."""

from __future__ import annotations

import polars as pl

from xsp_ingest.formats.xplane.host import Role
from xsp_ingest.formats.xplane.wide import wide
from xsp_model import Kind, Level

__all__ = ["framework_rows"]

_THREAD = ("process_id", "thread_id")
_OUTPUT = "output"
_TYPES = {  # of tensorflow/core/framework/types.proto
    1: "float",
    2: "double",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    14: "bfloat16",
    17: "uint16",
    18: "complex128",
    19: "half",
    22: "uint32",
    23: "uint64",
}
_SIZES = r"^\[(?:\d{1,18}(?:,\d{1,18})*)?\]$"


def framework_rows(events: pl.DataFrame) -> pl.DataFrame:
    """Wide rows, with sizes and type of the result of operators that made one."""
    operators = events.filter(pl.col("role") == Role.OPERATOR).with_row_index("operator_row")
    made = _made_outputs(operators, events)
    rows = operators.join(made, on="operator_row", how="left", maintain_order="left").select(
        *_THREAD,
        "start_ns",
        "duration_ns",
        pl.col("operator").alias("name"),
        pl.col("operator_type").alias("layer_type"),
        "shape",
        "output_shape",
        "output_dtype",
    )
    return wide(rows, Level.OPERATOR, Kind.OPERATOR)


def _made_outputs(operators: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """operator_row, output_shape (JSON) and output_dtype of operators in which memory was made for one result.

    An operator that writes into its input's memory makes none.
    """
    around = operators.select(
        *_THREAD, "start_ns", "operator_row", "operator", (pl.col("start_ns") + pl.col("duration_ns")).alias("until_ns")
    ).sort("start_ns")
    sizes = pl.col("shape").cast(pl.String)
    results = (
        events.filter(pl.col("role") == Role.MEMORY, pl.col("region_type").cast(pl.String) == _OUTPUT)
        .filter(sizes.str.contains(_SIZES))
        .select(*_THREAD, "start_ns", pl.col("tf_op").cast(pl.String).alias("operator"), sizes, "data_type")
        .sort("start_ns")
    )
    return (
        results.join_asof(around, on="start_ns", by=[*_THREAD, "operator"], check_sortedness=False)
        .filter(pl.col("start_ns") < pl.col("until_ns"))
        .group_by("operator_row", maintain_order=True)
        .agg(
            pl.len().alias("results"),
            pl.col("shape").first().alias("output_shape"),
            pl.col("data_type")
            .first()
            .replace_strict(_TYPES, default=None, return_dtype=pl.String)
            .alias("output_dtype"),
        )
        .filter(pl.col("results") == 1)
        .drop("results")
    )
