"""Copies between memories, and fills (B07)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import COUNT, DURATION, STEP
from xsp_analyze.core import AMOUNT, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.kernels.kernel_means import step_work
from xsp_analyze.frames.kernels.roofline import agreed_peaks
from xsp_model import Kind

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["copies"]

# B07: what was copied and filled, between which memories, and how fast for the link it went over.

_KEYS = ("direction", "source_kind", "destination_kind")
_COPIES = [str(Kind.MEMCPY), str(Kind.MEMSET)]
_HOST_LINK = ("Host-to-Device", "Device-to-Host")
_PEER = "Peer-to-Peer"
_NS_PER_S = 1e9


@analysis(
    "B07",
    "copies",
    needs=("copies",),
    about_layers=True,
    additive=("count", "bytes", "known_count", "duration_ns"),
    read=(
        "Pageable host memory is copied through a buffer of the driver's: pin it (pin_memory) where such rows are "
        "large; many small copies never reach the peak of the link."
    ),
    columns=(
        STEP,
        Column("direction", pl.String(), "Host-to-Device, Device-to-Host, ..., or fill for a memset.", role=Role.KEY),
        Column("source_kind", pl.String(), "Memory read from: Pageable, Pinned, Device; null: unknown.", role=Role.KEY),
        Column("destination_kind", pl.String(), "Memory written to; null: unknown.", role=Role.KEY),
        COUNT,
        Column("bytes", AMOUNT, "Bytes copied or filled, where the trace says; null: it says of none.", "byte"),
        Column("known_count", AMOUNT, "Of the count, those whose bytes are known."),
        DURATION,
        Column("byte_per_s", pl.Float64(), "Bytes over the time of those whose bytes are known.", "byte/s"),
        Column(
            "peak_byte_per_s",
            pl.Float64(),
            "Most that PCIe (host), NVLink or else PCIe (peer), or memory (half of it: read and write) allows.",
            "byte/s",
        ),
        Column("peak_share", pl.Float64(), "Rate over that peak; null: either unknown."),
    ),
    figure=FigureSpec(
        "bars", x="direction", y=("duration_ns",), title="Time in copies and memsets", color="source_kind"
    ),
)
def copies(frames: StepView) -> pl.LazyFrame:
    """One row a direction and kinds of memory, longest first, then by these names."""
    has_bytes = pl.col("bytes").is_not_null()
    sums = _with_direction(frames).group_by(*frames.by, *_KEYS, maintain_order=True).agg(
        pl.col("work_count").sum().alias("count"),
        pl.col("work_count").filter(has_bytes).sum().alias("known_count"),
        pl.when(has_bytes.any()).then((pl.col("bytes") * pl.col("work_count")).sum()).alias("bytes"),
        pl.col("work_ns").sum().alias("duration_ns"),
        pl.col("work_ns").filter(has_bytes).sum().alias("known_ns"),
    )  # fmt: skip
    rate = pl.when(pl.col("known_ns") > 0).then(quotient(pl.col("bytes") * _NS_PER_S, pl.col("known_ns")))
    return (
        sums.lazy()
        .with_columns(rate.alias("byte_per_s"), _peak(frames).alias("peak_byte_per_s"))
        .with_columns(quotient(pl.col("byte_per_s"), pl.col("peak_byte_per_s")).alias("peak_share"))
        .sort(*frames.by, -pl.col("duration_ns"), *_KEYS, nulls_last=True)
        .with_columns(pl.col(pl.Categorical).cast(pl.String))
    )


def _with_direction(frames: StepView) -> pl.DataFrame:
    """One row a copy or memset: direction and memories as text, bytes, work_ns and work_count."""
    details = frames.trace.frame("copies")
    direction = pl.when(pl.col("kind") == str(Kind.MEMSET)).then(pl.lit("fill")).otherwise(pl.col("copy_kind"))
    return (
        frames.once(step_work)
        .select("span_id", *frames.by, pl.col("kind").cast(pl.String), "work_ns", "work_count")
        .filter(pl.col("kind").is_in(_COPIES))
        .join(details, on="span_id", how="left", maintain_order="left")
        .with_columns(direction.alias("direction"))
    )


def _peak(frames: StepView) -> pl.Expr:
    """The rate that the link of each direction allows; null where unknown, or where devices differ."""
    peaks = {row["quantity"]: row["peak"] for row in agreed_peaks(frames).iter_rows(named=True)}
    dram, pcie, nvlink = (pl.lit(peaks.get(q), dtype=pl.Float64) for q in ("dram", "pcie", "nvlink"))
    direction = pl.col("direction")
    return (
        pl.when(direction.is_in(_HOST_LINK))
        .then(pcie)
        .when(direction == _PEER)
        .then(pl.coalesce(nvlink, pcie))
        .when(direction == "Device-to-Device")
        .then(dram / 2)
        .when(direction == "fill")
        .then(dram)
    )
