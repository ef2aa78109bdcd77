"""Rule 2: a device activity's parent is the runtime call with its process and correlation id, else what issued it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import Attribution, Kind, Level

if TYPE_CHECKING:
    from xsp_model.arrays import Ints

__all__ = ["Launches", "correlate"]


@dataclass(frozen=True, slots=True)
class Launches:
    """For each span the position of its launch or -1, and for device work without one the reason why."""

    launch: Ints
    orphans: pl.Series  # Categorical, null where there is a launch or no device work


def correlate(spans: pl.DataFrame) -> Launches:
    """Finds launches over raw spans; where runtime and driver both recorded one, the outermost call is it.

    Work whose launch was not recorded has in its place the span that the file itself says issued it.
    """
    at = spans.select("level", "kind", "process_id", "correlation_id", "start_ns", "duration_ns").with_row_index("at")
    calls = at.filter(
        pl.col("level") == Level.RUNTIME, pl.col("kind") == Kind.CALL, pl.col("correlation_id").is_not_null()
    )
    outermost = (
        calls.sort("start_ns", -pl.col("duration_ns"), "at", nulls_last=True)
        .unique(["process_id", "correlation_id"], keep="first", maintain_order=True)
        .select("process_id", "correlation_id", pl.col("at").cast(pl.Int64).alias("launch"))
    )
    work = at.filter(pl.col("level") == Level.KERNEL)
    found = work.join(outermost, on=["process_id", "correlation_id"], how="left", maintain_order="left")
    launch = np.full(spans.height, -1, dtype=np.int64)
    found = found.with_columns(pl.coalesce("launch", _issuers(spans)[work["at"]]))
    launch[work["at"].to_numpy()] = found["launch"].fill_null(-1).to_numpy()
    return Launches(launch, _orphans(spans.height, found, calls))


def _issuers(spans: pl.DataFrame) -> pl.Series:
    """For each span the position of the one that the file says issued it, or null."""
    stated = spans.select("issued_by_row")
    if stated["issued_by_row"].null_count() == spans.height:
        return pl.repeat(None, spans.height, dtype=pl.Int64, eager=True).alias("issuer")
    places = spans.select(pl.col("row").alias("issued_by_row"), pl.int_range(pl.len(), dtype=pl.Int64).alias("issuer"))
    return stated.join(places, on="issued_by_row", how="left", maintain_order="left")["issuer"]


def _orphans(height: int, found: pl.DataFrame, calls: pl.DataFrame) -> pl.Series:
    """Launched before the window: the id is older than the process's first call, or the work began before it."""
    first = calls.group_by("process_id").agg(
        pl.col("correlation_id").min().alias("first_id"), pl.col("start_ns").min().alias("first_ns")
    )
    lost = found.filter(pl.col("launch").is_null()).join(first, on="process_id", how="left")
    early = (pl.col("correlation_id") < pl.col("first_id")) | (pl.col("start_ns") < pl.col("first_ns"))
    reason = (
        pl.when(pl.col("correlation_id").is_null())
        .then(pl.lit(str(Attribution.ORPHAN_NO_CORRELATION)))
        .when(early)
        .then(pl.lit(str(Attribution.ORPHAN_BEFORE_WINDOW)))
        .otherwise(pl.lit(str(Attribution.ORPHAN_NO_LAUNCH)))
    )
    reasons = lost.select("at", reason.alias("reason"))
    place = pl.DataFrame({"at": pl.int_range(height, dtype=pl.UInt32, eager=True)})
    return place.join(reasons, on="at", how="left", maintain_order="left")["reason"].cast(pl.Categorical)
