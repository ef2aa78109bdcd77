"""Rules on what the device computes: kernels, precision, recomputation, the optimizer, batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.device_peaks import device_peaks
from xsp_analyze.findings import thresholds as least
from xsp_analyze.findings.advice import Evidence, Found, rule
from xsp_analyze.findings.roof import unreached
from xsp_analyze.findings.words import times
from xsp_analyze.render.shown import short_name
from xsp_analyze.render.units import count, duration, share
from xsp_model import Kind, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = [
    "dominant_kernel",
    "fp32_products",
    "many_optimizer_kernels",
    "recompute",
    "small_batch",
]

_MOST_EVIDENCE = 3
_FP32_PRODUCTS = r"(?i)(?:^|[^a-z])s(?:gemm|cudnn)|f32f32_f32f32"
"""Matrix products and convolutions on FP32 units, by the names of cuBLAS, cuDNN and CUTLASS: `ampere_sgemm_...`,
`cutlass_80_simt_sgemm_...`, `volta_scudnn_...`, `sm80_xmma_gemm_f32f32_f32f32_...` (with TF32: `f32f32_tf32f32`)."""
_TENSOR_PEAKS = ("tf32", "bf16_tensor", "fp16_tensor")  # the easiest to move to first


@rule(
    "dominant-kernel",
    "One kernel takes much of the device's time",
    fires=f"Kernels of one name take at least {least.DOMINANT_SHARE:.0%} of device time.",
    why="Where one kernel leads, everything else is second: a better one, or fewer calls of it, is worth the most.",
    gain="Its time times the part of its roof that it does not reach; unknown without hardware counters.",
    do="See which layers call it, with which shapes. Try another algorithm (autotuning, channels_last), another"
    " precision, or a library made for it; measure counters with ncu to see what bounds it.",
    source="Our choice.",
)
def dominant_kernel(facts: Facts) -> Iterator[Found]:
    """The first row of A10."""
    kernels = facts.work.filter(pl.col("kind").cast(pl.String) == str(Kind.KERNEL))
    by_name = kernels.group_by(pl.col("name").cast(pl.String)).agg(pl.col("ns").sum(), pl.len())
    if by_name.is_empty():
        return
    name, time, calls = by_name.sort(-pl.col("ns"), "name").row(0)
    if facts.device_share(time) < least.DOMINANT_SHARE:
        return
    yield Found(
        f"{short_name(name)} takes {share(facts.device_share(time))} of device time; it is"
        f" called {times(calls / facts.step_count)}.",
        (Evidence("its device time", time), Evidence("all device time", facts.device_ns)),
        unreached(facts, pl.col("kernel_name") == name),
        "A10",
        name,
    )


@rule(
    "fp32-products",
    "Matrix products run in FP32 beside idle tensor cores",
    fires=f"Matrix products and convolutions on FP32 units (told by kernel names of cuBLAS, cuDNN and CUTLASS) take at"
    f" least {least.FP32_SHARE:.0%} of device time, on a device known to have tensor cores.",
    why="Tensor cores do the same products several times faster, in TF32 without a change to the model's types.",
    gain="Their time times (1 - FP32 peak / peak of TF32, or of BF16 or FP16 where the device has no TF32).",
    do="torch.set_float32_matmul_precision('high') for TF32, or autocast to BF16; check the model's accuracy.",
    source="Our choice of share; peaks as listed by xsp devices.",
)
def fp32_products(facts: Facts) -> Iterator[Found]:
    """Kernels with FP32 names, against the peaks of the device they ran on."""
    name = pl.col("name").cast(pl.String)
    rows = facts.work.filter(name.str.contains(_FP32_PRODUCTS))
    factor = _tensor_gain(facts)
    time = float(rows["ns"].sum())
    if factor is None or facts.device_share(time) < least.FP32_SHARE:
        return
    precision, part = factor
    worst = rows.group_by(name).agg(pl.col("ns").sum()).sort(-pl.col("ns"), "name").head(_MOST_EVIDENCE)
    yield Found(
        f"Matrix products in FP32 take {share(facts.device_share(time))} of device time; {precision} would do them in"
        f" {share(1 - part)} of it at best.",
        [Evidence(short_name(n), t) for n, t in worst.iter_rows()],
        facts.longest(rows) * part,
        "A10",
        "gemm",
    )


def _tensor_gain(facts: Facts) -> tuple[str, float] | None:
    """The first precision on tensor cores that the devices have, and the part of FP32's time that it saves."""
    peaks = device_peaks(facts.view)
    known = dict(peaks.group_by("quantity").agg(pl.col("peak").min()).iter_rows())
    for precision in _TENSOR_PEAKS:
        if known.get("fp32") and known.get(precision, 0) > known["fp32"]:
            return precision, 1 - known["fp32"] / known[precision]
    return None


