"""One wide row a span while planes are read, and how the rows are split into the staging tables in the end."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.xplane.instructions import WORK
from xsp_ingest.staging.cuda_names import COPY_DIRECTIONS
from xsp_ingest.staging.raw import RAW_TABLES, frame_of
from xsp_ingest.staging.tensorflow_work import tensorflow_metrics
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["is_backward", "tables", "wide"]

_NUMBER = r"(?:^|\s){}:(\d{{1,18}})"
_NUMBERS = {
    "registers_per_thread": "regs",
    "static_shared_bytes": "static_shared",
    "dynamic_shared_bytes": "dynamic_shared",
}
_SHARED = ("shm", "group_mem")  # what TensorFlow 2.1, and ROCm, write: static and dynamic together
_CATEGORY = r"(?:^|\s){}:([A-Za-z_]+)"
_MEMORY = {"pageable": "Pageable", "pinned": "Pinned", "device": "Device", "array": "Array", "managed": "Managed"}


def kernel_facts(kernels: pl.DataFrame) -> pl.DataFrame:
    """How kernels were launched, from texts as `regs:38 shm:0 grid:160,1,1 block:1024,1,1`."""
    text = pl.col("kernel_details")
    numbers = [_number(text, key).alias(column) for column, key in _NUMBERS.items()]
    shared = pl.coalesce(
        *(_number(text, key) for key in _SHARED), pl.col("static_shared_bytes") + pl.col("dynamic_shared_bytes")
    )
    sizes = [
        text.str.extract(rf"(?:^|\s){what}:(\d+),(\d+),(\d+)", group)
        .cast(pl.Int64, strict=False)
        .alias(f"{what}_{axis}")
        for what in ("grid", "block")
        for group, axis in enumerate("xyz", start=1)
    ]
    return (
        kernels.with_columns(*numbers, *sizes)
        .with_columns(shared.alias("shared_bytes"))
        .select(
            "row",
            *(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"),
            *_NUMBERS,
            "shared_bytes",
            *(pl.when(pl.col(name) > 0).then(pl.col(name)) for name in ("graph_id", "graph_node_id")),
            "captured_in_row",
        )
    )


def copy_facts(copies: pl.DataFrame) -> pl.DataFrame:
    """Bytes and kinds of memory, from texts as `kind_src:pinned kind_dst:device size:512 dest:0 async:1`."""
    text, name = pl.col("memcpy_details"), pl.col("name").cast(pl.String)
    size = pl.coalesce(_number(text, "size"), _number(text, "num_bytes"))
    direction = name.str.extract(r"(?i)^memcpy\s?(\w\w?o?\w)\b")
    copy_kind = pl.coalesce(
        direction.replace_strict(COPY_DIRECTIONS, default=None, return_dtype=pl.String),
        text.str.extract(_CATEGORY.format("kind")).replace_strict(
            COPY_DIRECTIONS, default=None, return_dtype=pl.String
        ),
    )
    ends = [
        pl.coalesce(text.str.extract(_CATEGORY.format(key)), *others)
        .str.to_lowercase()
        .replace_strict(_MEMORY, default=None, return_dtype=pl.String)
        .alias(column)
        for column, key, others in (
            ("source_kind", "kind_src", ()),
            (
                "destination_kind",
                "kind_dst",
                (pl.when(pl.col("kind") == "memset").then(text.str.extract(_CATEGORY.format("kind"))),),
            ),
        )
    ]
    return copies.select("row", pl.when(size > 0).then(size).alias("bytes"), copy_kind.alias("copy_kind"), *ends)


def _number(text: pl.Expr, key: str) -> pl.Expr:
    return text.str.extract(_NUMBER.format(key)).cast(pl.Int64, strict=False)


_I, _S, _W = pl.Int64(), pl.String(), pl.Categorical()
WIDE: Mapping[str, pl.DataType] = {
    **{name: kind for name, kind in RAW_TABLES["spans"].items() if name not in {"row", "issued_by_row"}},
    "layer_type": _S,  # of an operator or a layer: its type in the framework
    "place": _I,  # of a layer: its position among the layers of the model
    "path": _S,  # of a layer: names from the outermost around it down to it
    "shape": _S,  # of an operator: its inputs as `(float32[8,16];int32[])`
    "output_shape": _W,  # of an operator of TensorFlow: its result, as JSON
    "output_dtype": _W,
    "is_backward": pl.Boolean(),
    "flops": pl.Float64(),  # of an operator, as XLA models it
    "bytes_accessed": pl.Float64(),
    **dict.fromkeys(WORK, pl.Float64()),  # of an operator, by the sizes in its program
    "precision": _W,  # of an operator: what its products are computed in, where that is not FP32
    "input_shapes": _W,  # of an operator: what its program says, as JSON
    "input_dtypes": _W,
    "source_lines": _W,
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
_BY_XLA, _BY_SHAPES = "modelled by XLA", "modelled by HLO shapes"
_INPUT = re.compile(r"(\w+)\[((?:\d{1,18}(?:,\d{1,18})*)?)\]")


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
    facts = _operators(operators)
    return {
        "spans": frame_of("spans", _issuers(rows)),
        "operators": frame_of("operators", facts),
        "layers": frame_of("layers", _layers(rows)),
        "ranges": frame_of("ranges", _ranges(rows)),
        "kernels": frame_of("kernels", kernel_facts(_captures(rows).filter(pl.col("kind") == str(Kind.KERNEL)))),
        "copies": frame_of("copies", copy_facts(rows.filter(pl.col("kind").is_in(["memcpy", "memset"])))),
        "metrics": frame_of("metrics", pl.concat([_metrics(operators), _framework_metrics(operators, facts)])),
    }


def _issuers(rows: pl.DataFrame) -> pl.DataFrame:
    return _referring(rows, "issued_by")


def _captures(rows: pl.DataFrame) -> pl.DataFrame:
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
    joined = rows.join(shapes, on="shape", how="left", maintain_order="left", suffix="_framework")
    texts_of = [
        pl.coalesce(pl.col(name).cast(pl.String), f"{name}_framework") for name in ("input_shapes", "input_dtypes")
    ]
    return joined.select("row", *texts_of, "source_lines", pl.when(is_backward()).then(1).alias("forward_thread_id"))


def _ranges(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("kind") == str(Kind.RANGE)).select(
        "row",
        pl.col("name").cast(pl.String).alias("text"),
        pl.lit("Annotation").alias("style"),
    )


def _metrics(operators: pl.DataFrame) -> pl.DataFrame:
    """The work of operators: as XLA's cost model says where the file holds that, else by the sizes in the program.

    XLA counts all arithmetic in one, and what is read and written: where the program is there as well, it tells whether
    there are products, and how much of the bytes is written.
    """
    is_xlas = pl.any_horizontal(pl.col("flops", "bytes_accessed") > 0).fill_null(value=False)
    has_products = (pl.col("modelled_flop") > 0).fill_null(value=True)
    read = pl.col("bytes_accessed") - pl.col("modelled_written_bytes")
    xla = operators.filter(is_xlas).select(
        "row",
        "precision",
        pl.when(has_products).then("flops").otherwise(0.0).alias("modelled_flop"),
        pl.when(~has_products).then("flops").alias("modelled_vector_flop"),
        read.alias("modelled_read_bytes"),
        pl.when(read.is_not_null()).then("modelled_written_bytes").alias("modelled_written_bytes"),
        pl.when(read.is_null()).then("bytes_accessed").alias("modelled_bytes"),
        "modelled_bus_bytes",
    )
    return pl.concat([*_metric_rows(xla, _BY_XLA), *_metric_rows(operators.filter(~is_xlas), _BY_SHAPES)])


def _framework_metrics(operators: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """The work of TensorFlow's operators, by the inputs that it recorded."""
    recorded = operators.filter(pl.col("shape").is_not_null()).select(
        "row", "layer_type", "output_shape", "output_dtype"
    )
    return tensorflow_metrics(recorded.join(facts.select("row", "input_shapes", "input_dtypes"), on="row", how="left"))


def _metric_rows(rows: pl.DataFrame, source: str) -> Iterator[pl.DataFrame]:
    """One row a metric that is known; where an operator has no arithmetic but products, that is left out.

    Flop of products bear the precision in their name, where it is known: `modelled_flop_bf16`.
    """
    narrow = pl.when(pl.col("modelled_flop") > 0).then(pl.col("precision").cast(pl.String))
    for metric in (*WORK, "modelled_bytes"):
        if metric in rows.columns:
            is_kept = pl.col(metric) > 0 if metric == "modelled_vector_flop" else pl.col(metric) >= 0
            name = pl.concat_str(pl.lit(metric), narrow, separator="_", ignore_nulls=True)
            yield rows.filter(is_kept).select(
                "row",
                (name if metric == "modelled_flop" else pl.lit(metric)).alias("metric"),
                pl.col(metric).alias("value"),
                pl.lit("flop" if metric.endswith("flop") else "byte").alias("unit"),
                pl.lit(source).alias("source"),
            )
