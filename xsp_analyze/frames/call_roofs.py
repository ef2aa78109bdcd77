"""What the devices would take at best for the calls that work is counted by.

A call's least time is that of the nearest of its roofs: its products at the peak of the precision that they run in, its
other arithmetic at the vector peak, its bytes at the bandwidth of memory, what it sends at that of the link.
Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.classification import by_name, learn, precision_of
from xsp_analyze.formulas import quotient
from xsp_analyze.frames.call_labels import tensor_labels
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernels.roofline import BANDWIDTH, DEVICE, peaks_of
from xsp_analyze.frames.modelled_calls import is_view
from xsp_analyze.frames.operator_calls import call_of_work, operator_calls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Ints

__all__ = ["PRODUCTS", "RATES", "RoofedCalls", "roofed_calls"]

RATES: Mapping[str, Sequence[str]] = {
    "fp64": ("fp64_tensor", "fp64"),
    "fp32": ("fp32",),
    "tf32": ("tf32",),
    "fp16": ("fp16_tensor", "fp16"),
    "bf16": ("bf16_tensor",),
    "fp8": ("fp8_tensor",),
    "int8": ("int8_tensor",),
}
"""The peaks that bound products of each precision: the first that is known of the device."""

PRODUCTS = ("matrix product", "convolution", "attention", "mixture of experts")
"""The classes of kernels that do products."""

_VECTOR = "fp32"  # what arithmetic outside of products is done in, whatever the type of the operands
_LINK, _HOST_LINK = "nvlink", "pcie"
_HOST_COPIES = ("Host-to-Device", "Device-to-Host")
_ROOFS = ("compute", "memory", "link")
_AMOUNTS = ("flop", "vector_flop", "read_bytes", "written_bytes")
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class RoofedCalls:
    """`case_of`: for each of the calls of `OperatorCalls` a row of `cases`.

    `cases`: calls of one kind on one device, whose kernels tell the same: name, shapes and dtypes for people, the
    columns of `modelled_calls.WORK` with `precision` filled; `launched`: whether device work was; and at best
    product_ns of the products alone, roof_ns and bound (compute, memory or link) of all. Null where the work is not
    told, a peak that it takes is not known, or the call launched no device work.
    """

    case_of: Ints
    cases: pl.DataFrame


def roofed_calls(frames: TraceView) -> RoofedCalls:
    """The calls held against the peaks of their devices.

    A copy between host and device is bound by the bytes that the copies recorded, at the bandwidth of PCIe.
    """
    counted = frames.once(operator_calls)
    launched, devices = _work_of_calls(frames)
    calls = counted.calls.select(pl.int_range(pl.len()).alias("row"), "kind")
    calls = calls.join(launched, on="row", how="left", maintain_order="left")
    case_of, first = numbers_by_appearance(*group_ids(calls.drop("row")))
    distinct = calls[first]
    cases = tensor_labels(counted.kinds)[distinct["kind"].to_numpy()].hstack(distinct.drop("row", "kind"))
    cases = cases.with_columns(pl.when(~_unknown_view(cases)).then(c).alias(c) for c in _AMOUNTS)
    return RoofedCalls(case_of, _with_roofs(cases, _wide(peaks_of(frames.trace, devices))))


def _unknown_view(cases: pl.DataFrame) -> pl.Series:
    """Views that launched device work themselves: what it did the operators inside would tell, and there are none."""
    views = pl.Series([is_view(name) for name in cases["name"]], dtype=pl.Boolean)
    return views & ~cases["is_given"] & cases["device"].is_not_null()


def _with_roofs(cases: pl.DataFrame, peaks: pl.DataFrame) -> pl.DataFrame:
    held = (
        cases.with_columns(_precision())
        .join(peaks, on="device", how="left", maintain_order="left")
        .with_columns(_products_ns().alias("product_ns"))
        .with_columns(_computing_ns().alias("compute"), _moving_ns().alias("memory"), _sending_ns().alias("link"))
    )
    longest = pl.max_horizontal(_ROOFS)
    has_roofs = pl.all_horizontal(pl.col(_ROOFS).is_not_null()) & pl.col("device").is_not_null()
    bound = pl.coalesce(pl.when(pl.col(roof) == longest).then(pl.lit(roof)) for roof in reversed(_ROOFS))
    return held.select(
        *(c for c in cases.columns if c not in {"device", "told", "host_bytes"}),
        pl.col("device").is_not_null().alias("launched"),
        "product_ns",
        pl.when(has_roofs).then(longest).alias("roof_ns"),
        pl.when(has_roofs, longest > 0).then(bound).alias("bound"),
    )


def _precision() -> pl.Expr:
    """What the model says; else a narrow operand's type; else what kernels' names tell, as TF32 of FP32 operands."""
    operand = pl.col("element_type")
    return pl.coalesce("precision", pl.when(operand != _VECTOR).then(operand), "told", operand).alias("precision")


def _work_of_calls(frames: TraceView) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Of each row of calls with device work: its device's number, what its kernels tell, bytes to or from the host.

    And the devices (columns of DEVICE) by that number.
    """
    work = frames.device_work
    number, first = numbers_by_appearance(*group_ids(work.select(DEVICE)))
    copies = frames.trace.scan("copies").filter(pl.col("copy_kind").cast(pl.String).is_in(_HOST_COPIES))
    copied = copies.select("span_id", pl.col("bytes").cast(pl.Float64).alias("host_bytes")).collect()
    rows = work.select(
        pl.Series("row", frames.once(call_of_work)), pl.Series("device", number), _precision_by_kernel(work), "span_id"
    )
    rows = rows.join(copied, on="span_id", how="left", maintain_order="left") if copied.height else rows.with_columns(
        host_bytes=pl.lit(0.0)
    )  # fmt: skip
    launched = (
        rows.filter(pl.col("row") >= 0)
        .group_by("row", maintain_order=True)
        .agg(pl.col("device").first(), pl.col("told").drop_nulls().first(), pl.col("host_bytes").sum())
    )
    return launched, work.select(DEVICE)[first].with_row_index("device").with_columns(pl.col("device").cast(pl.Int64))


