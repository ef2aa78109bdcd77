"""What rocprofv3 counted of each dispatch (`--pmc`), as metrics of its kernel."""

from __future__ import annotations

import polars as pl

from xsp_ingest.counters.amd_names import AMD, unit_of
from xsp_ingest.counters.formula import Measured, canonical
from xsp_ingest.staging.raw import frame_of
from xsp_model import Finding, LedgerKind

__all__ = ["metrics", "with_counted"]

_TOOL = "rocprofv3"
_DISPATCH = ["process", "dispatch"]


def with_counted(kernels: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """The kernels, with dispatches that were counted and not traced: `--pmc` alone records their times as well."""
    unseen = counted.unique(_DISPATCH, keep="first", maintain_order=True).join(
        kernels, on=_DISPATCH, how="anti", nulls_equal=True
    )
    return pl.concat([kernels, unseen.select(kernels.columns)])


def metrics(kernels: pl.DataFrame, counts: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    """The staging table `metrics`, and what is of no kernel; a counter's instances are added up, as the tool does."""
    if counts.is_empty():
        return frame_of("metrics"), []
    sums = counts.group_by(*_DISPATCH, "counter", maintain_order=True).agg(pl.col("value").sum())
    of_kernels = kernels.select("row", *_DISPATCH).drop_nulls("dispatch").unique(_DISPATCH, keep="first")
    placed = sums.drop_nulls("counter").join(of_kernels, on=_DISPATCH, how="inner", nulls_equal=True)
    lost = Finding(LedgerKind.COUNTERS_OF_NO_KERNEL, count=sums.height - placed.height)
    if placed.is_empty():
        return frame_of("metrics"), [lost]
    wide = placed.sort("row", "counter").pivot("counter", index="row", values="value", maintain_order=True)
    names = sorted(name for name in wide.columns if name != "row")
    measured = Measured(wide.select("row", *names), {name: unit_of(name) for name in names}, _TOOL)
    return frame_of("metrics", canonical(measured, AMD)), [lost]
