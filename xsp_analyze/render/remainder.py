"""What the rows add up to that a table does not show: sums, where a sum over rows says something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.core import Result

__all__ = ["ADDITIVE", "sums_of_the_rest"]

_WORK = ("flop_count", "dram_read_bytes", "dram_write_bytes")
_NSYS = ("share", "total_ns", "count")

ADDITIVE: Mapping[str, tuple[str, ...]] = {
    "A02": ("call_count", "latency_ns", "model_share", "allocated_bytes"),
    "A03": ("latency_ns",),
    "A04": ("allocated_bytes",),
    "A05": ("count", "share"),
    "A06": ("latency_ns", "share"),
    "A07": ("allocated_bytes", "share"),
    "A08": ("count", "duration_ns", *_WORK),
    "A10": ("count", "duration_ns", "model_share", *_WORK),
    "A11": ("layer_latency_ns", "kernel_count", "kernel_duration_ns", "non_kernel_ns", *_WORK),
    "A12": _WORK,
    "A13": ("layer_latency_ns", "kernel_duration_ns", "non_kernel_ns"),
    "B04": ("count", "launched", "starved_ns"),
    "B05": ("count", "self_host_ns", "device_sum_ns", "activity_count"),
    "B06": ("self_host_ns", "self_device_sum_ns", "self_activity_count"),
    "B07": ("count", "bytes", "known_count", "duration_ns"),
    "B10": ("piece_count", "duration_ns"),
    "B11": ("count", "modelled_count", "modelled_flop", "modelled_bytes", "device_sum_ns", "dram_bytes"),
    "cuda_gpu_kern_sum": _NSYS,
    "cuda_gpu_kern_gb_sum": _NSYS,
    "cuda_api_sum": _NSYS,
    "cuda_gpu_mem_time_sum": _NSYS,
    "cuda_gpu_mem_size_sum": ("total_bytes", "count"),
    "cuda_gpu_trace": ("duration_ns", "bytes"),
}  # fmt: skip
"""Of each analysis the columns whose values no two rows count twice; means, peaks and what nests are not among them."""


def sums_of_the_rest(result: Result, shown: int) -> Mapping[str, int | float | None]:
    """The sums over the rows after the first `shown`, by column; null where one of these values is unknown.

    Shares of several steps, which stand in one table where each is answered for itself, are left out.
    """
    rest = result.table.slice(shown)
    several = "step" in rest.columns
    names = [
        name
        for name in ADDITIVE.get(result.analysis.id, ())
        if name in rest.columns and not (several and name.endswith("share"))
    ]
    if not names or rest.is_empty():
        return {}
    sums = (pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name) for name in names)
    return rest.select(sums).row(0, named=True)
