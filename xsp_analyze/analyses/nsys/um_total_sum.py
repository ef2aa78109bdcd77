"""`nsys stats`' totals of unified memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import integer, name_column
from xsp_analyze.analyses.nsys.unified_memory import by_page, hexadecimal
from xsp_analyze.core import Column, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["um_total_sum"]

_SUMS = ("to_device_bytes", "to_host_bytes", "host_faults", "device_faults")


@analysis(
    "um_total_sum",
    "Unified memory in all",
    needs=("unified memory",),
    key=(),  # a single row
    columns=(
        *(
            Column(name, pl.Int64(), f"Bytes that moved from {way}; null: none did.", "byte", header=header, decimals=3)
            for name, way, header in (
                ("to_device_bytes", "host to device", "Total HtoD Migration Size (MB)"),
                ("to_host_bytes", "device to host", "Total DtoH Migration Size (MB)"),
            )
        ),
        integer("host_faults", "Faults of the host.", "Total CPU Page Faults"),
        integer("device_faults", "Faults of devices; null: none.", "Total GPU PageFaults"),
        name_column(
            "least_address", "Least address that a page moved from, or was missed at.", "Minimum Virtual Address"
        ),
        name_column("greatest_address", "Greatest one.", "Maximum Virtual Address"),
    ),
    by_step=False,
)
def um_total_sum(frames: StepView) -> pl.LazyFrame:
    """One row; nsys leaves the addresses open unless there were migrations both ways and faults on both sides."""
    sums = (pl.when(pl.col(c).is_not_null().any()).then(pl.col(c).sum()).alias(c) for c in _SUMS)
    address = pl.col("address")
    ends = address.min().alias("least_address"), address.max().alias("greatest_address")
    row = by_page(frames.of_trace).select(*sums, *ends).collect()
    texts = (hexadecimal(row[name]) for name in ("least_address", "greatest_address"))
    return row.with_columns(pl.col("host_faults").fill_null(0), *texts).lazy()