def _precision_by_kernel(work: pl.DataFrame) -> pl.Series:
    """The precision that the name of each kernel that does products tells; null: none that has a peak."""
    number, first = numbers_by_appearance(*group_ids([work["name"]]))
    names = work["name"].gather(first).cast(pl.String)
    learn(names=names)
    precisions = pl.Series([_product_precision(name) for name in names], dtype=pl.Categorical)
    return precisions.gather(number).alias("told")


def _product_precision(name: str) -> str | None:
    classified, precision = by_name(name), precision_of(name)
    return precision if precision in RATES and classified and classified.kernel_class in PRODUCTS else None


def _wide(peaks: pl.DataFrame) -> pl.DataFrame:
    """One row a device with a column a quantity; null where its peak is not known."""
    quantities = {*(q for rates in RATES.values() for q in rates), BANDWIDTH, _LINK, _HOST_LINK}
    return peaks.group_by("device", maintain_order=True).agg(
        pl.col("peak").filter(pl.col("quantity") == q).first().alias(q) for q in sorted(quantities)
    )


def _products_ns() -> pl.Expr:
    """Products at the peak of their precision."""
    rates = [pl.when(pl.col("precision") == p).then(pl.coalesce(quantities)) for p, quantities in RATES.items()]
    return _over(pl.col("flop"), pl.coalesce(rates))


def _computing_ns() -> pl.Expr:
    """Products and, beside them, other arithmetic at the vector peak, as far as it is known."""
    return _longer(pl.col("product_ns"), _over(pl.col("vector_flop").fill_null(0), pl.col(_VECTOR)))


def _moving_ns() -> pl.Expr:
    """Of collectives only what they send is known, which memory holds too and is quicker with."""
    is_copy = pl.col("host_bytes") > 0
    moved = pl.when(is_copy).then("host_bytes").otherwise(pl.col("read_bytes") + pl.col("written_bytes"))
    return pl.coalesce(_over(moved, pl.col(BANDWIDTH)), pl.when(pl.col("bus_bytes").is_not_null()).then(0.0))


def _sending_ns() -> pl.Expr:
    """Nothing is sent but by collectives and copies between host and device."""
    sent = pl.col("bus_bytes").fill_null(0)
    return _longer(_over(sent, pl.col(_LINK)), _over(pl.col("host_bytes").fill_null(0), pl.col(_HOST_LINK)))


def _longer(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Null where either is."""
    return pl.when(one.is_not_null() & other.is_not_null()).then(pl.max_horizontal(one, other))


def _over(amount: pl.Expr, rate: pl.Expr) -> pl.Expr:
    """The time in ns; none for no amount, whatever the rate; null where either is not known."""
    return pl.when(amount == 0).then(0.0).otherwise(quotient(amount * _NS_PER_S, rate))
