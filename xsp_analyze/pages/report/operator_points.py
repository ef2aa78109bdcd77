"""Operators by shape (B23) as points under a roof: their modelled work over the device time that they took.

Kernels of one operator share its work, so that where nothing was measured operators are the points to look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.frames.kernels.measured_work import MODELLED
from xsp_analyze.frames.kernels.roofline import BANDWIDTH, agreed_peaks
from xsp_analyze.frames.operators.operator_work import RATES
from xsp_analyze.text.names import short_call, spelled_call
from xsp_analyze.text.units import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.pages.report.roofline_block import RoofRow
    from xsp_analyze.service.answers import Answers

__all__ = ["operator_points", "roof_sources"]

_VECTOR = "fp32"  # the peak that arithmetic outside of products is held against
_Peaks = dict[str, tuple[float, str]]


def operator_points(answers: Answers) -> list[RoofRow]:
    """The rows of B23 whose flop and bytes are modelled, as rows that stand under a roof; none where it has none.

    `precision` is the quantity of the peak; flop are products, else the other arithmetic.
    """
    result = answers.of("B23")
    if isinstance(result, str):
        return []
    flop = pl.when(pl.col("modelled_flop") > 0).then("modelled_flop").otherwise("vector_flop")
    rows = result.table.with_columns(flop.alias("flop")).filter(pl.col("flop") > 0, pl.col("modelled_bytes") > 0)
    peaks = _peaks(answers)
    return [_point(row, peaks) for row in rows.iter_rows(named=True)]


def _peaks(answers: Answers) -> _Peaks:
    """Peak and its words by quantity, where the devices of the trace agree on it."""
    return {quantity: (peak, text) for quantity, peak, text in agreed_peaks(answers.per_step).iter_rows()}


def _point(row: Mapping[str, Any], peaks: _Peaks) -> RoofRow:
    intensity = row["flop"] / row["modelled_bytes"]
    rate = _rate(row, peaks)
    peak, bandwidth = peaks.get(rate), peaks.get(BANDWIDTH)
    ideal = peak[0] / bandwidth[0] if peak and bandwidth else None
    limit = min(peak[0], intensity * bandwidth[0]) if peak and bandwidth else None
    return {
        "operator_label": spelled_call(row),
        "short_label": short_call(row),
        "precision": rate,
        "arithmetic_intensity": intensity,
        "flop_per_s": None if row["modelled_byte_per_s"] is None else intensity * row["modelled_byte_per_s"],
        "ideal_intensity": ideal,
        "roof_flop_per_s": limit,
        "bound": row["bound"],
        "roof_share": row["roof_share"],
        "roof": _roof(row["bound"], peak, bandwidth),
        "device_sum_ns": row["device_sum_ns"],
        "gain_ns": row["gain_ns"],
        "count": row["count"],
        "work_basis": MODELLED,
    }


def _rate(row: Mapping[str, Any], peaks: _Peaks) -> str:
    """The quantity that bounds the arithmetic of a row: the first of its precision that is known, else the first."""
    if not row["modelled_flop"]:
        return _VECTOR
    rates: Sequence[str] = RATES.get(row["precision"], (str(row["precision"] or "products"),))
    return next((rate for rate in rates if rate in peaks), rates[0])


def _roof(bound: str | None, peak: tuple[float, str] | None, bandwidth: tuple[float, str] | None) -> str:
    named = {"compute": peak, "memory": bandwidth}.get(bound or "")
    if named is not None:
        return named[1]
    return f"{bound} roof" if bound else "unknown: no peak rates of the device are known"


def roof_sources(answers: Answers, precisions: Sequence[str]) -> str | None:
    """The numbers of these precisions' roofs and whose word they are; None where none is known.

    `The roofs of Card (its data sheet): bf16_tensor peak 40 TFLOP/s, DRAM bandwidth 20 GB/s.`
    """
    peaks = _peaks(answers)
    listed = [(q, "flop/s") for q in dict.fromkeys(precisions)] + [(BANDWIDTH, "byte/s")]
    roofs = [(*peaks[q][1].partition(" of ")[::2], quantity(peaks[q][0], unit)) for q, unit in listed if q in peaks]
    if BANDWIDTH not in peaks or len(roofs) == 1:
        return None
    sources = dict.fromkeys(source for _, source, _ in roofs)
    parts = (f"{s}: {', '.join(f'{what} {value}' for what, of, value in roofs if of == s)}" for s in sources)
    return f"The roofs of {'; of '.join(parts)}."
