"""What the processes of a timeline stand for: an executor's lanes, a device's streams, or its tensors."""

from __future__ import annotations

import polars as pl

__all__ = ["COPIES", "OPERATORS", "STREAM", "STREAMS", "TENSORS", "lanes"]

OPERATORS, STREAM, STREAMS, COPIES, TENSORS = "operators", "stream", "all streams", "copies", "tensors"
_KIND = r"(?i)(?:^|[/:])(?:device:)?([a-z_]*[a-z]):(\d{1,6})(?:/(stream|memcpy)[^ ]*)?$"
_STREAM = r"/stream:(\d{1,9})"


def lanes(metadata: pl.DataFrame) -> pl.DataFrame:
    """One row a process: pid, `role`, device kind (`CPU`, `GPU`), device_id of a GPU, stream_id.

    A GPU has three kinds of processes: its operators as the host's executor ran them, one for each stream, and two
    that repeat what is in those, `stream:all` and `memcpy`.
    """
    named = metadata.filter(pl.col("name") == "process_name", pl.col("pid").is_not_null()).select(
        "pid", pl.col("node").alias("label")
    )
    device = pl.col("label").str.replace(r" (?:Compute|Tensors)$", "")
    of_tensors = pl.col("label").str.ends_with(" Tensors")
    kind = device.str.extract(_KIND, 1).str.to_uppercase()
    role = (
        pl.when(of_tensors)
        .then(pl.lit(TENSORS))
        .when(device.str.contains("/stream:all", literal=True))
        .then(pl.lit(STREAMS))
        .when(device.str.contains(_STREAM))
        .then(pl.lit(STREAM))
        .when(device.str.contains("/memcpy", literal=True))
        .then(pl.lit(COPIES))
        .when(pl.col("label").str.ends_with(" Compute"))
        .then(pl.lit(OPERATORS))
    )
    return named.select(
        "pid",
        device.alias("device"),
        role.alias("role"),
        kind.alias("device_kind"),
        pl.when(kind == "GPU").then(device.str.extract(_KIND, 2).cast(pl.Int64, strict=False)).alias("device_id"),
        device.str.extract(_STREAM).cast(pl.Int64, strict=False).alias("stream_id"),
    ).unique("pid", keep="last", maintain_order=True)
