"""Rules that hold operators against what their shapes ask of the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Basis, Evidence, Observation, rule
from xsp_analyze.formulas import quotient, total_of
from xsp_analyze.text.names import short_call, spelled_call
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["far_from_peak", "wide_types"]

_MAX_EVIDENCE = 3
_MAX_LABEL = 48
_WIDE_TYPE = "fp32"


def _operators(facts: Facts) -> pl.DataFrame:
    """Rows of B23 whose least time on their device is known, most to gain first, with `spent_ns`: what it is of."""
    table = facts.table("B23")
    if table is None:
        return pl.DataFrame(schema={"spent_ns": pl.Float64, "gain_ns": pl.Float64, "modelled_flop": pl.Float64})
    share_of = pl.col("roof_share")
    spent = pl.when(share_of > 0).then(quotient(pl.col("roof_ns"), share_of)).otherwise("gain_ns")
    return table.drop_nulls("gain_ns").with_columns(spent.alias("spent_ns"))


@rule(
    "far-from-peak",
    "The device is busy, and far from its peak",
    fires=f"The busiest device works for at least {limit.BUSY_SHARE:.0%} of a step, and its matrix products and"
    f" convolutions reach less than {limit.FAR_FROM_PEAK:.0%} of what their shapes would allow at its peaks; at the"
    f" peak a step would be at least {limit.FAR_SHARE:.0%} shorter.",
    why="A device that is busy is not one that is used well: kernels for small or oddly shaped products, in a layout or"
    " a type that its units do not like, keep it busy too.",
    gain="Time of the products whose shapes are known, less the longer of their flop at the peak rate of the precision"
    " that they run in and their bytes at the bandwidth of memory.",
    do="Go down the list of operators by time to gain (B23), which names shapes, layers and lines: make batches larger,"
    " pad dimensions to multiples of 64, use channels_last for convolutions, let libraries search (cudnn.benchmark,"
    " max-autotune), use a narrower type.",
    source="Our choice; tuned products reach 70 to 90 % of the peak. Peaks as listed by xsp devices.",
    basis=Basis.MODELLED,
    needs=("timeline", "peak rates"),
    explains=("dominant-kernel",),
)
def far_from_peak(facts: Facts) -> Iterator[Observation]:
    """Operators with products, by shape, against the roof of their precision."""
    if facts.devices.is_empty() or facts.share(facts.latency_ns - facts.idle_ns) < limit.BUSY_SHARE:
        return
    rows = _operators(facts)
    products = rows.filter(pl.col("modelled_flop") > 0)
    time, lost = total_of(products["spent_ns"]), total_of(products["gain_ns"])
    gain = lost / max(len(facts.context.runs), 1)
    if not time or 1 - lost / time >= limit.FAR_FROM_PEAK or facts.share(gain) < limit.FAR_SHARE:
        return
    first = products.row(0, named=True)
    line = f", called at {clean(first['source_lines'].partition('; ')[0])}" if first["source_lines"] else ""
    yield Observation(
        f"Products take {duration(time)} and reach {share(1 - lost / time)} of what their shapes would allow. Most is"
        f" lost in {clean(spelled_call(first))}{line}, which reaches {share(first['roof_share'])}.",
        _gains(products),
        gain,
        "B23",
        str(first["operator"]),
        coverage=facts.device_share(total_of(rows["spent_ns"])),
    )


def _gains(rows: pl.DataFrame) -> list[Evidence]:
    """What the first rows would gain."""
    first = rows.head(_MAX_EVIDENCE).iter_rows(named=True)
    return [Evidence(short_call(row, _MAX_LABEL), row["gain_ns"]) for row in first]


def wide_types(facts: Facts) -> Iterator[Observation]:
    """Operators bound by memory on types of 4 bytes, told by their shapes."""
    rows = _operators(facts)
    if rows.is_empty():
        return
    bound = rows.filter(
        pl.col("dtypes") == _WIDE_TYPE,
        pl.col("modelled_flop").fill_null(0) == 0,
        pl.col("bound") == "memory",
        pl.col("roof_share") >= limit.AT_BANDWIDTH,
    ).sort("spent_ns", descending=True, maintain_order=True)
    time = total_of(bound["spent_ns"])
    gain = time / 2 / max(len(facts.context.runs), 1)
    if facts.share(gain) < limit.TYPE_SHARE:
        return
    worst = bound.head(_MAX_EVIDENCE).iter_rows(named=True)
    yield Observation(
        f"Operators on FP32 that only wait for memory take {share(facts.device_share(time))} of device time; in"
        f" {facts.context.narrow_type} they would move half of the bytes.",
        [Evidence(short_call(row, _MAX_LABEL), row["spent_ns"]) for row in worst],
        gain,
        "B23",
        coverage=facts.device_share(total_of(rows["spent_ns"])),
        basis=Basis.MODELLED,
    )