@rule(
    "recompute",
    "The forward pass is run again",
    fires=f"Activation checkpointing takes at least {least.RECOMPUTE_SHARE:.0%} of device time.",
    why="Checkpointing trades device time for memory; where memory is to spare, the trade is a loss.",
    gain="Device time of recomputed work.",
    do="Checkpoint fewer layers, those that are cheap to compute and large to keep; see A04 for the memory.",
    source="Our choice; a full checkpoint costs about a quarter of device time.",
)
def recompute(facts: Facts) -> Iterator[Found]:
    """Device work of phase recompute."""
    rows = facts.work.filter(pl.col("phase").cast(pl.String) == str(Phase.RECOMPUTE))
    time = float(rows["ns"].sum())
    if facts.device_share(time) < least.RECOMPUTE_SHARE:
        return
    yield Found(
        f"Work that runs again in the backward pass takes {share(facts.device_share(time))} of device time.",
        (Evidence("recomputed", time), Evidence("all device time", facts.device_ns)),
        facts.longest(rows),
        "B06",
    )


@rule(
    "optimizer-kernels",
    "The optimizer runs a kernel for every parameter",
    fires=f"The optimizer launches at least {least.OPTIMIZER_KERNELS} kernels a step.",
    why="Each parameter is updated by several tiny kernels, bound by their launches.",
    gain="Device time of the optimizer's chains of kernels less the longest of each step: a fused one has to remain.",
    do="fused=True or foreach=True in torch.optim, or a fused optimizer of a library.",
    source="Our choice; fused optimizers need a handful.",
)
def many_optimizer_kernels(facts: Facts) -> Iterator[Found]:
    """Kernels of phase optimizer."""
    is_kernel = pl.col("kind").cast(pl.String) == str(Kind.KERNEL)
    rows = facts.work.filter(pl.col("phase").cast(pl.String) == str(Phase.OPTIMIZER), is_kernel)
    number = rows.height / facts.step_count
    if number < least.OPTIMIZER_KERNELS:
        return
    time = facts.longest(rows)
    longest = float(rows["duration_ns"].max() or 0)  # type: ignore[arg-type]
    yield Found(
        f"The optimizer launches {count(round(number))} kernels a step ({duration(time)} of device time).",
        (Evidence("kernels", round(number), ""), Evidence("device time", time)),
        max(time - longest, 0.0),
        "A10",
    )


@rule(
    "small-batch",
    "Larger batches still pay",
    fires="Of several batch sizes measured, the last doubling still raised throughput by more than"
    f" {least.BATCH_GROWTH:.0%}.",
    why="The device is not yet full: each input costs less in a larger batch.",
    gain="Unknown beyond the largest batch measured.",
    do="Measure larger batches until throughput stops growing or memory is full (A01 then marks the optimal one).",
    source="XSP's definition of the optimal batch size.",
)
def small_batch(facts: Facts) -> Iterator[Found]:
    """The two largest batch sizes of A01 of which one is twice the other."""
    table = facts.table("A01")
    rows = None if table is None else table.drop_nulls(["batch_size", "throughput_per_s"]).sort("batch_size")
    if rows is None or rows.height < 2:  # noqa: PLR2004 (two to compare)
        return
    rates = dict(rows.select("batch_size", "throughput_per_s").iter_rows())
    largest = max(rates)
    if largest % 2 or largest // 2 not in rates:
        return
    growth = rates[largest] / rates[largest // 2] - 1
    if growth <= least.BATCH_GROWTH:
        return
    yield Found(
        f"From batch {largest // 2} to {largest} throughput rose by {share(growth)}, to {rates[largest]:,.1f}"
        " inputs/s.",
        (
            Evidence(f"inputs/s at {largest // 2}", rates[largest // 2], ""),
            Evidence(f"at {largest}", rates[largest], ""),
        ),
        None,
        "A01",
    )
