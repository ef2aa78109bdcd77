"""Rules that hold operators against what their shapes ask of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as least
from xsp_analyze.findings.advice import Basis, Evidence, Observation, rule
from xsp_analyze.findings.context import Circumstance
from xsp_analyze.frames.device_peaks import BANDWIDTH
from xsp_analyze.render.units import duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["far_from_peak", "wide_types"]

_MAX_EVIDENCE = 3
_NS_PER_S = 1e9
_RATES = {
    "float": ("tf32", "fp32"),
    "c10::BFloat16": ("bf16_tensor",),
    "c10::Half": ("fp16_tensor", "fp16"),
    "double": ("fp64_tensor", "fp64"),
}
"""The rate that products of a type can reach: the first that is known of the device."""


def _operators(facts: Facts) -> pl.DataFrame:
    """Rows of B11 whose work is modelled, each with `dtype`, that of its first input in most calls, and `busy_ns`."""
    table = facts.table("B11")
    if table is None:
        return pl.DataFrame(schema={"operator": pl.String, "dtype": pl.String, "busy_ns": pl.Float64})
    trace = facts.frames.trace
    inputs = trace.scan("operators").select("span_id", "input_dtypes").drop_nulls().collect()
    names = trace.scan("spans").select("name").collect().to_series().gather(inputs["span_id"]).cast(pl.String)
    types = (
        pl.DataFrame({"operator": names, "dtype": inputs["input_dtypes"].str.extract(r'^\["([^"]+)"')})
        .group_by("operator", "dtype")
        .len()
        .sort("operator", "len", "dtype", descending=[False, True, False])
        .unique("operator", keep="first", maintain_order=True)
        .drop("len")
    )
    busy = (pl.col("device_sum_ns") * pl.col("modelled_share")).alias("busy_ns")
    return table.with_columns(busy).filter(pl.col("busy_ns") > 0).join(types, on="operator", how="left")


def _rate(facts: Facts) -> pl.Expr:
    """The peak rate of each operator's type on these devices, in flop/s; null where it is not known."""
    peaks = facts.context.peaks
    of_type = {dtype: next((peaks[rate] for rate in rates if rate in peaks), None) for dtype, rates in _RATES.items()}
    return pl.col("dtype").replace_strict(of_type, default=None, return_dtype=pl.Float64)


@rule(
    "far-from-peak",
    "The device is busy, and far from its peak",
    fires=f"The busiest device works for at least {least.BUSY_SHARE:.0%} of a step, and its matrix products and"
    f" convolutions reach less than {least.FAR_FROM_PEAK:.0%} of what their shapes would allow at its peaks; at the"
    f" peak a step would be at least {least.FAR_SHARE:.0%} shorter.",
    why="A device that is busy is not one that is used well: kernels for small or oddly shaped products, in a layout or"
    " a type that its units do not like, keep it busy too.",
    gain="Time of the products whose shapes are known, less the longer of their flop at the peak rate of their type and"
    " their bytes at the bandwidth of memory.",
    do="Look at the shapes of the slowest products: make batches larger, pad dimensions to multiples of 64, use"
    " channels_last for convolutions, let libraries search (cudnn.benchmark, max-autotune), use a narrower type.",
    source="Our choice; tuned products reach 70 to 90 % of the peak. Peaks as listed by xsp devices.",
    basis=Basis.MODELLED,
    needs=(Circumstance.TIMELINE, Circumstance.PEAKS),
    explains=("dominant-kernel",),
)
def far_from_peak(facts: Facts) -> Iterator[Observation]:
    """Operators with products, against the roof of their type."""
    if facts.devices.is_empty() or facts.share(facts.latency_ns - facts.idle_ns) < least.BUSY_SHARE:
        return
    rows = _operators(facts)
    bandwidth = facts.context.peaks.get(BANDWIDTH)
    if rows.is_empty() or bandwidth is None:
        return
    moving = (pl.col("modelled_bytes").fill_null(0) * _NS_PER_S / bandwidth).alias("moving_ns")
    computing = (pl.col("modelled_flop") * _NS_PER_S / _rate(facts)).alias("computing_ns")
    products = rows.with_columns(moving, computing).filter(pl.col("modelled_flop") > 0).drop_nulls("computing_ns")
    best = products.select(pl.max_horizontal("computing_ns", "moving_ns")).to_series()
    time = float(products["busy_ns"].sum())
    reached = float(best.sum()) / time if time else 1.0
    ranks = max(len(facts.context.runs), 1)
    gain = (time - float(best.sum())) / ranks
    if reached >= least.FAR_FROM_PEAK or facts.share(gain) < least.FAR_SHARE:
        return
    worst = products.sort("busy_ns", descending=True).head(_MAX_EVIDENCE)
    yield Observation(
        f"Products take {duration(time)} and reach {share(reached)} of what their shapes would allow.",
        [Evidence(name, ns) for name, ns in worst.select("operator", "busy_ns").iter_rows()],
        gain,
        "B11",
        coverage=facts.device_share(float(rows["busy_ns"].sum())),
    )


def wide_types(facts: Facts) -> Iterator[Observation]:
    """Operators bound by memory on types of 4 bytes, told by their shapes."""
    bandwidth = facts.context.peaks.get(BANDWIDTH)
    rows = _operators(facts)
    if bandwidth is None or rows.is_empty():
        return
    reached = pl.col("modelled_bytes") * _NS_PER_S / bandwidth / pl.col("busy_ns")
    bound = rows.filter(
        pl.col("dtype") == "float", pl.col("modelled_flop").fill_null(0) == 0, reached >= least.AT_BANDWIDTH
    )
    time = float(bound["busy_ns"].sum())
    gain = time / 2 / max(len(facts.context.runs), 1)
    if facts.share(gain) < least.TYPE_SHARE:
        return
    worst = bound.sort("busy_ns", descending=True).head(_MAX_EVIDENCE)
    yield Observation(
        f"Operators on FP32 that only wait for memory take {share(facts.device_share(time))} of device time; in"
        f" {facts.context.narrow_type} they would move half of the bytes.",
        [Evidence(name, ns) for name, ns in worst.select("operator", "busy_ns").iter_rows()],
        gain,
        "B11",
        coverage=facts.device_share(float(rows["busy_ns"].sum())),
        basis=Basis.MODELLED,
    )
