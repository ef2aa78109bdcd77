"""Rules on what the device computes: kernels, layers, precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Basis, Evidence, Observation, rule
from xsp_analyze.findings.phrases import times
from xsp_analyze.findings.roof import unreached
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION, product_names
from xsp_analyze.frames.kernels.roofline import TENSOR_RATES
from xsp_analyze.text.shown import clean, short_name
from xsp_analyze.text.units import duration, share
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts

__all__ = ["dominant_kernel", "dominant_layer", "fp32_products"]

_MAX_EVIDENCE = 3
_DO = {
    "tf32": "torch.set_float32_matmul_precision('high') for TF32, or autocast to BF16; check the model's accuracy.",
    "bf16_tensor": "autocast to BF16; the device is not known to have TF32. Check the model's accuracy.",
    "fp16_tensor": "autocast to FP16 with a GradScaler: no other type of the device's tensor cores is known. Check the"
    " model's accuracy.",
}
_CALLED = {"tf32": "TF32", "bf16_tensor": "BF16", "fp16_tensor": "FP16"}


@rule(
    "dominant-kernel",
    "One kernel takes much of the device's time",
    fires=f"Kernels of one name, other than communication, take at least {limit.DOMINANT_SHARE:.0%} of device time.",
    why="Where one kernel leads, everything else is second: a better one, or fewer calls of it, is worth the most.",
    gain="Its time times the part of its roof that it does not reach; unknown without hardware counters.",
    do="See which layers call it, with which shapes. Try another algorithm (autotuning, channels_last), another"
    " precision, or a library made for it; measure counters with ncu to see what bounds it.",
    source="Our choice.",
    basis=Basis.COUNTERS,
    needs=("timeline",),
)
def dominant_kernel(facts: Facts) -> Iterator[Observation]:
    """The first row of A10."""
    kernels = facts.work.filter(pl.col("kind").cast(pl.String) == str(Kind.KERNEL), ~IS_COMMUNICATION)
    by_name = kernels.group_by(pl.col("name").cast(pl.String)).agg(pl.col("ns").sum(), pl.len())
    if by_name.is_empty():
        return
    name, time, calls = by_name.sort(-pl.col("ns"), "name").row(0)
    if facts.device_share(time) < limit.DOMINANT_SHARE:
        return
    yield Observation(
        f"{short_name(name)} takes {share(facts.device_share(time))} of device time; it is"
        f" called {times(calls / facts.step_count)}.",
        (Evidence("its device time", time), Evidence("all device time", facts.device_ns)),
        unreached(facts, pl.col("kernel_name") == name),
        "A10",
        name,
    )


@rule(
    "dominant-layer",
    "One layer takes much of the time",
    fires=f"The device work of one layer, without communication, takes at least {limit.DOMINANT_SHARE:.0%} of device"
    " time; without device work: its latency, of the model's.",
    why="What is done to this layer shows in the whole model; what is done to the others hardly does.",
    gain="Unknown: a trace does not say how fast the layer could be.",
    do="Open the layer and see which operator and kernel lead in it; look at its shapes, its precision and its layout"
    " in memory.",
    source="Our choice, as for kernels.",
    needs=("timed layers",),
)
def dominant_layer(facts: Facts) -> Iterator[Observation]:
    """The layer with most device time; without device work, with the longest latency in A02."""
    layer, time, total, of_what = _on_device(facts) if facts.device_ns else _on_host(facts)
    part = time / total if total else 0.0
    if not limit.DOMINANT_SHARE <= part <= 1:  # beyond, it is of two runs that disagree, which is a finding of its own
        return
    name = clean(layer)
    yield Observation(
        f"Layer {name} takes {duration(time)}, {share(part)} of {of_what}.",
        (Evidence("the layer", time), Evidence(of_what, total)),
        None,
        "layers",
        name,
        coverage=facts.layer_coverage,
    )


def _on_device(facts: Facts) -> tuple[str, float, float, str]:
    """The layer with most device time in a step, that time, and all device time."""
    rows = facts.work.filter(pl.col("layer_name").is_not_null(), ~IS_COMMUNICATION)
    by_layer = rows.group_by("layer_index", pl.col("layer_name").cast(pl.String)).agg(pl.col("ns").sum())
    if by_layer.is_empty():
        return "", 0.0, facts.device_ns, ""
    _, name, time = by_layer.sort("ns", "layer_index", descending=[True, False]).row(0)
    return name, float(time), facts.device_ns, "device time"


def _on_host(facts: Facts) -> tuple[str, float, float, str]:
    """The layer with the longest latency, that and the model's."""
    table = facts.table("A02")
    rows = None if table is None else table.drop_nulls("latency_ns").sort("latency_ns", descending=True)
    if rows is None or rows.is_empty():
        return "", 0.0, 0.0, ""
    row = rows.row(0, named=True)
    return str(row["layer_name"]), float(row["latency_ns"]), facts.latency_ns, "the model's latency"


@rule(
    "fp32-products",
    "Matrix products run in FP32 beside idle tensor cores",
    fires=f"Matrix products and convolutions on FP32 units (told by kernel names) take at"
    f" least {limit.FP32_SHARE:.0%} of device time, on a device known to have tensor cores.",
    why="Tensor cores do the same products several times faster, in TF32 without a change to the model's types.",
    gain="Their time times (1 - FP32 peak / peak of TF32, or of BF16 or FP16 where the device has no TF32).",
    do="TF32 where the device has it (torch.set_float32_matmul_precision('high')), else autocast to BF16, or to FP16"
    " with a GradScaler on devices that have neither; check the model's accuracy.",
    source="Our choice of share; peaks as listed by xsp devices.",
    basis=Basis.PEAKS,
    needs=("kernel", "tensor cores"),
    explains=("dominant-kernel", "far-from-peak"),
)
def fp32_products(facts: Facts) -> Iterator[Observation]:
    """Kernels with FP32 names, against the peaks of the device they ran on."""
    name = pl.col("name").cast(pl.String)
    names = product_names(facts.work["name"], "fp32")
    rows = facts.work.filter(pl.col("name").cast(pl.String).is_in(names.implode()))
    factor = _tensor_gain(facts)
    time = total_of(rows["ns"])
    if factor is None or facts.device_share(time) < limit.FP32_SHARE:
        return
    precision, part = factor
    worst = rows.group_by(name).agg(pl.col("ns").sum()).sort(-pl.col("ns"), "name").head(_MAX_EVIDENCE)
    yield Observation(
        f"Matrix products in FP32 take {share(facts.device_share(time))} of device time; {_CALLED[precision]} would do"
        f" them in {share(1 - part)} of that time at best.",
        [Evidence(short_name(n), t) for n, t in worst.iter_rows()],
        facts.longest(rows) * part,
        "A10",
        "gemm",
        do=_DO[precision],
    )


def _tensor_gain(facts: Facts) -> tuple[str, float] | None:
    """The first precision on tensor cores that the devices have, and the part of FP32's time that it saves."""
    peak_of = facts.context.peaks
    for precision in TENSOR_RATES:
        if peak_of.get("fp32") and peak_of.get(precision, 0) > peak_of["fp32"]:
            return precision, 1 - peak_of["fp32"] / peak_of[precision]
    return None
