"""`nsys stats`' summary of unified memory by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.nsys.statistics import integer, name_column
from xsp_analyze.analyses.nsys.unified_memory import by_page, hexadecimal
from xsp_analyze.core import Column, analysis

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["um_sum"]


def _megabytes(name: str, doc: str, header: str, unit: str = "byte") -> Column:
    return Column(name, pl.Int64(), doc, unit, header=header, decimals=3)


@analysis(
    "um_sum",
    "Unified memory by page",
    needs=("unified memory",),
    columns=(
        name_column("address", "Where the block begins.", "Virtual Address"),
        _megabytes("to_device_bytes", "Bytes that moved from host to device.", "HtoD Migration size (MB)"),
        _megabytes("to_host_bytes", "Bytes that moved from device to host.", "DtoH Migration size (MB)"),
        integer("host_faults", "Faults of the host.", "CPU Page Faults"),
        integer("device_faults", "Faults of devices.", " GPU Page Faults"),
        _megabytes("byte_per_s", "Bytes moved per second that moving took.", "Migration Throughput (MB/s)", "byte/s"),
    ),
    by_step=False,
)
def um_sum(frames: StepView) -> pl.LazyFrame:
    """One row an address, fastest migrations first, then by address; nsys stops at ten rows unless told otherwise."""
    rows = by_page(frames.of_trace).sort(-pl.col("byte_per_s"), "address", nulls_last=True).collect()
    return rows.with_columns(hexadecimal(rows["address"])).lazy()
