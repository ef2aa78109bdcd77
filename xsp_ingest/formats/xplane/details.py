"""What the texts `kernel_details` and `memcpy_details` say of device work."""

from __future__ import annotations

import polars as pl

from xsp_ingest.staging.cuda_enums import COPY_DIRECTIONS

__all__ = ["copy_facts", "kernel_facts"]

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
