"""Rules on what the device computes and how the model is run: kernels, fusion, compiled code, training."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification import KernelClass, precision_of
from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import RECORD_NODES, Basis, Evidence, Observation, give_captures, rule, times
from xsp_analyze.findings.roof import time_above_roof
from xsp_analyze.formulas import total_of, weighted_mean
from xsp_analyze.frames.group_ids import group_ids, run_starts, sort_by
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION, functions_of, product_names
from xsp_analyze.frames.kernels.roofline import TENSOR_RATES
from xsp_analyze.needs import holds
from xsp_analyze.text.table import clean, short_name
from xsp_analyze.text.units import count, count_of, duration, quantity, share
from xsp_model import Attribution, Kind, Phase
from xsp_model.columns.tree import innermost
from xsp_model.vocabulary import STALLS, Recorder, formats_by

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts
    from xsp_model.columns.arrays import Bools, Ints

__all__ = [
    "dominant_kernel",
    "dominant_layer",
    "fp32_products",
    "graph_breaks",
    "graph_replays",
    "many_optimizer_kernels",
    "recompilation",
    "recompute",
    "small_batch",
    "stalled_layer",
    "unfused_attention",
    "unfused_chains",
]

# Rules on what the device computes: kernels, layers, precision.

_DO = {
    "tf32": "torch.set_float32_matmul_precision('high') for TF32, or autocast to BF16; check the model's accuracy.",
    "bf16_tensor": "autocast to BF16; {}. Check the model's accuracy.",
    "fp16_tensor": "autocast to FP16{}: no other type of the device's tensor cores is known. Check the model's"
    " accuracy.",
}
_NO_RATES = (
    "what tensor cores would do them in is not known, as the device's rates are not (--gpu NAME where the file does not"
    " name it, else --device FILE.toml)"
)
_FIRST_WITH_TENSOR_CORES = 7  # compute capability: Volta
_OF_SUCH_DEVICES = "^(?:void )?(?:volta|turing|ampere|hopper)_|^sm[789]\\d_"
"""Names of kernels made for devices with tensor cores."""
_CALLED = {"tf32": "TF32", "bf16_tensor": "BF16", "fp16_tensor": "FP16"}


_TRITON = "It is generated code: search its tiles and stages (max-autotune, more configurations of triton.autotune)."
_FUSE = "It moves memory more than it computes: fuse it with what comes before and after it, or use a narrower type."
_OF_CLASS = {
    KernelClass.MATRIX_PRODUCT: "See which layers call it, with which shapes (B23): a narrower type, larger batches,"
    " dimensions that are multiples of 64, libraries that search (max-autotune).",
    KernelClass.CONVOLUTION: "See which layers call it, with which shapes (B23): channels_last, cudnn.benchmark, a"
    " narrower type.",
    KernelClass.ATTENTION: "See which layers call it: a newer kernel of attention (scaled_dot_product_attention chooses"
    " among several), packed sequences instead of padded ones, a narrower type.",
    KernelClass.SOFTMAX: "Fuse it with what surrounds it: scaled_dot_product_attention where it is attention's,"
    " cross_entropy where it is the loss's.",
    **dict.fromkeys(
        (KernelClass.NORMALISATION, KernelClass.ELEMENTWISE, KernelClass.REDUCTION, KernelClass.COPY), _FUSE
    ),
}
"""What to do about a kernel of each class; of others what the rule says."""
_NARROWER = re.compile(r",? (?:a|or use a) narrower type(?:,|(?=\.))")
_NARROW = ("fp16", "bf16", "fp8", "fp4", "int8")


def _advice_on(kernel_class: str, names: list[str]) -> str:
    """What to do about kernels of a class; no narrower type where their names say that they compute in one."""
    advice = _OF_CLASS.get(KernelClass(kernel_class), "") if kernel_class else ""
    is_narrow = all(precision_of(name) in _NARROW for name in names)
    return _NARROWER.sub("", advice) if is_narrow else advice


@rule(
    "dominant-kernel",
    "One kernel takes much of the device's time",
    fires="Kernels of one name, or of one template whatever its arguments, other than communication, take at"
    f" least {limit.DOMINANT_SHARE:.0%} of device time. Not of a program's first moments: devices that work for under"
    f" {limit.LITTLE_NS / 1e6:g} ms in all, in no step.",
    why="Where one kernel leads, everything else is second: a better one, or fewer calls of it, is worth the most.",
    gain="Its time times the part of its roof that it does not reach; unknown without hardware counters.",
    do="See which layers call it, with which shapes. Try another algorithm (autotuning), another precision, or a"
    " library made for it; measure counters with ncu to see what bounds it.",
    source="Our choice.",
    basis=Basis.COUNTERS,
    needs=("timeline",),
)
def dominant_kernel(facts: Facts) -> Iterator[Observation]:
    """The first row of A10."""
    kernels = facts.work.filter(pl.col("kind").cast(pl.String) == str(Kind.KERNEL), ~IS_COMMUNICATION)
    kernel_class = pl.col("kernel_class").cast(pl.String).first()
    kernels = kernels.join(facts.calls, on="span_id", how="left", maintain_order="left")
    by_name = kernels.group_by(pl.col("name").cast(pl.String), pl.col("kind").cast(pl.String)).agg(
        pl.col("ns", "calls").sum(), kernel_class
    )
    if by_name.is_empty():
        return
    by_name = by_name.sort(-pl.col("ns"), "name").rename({"name": "kernel_name"})
    by_function = by_name.with_columns(functions_of(by_name)).group_by("function", maintain_order=True)
    sums = by_function.agg(pl.col("ns", "calls").sum(), "kernel_name", pl.col("kernel_class").first())
    function, time, calls, names, kernel_class = sums.sort(-pl.col("ns"), "function").row(0)
    if facts.device_share(time) < limit.DOMINANT_SHARE or facts.has_little_work:
        return
    name, several = names[0], len(names) > 1
    what = f"{len(names)} variants of {short_name(function)} take" if several else f"{short_name(name)} takes"
    yield Observation(
        f"{what} {share(facts.device_share(time))} of device time; {'they are' if several else 'it is'}"
        f" called {times(calls / facts.step_count)}.",
        (Evidence("its device time", time), Evidence("all device time", facts.device_ns)),
        time_above_roof(facts, pl.col("kernel_name").is_in(names)),
        "A10",
        function.partition(" (")[0] if several else name,
        do=_TRITON if name.startswith("triton_") else _advice_on(kernel_class, names),
        about_ns=facts.longest(kernels.filter(pl.col("name").cast(pl.String).is_in(names))),
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
    layer, time, total, of_what, about = _on_device(facts) if facts.device_ns else _on_host(facts)
    part = 0.0 if facts.has_little_work or not total else time / total
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
        about_ns=about,
    )


_COMPILED = r"^(?:CompiledFunction|Torch-Compiled Region|## Call CompiledFxGraph)"
"""Calls of compiled code, which hold many layers and are none."""


def _on_device(facts: Facts) -> tuple[str, float, float, str, float]:
    """The layer with most device time in a step, that time, all device time, and what a step has of that time."""
    rows = facts.work.filter(~pl.col("layer_name").cast(pl.String).str.contains(_COMPILED), ~IS_COMMUNICATION)
    by_layer = rows.group_by("layer_index", pl.col("layer_name").cast(pl.String)).agg(pl.col("ns").sum())
    if by_layer.is_empty():
        return "", 0.0, facts.device_ns, "", 0.0
    index, name, time = by_layer.sort("ns", "layer_index", descending=[True, False]).row(0)
    of_layer = rows.filter(
        pl.col("layer_index").eq_missing(pl.lit(index)), pl.col("layer_name").cast(pl.String) == name
    )
    return name, float(time), facts.device_ns, "device time", facts.longest(of_layer)


def _on_host(facts: Facts) -> tuple[str, float, float, str, float]:
    """The layer with the longest latency, that and the model's, likewise."""
    table = facts.table("A02")
    rows = (
        None if table is None else table.drop_nulls(["latency_ns", "layer_index"]).sort("latency_ns", descending=True)
    )
    rows = None if rows is None else rows.filter(~pl.col("layer_name").cast(pl.String).str.contains(_COMPILED))
    if rows is None or rows.is_empty():
        return "", 0.0, 0.0, "", 0.0
    row = rows.row(0, named=True)
    latency = float(row["latency_ns"])
    return str(row["layer_name"]), latency, facts.latency_ns, "the model's latency", latency


_FOR_STALL = {
    "memory_dependency_stall_share": "Its loads come late: more loads in flight (wider ones, unrolling, asynchronous"
    " copies), data kept on chip by tiles or fusion, accesses that fill whole sectors.",
    "memory_throttle_stall_share": "It asks for more than the memory path takes: wider and fewer accesses, coalesced.",
    "shared_memory_dependency_stall_share": "Look for bank conflicts in shared memory, and for slow functions"
    " (exp, sqrt, division).",
    "synchronisation_stall_share": "Even out work between barriers, or use smaller blocks and asynchronous barriers.",
    "execution_dependency_stall_share": "Give each thread independent instructions: unrolling, several outputs each.",
}


@rule(
    "stalled-layer",
    "The warps of a layer or kernel wait for one thing",
    fires=f"In a layer (in a trace without layers, kernels of one name) with at least {limit.STALLED_DEVICE_SHARE:.0%}"
    f" of device time warps wait for one thing in at least {limit.STALLED_SHARE:.0%} of the cycles that they are"
    " resident; the one in which that is most time.",
    why="It is what keeps its kernels from being faster, and tells which remedy can help.",
    gain="Unknown: warps wait while others work.",
    do="See the layer in A12 and its kernels in A08: what their warps wait for, and what limits their occupancy.",
    source="NVIDIA's Kernel Profiling Guide, warp stall reasons; the thresholds are our choice.",
    needs=("kernel",),
)
def stalled_layer(facts: Facts) -> Iterator[Observation]:
    """The layer in which warps wait longest for what they wait for most; of a trace without any layer the kernel."""
    layered = facts.work.filter(pl.col("layer_name").is_not_null())
    work = facts.work.with_columns(pl.col("name").alias("layer_name")) if layered.is_empty() else layered
    what, analysis = ("kernel", "A08") if layered.is_empty() else ("layer", "A12")
    reasons = [name for name in STALLS if name in work.columns]
    if not reasons or work.is_empty():
        return
    counted = pl.col("ns").filter(pl.any_horizontal(pl.col(reasons).is_not_null())).sum()
    means = [weighted_mean(pl.col(name), pl.col("ns")).alias(name) for name in reasons]
    layers = work.group_by("layer_index", pl.col("layer_name").cast(pl.String), maintain_order=True).agg(
        pl.col("ns").sum(), counted.alias("counted_ns"), *means
    )
    share_of_all = pl.max_horizontal(reasons)
    waiting = layers.with_columns(share_of_all.alias("part")).filter(
        pl.col("part") >= limit.STALLED_SHARE, pl.col("ns") >= limit.STALLED_DEVICE_SHARE * facts.device_ns
    )
    if waiting.is_empty():
        return
    row = waiting.sort(-pl.col("ns") * pl.col("part"), "layer_index", "layer_name").row(0, named=True)
    reason = max(reasons, key=lambda name: row[name] or 0.0)
    name = short_name(row["layer_name"]) if layered.is_empty() else clean(row["layer_name"])
    yield Observation(
        f"{what.capitalize()} {name} waits {share(row['part'])} on {STALLS[reason]}: so much of the cycles of its"
        " warps.",
        (
            Evidence(f"device time of the {what}", float(row["ns"])),
            Evidence("of it with counted warps", float(row["counted_ns"])),
        ),
        None,
        analysis,
        name,
        do=_FOR_STALL.get(reason, ""),
        coverage=row["counted_ns"] / row["ns"] if row["ns"] else 0.0,
    )


@rule(
    "fp32-products",
    "Matrix products run in FP32 beside idle tensor cores",
    fires=f"Matrix products and convolutions on FP32 units (told by kernel names), with Winograd's transforms, take at"
    f" least {limit.FP32_SHARE:.0%} of what kernels other than communication take, on a device known to have tensor"
    " cores.",
    why="Tensor cores do the same products several times faster, in TF32 without a change to the model's types.",
    gain="Their time times (1 - FP32 peak / peak of TF32, or of BF16 or FP16 where the device has no TF32); unknown"
    " where these rates are.",
    do="TF32 where the device has it (torch.set_float32_matmul_precision('high')), else autocast to BF16, or to FP16"
    " with a GradScaler on devices that have neither; check the model's accuracy.",
    source="Our choice of share; peaks as listed by xsp devices.",
    basis=Basis.PEAKS,
    needs=("kernel",),
    explains=("dominant-kernel", "far-from-peak"),
)
def fp32_products(facts: Facts) -> Iterator[Observation]:
    """Kernels with FP32 names, against the peaks of the device they ran on."""
    name = pl.col("name").cast(pl.String)
    names = product_names(facts.work["name"], "fp32", transforms=True)
    rows = facts.work.filter(pl.col("name").cast(pl.String).is_in(names.implode()))
    factor = _tensor_gain(facts)
    time = total_of(rows["ns"])
    if not facts.frames.of_trace.is_timed:
        yield from _idle_by_counters(facts, rows)
        return
    if not (factor or _lacks_only_rates(facts)) or time < limit.FP32_SHARE * facts.computing_ns or not time:
        return
    precision, part = factor or ("", 0.0)
    would = f"{_CALLED[precision]} would do them in {share(1 - part)} of that time at best" if factor else _NO_RATES
    worst = rows.group_by(name).agg(pl.col("ns").sum()).sort(-pl.col("ns"), "name").head(limit.MAX_EVIDENCE)
    yield Observation(
        f"Matrix products in FP32 take {share(facts.device_share(time))} of device time{_of_computing(facts, time)};"
        f" {would}.",
        [Evidence(short_name(n), t) for n, t in worst.iter_rows()],
        facts.longest(rows) * part if factor else None,
        "A10",
        "gemm",
        do=_DO.get(precision, "").format(_further_advice_on(precision, facts)),
        about_ns=facts.longest(rows) / 2,  # FP16 on tensor cores is twice as fast at least
    )


_TENSOR_COUNTERS = r"^tensor_(?:(?:precision_fu_)?utilization|instruction_count)|^sm__(?:inst_executed_)?pipe_tensor"
"""Counters of what tensor cores do: nvprof's and ncu's."""


def _idle_by_counters(facts: Facts, products: pl.DataFrame) -> Iterator[Observation]:
    """Of a file without times, what counters say of tensor cores: that no kernel uses them, and how many could."""
    metrics = facts.frames.trace.scan("metrics").filter(pl.col("span_id").is_in(facts.work["span_id"].implode()))
    metric = pl.col("metric").cast(pl.String)
    counted = metrics.filter(metric.str.contains(_TENSOR_COUNTERS) | (metric == "invocations")).collect()
    launches = counted.filter(pl.col("metric").cast(pl.String) == "invocations").select("span_id", "value")
    tensor = counted.filter(pl.col("metric").cast(pl.String) != "invocations")
    if products.is_empty() or tensor.is_empty() or (tensor["value"] > 0).any():
        return
    number = products.join(launches, on="span_id", how="left")["value"].fill_null(1).sum()
    kernels = tensor["span_id"].n_unique()
    yield Observation(
        f"Tensor cores are idle in {'all ' if kernels > 1 else ''}{count_of(kernels, 'kernel', 'kernels')} counted, by"
        f" their counters; {count_of(round(number), 'launch', 'launches')} of"
        f" {count(round(launches['value'].sum() or facts.work.height))} are matrix products in FP32. How long these"
        " take the file does not say.",
        [Evidence(short_name(n), c, "") for n, c in products.join(launches, on="span_id").select("name", "value").sort(
            -pl.col("value"), pl.col("name").cast(pl.String)).head(limit.MAX_EVIDENCE).iter_rows()],
        None,
        "A08",
        "gemm",
    )  # fmt: skip


def _of_computing(facts: Facts, time_ns: float) -> str:
    """What the time is of computing alone, where devices do much else."""
    if facts.device_share(facts.computing_ns) > 1 - limit.FP32_SHARE:
        return ""
    return f", {share(time_ns / facts.computing_ns)} of what computes"


def _further_advice_on(precision: str, facts: Facts) -> str:
    """What else the advice on this precision says of the device and the phase."""
    if precision == "fp16_tensor":
        return "" if facts.context.is_inference else " with a GradScaler"
    return "TF32 is no faster than FP32 on this device" if "tf32" in facts.context.peaks else "TF32 is not known of it"


def _lacks_only_rates(facts: Facts) -> bool:
    """Whether the devices have tensor cores by all that is recorded, and no rate of them is known."""
    if "fp32" in facts.context.peaks:
        return False
    capabilities = facts.frames.trace.frame("devices")["compute_capability"].drop_nulls().cast(pl.String)
    majors = capabilities.str.extract(r"^(\d+)\.").cast(pl.Int64)
    if len(majors):
        return bool((majors >= _FIRST_WITH_TENSOR_CORES).all())
    return bool(facts.work["name"].unique().cast(pl.String).str.contains(_OF_SUCH_DEVICES).any())


def _tensor_gain(facts: Facts) -> tuple[str, float] | None:
    """The first precision on tensor cores that the devices have, and the part of FP32's time that it saves."""
    peak_of = facts.context.peaks
    for precision in TENSOR_RATES:
        if peak_of.get("fp32") and peak_of.get(precision, 0) > peak_of["fp32"]:
            return precision, 1 - peak_of["fp32"] / peak_of[precision]
    return None


# The rule on elementwise kernels that could be one.

_ELEMENTWISE = [str(c) for c in (KernelClass.ELEMENTWISE, KernelClass.COPY, KernelClass.MEMSET)]
"""Classes of kernels that do one operation an element, or only move or set it."""
_NOT_FUSIBLE = r"^triton_|fusion|^__amd_rocclr_"
"""Names of what a compiler has fused already (Triton's of torch.compile, XLA's), and of ROCm's own copies."""
_LANE = ("run_id", "device_id", "stream_id", "step")


@rule(
    "unfused-chains",
    "Elementwise kernels run one after the other",
    fires=f"Fusing each chain of neighbouring elementwise kernels would save at least {limit.CHAIN_SHARE:.0%} of device"
    " time.",
    why="Each elementwise kernel reads and writes whole tensors. Fused, a chain reads and writes them once.",
    gain="Of each chain of neighbours on a stream, its time less that of its longest kernel: one pass over the data has"
    " to remain.",
    do="torch.compile, or fused versions of the operator (GELU, dropout and add, LayerNorm, optimizers).",
    source="Our choice; classes of kernels as docs/kernel-classes.md has them, without what a compiler has fused.",
    needs=("timeline", "launches"),
    explains=("dominant-kernel",),
)
def unfused_chains(facts: Facts) -> Iterator[Observation]:
    """Runs of elementwise kernels on one stream; a chain is at least two."""
    chains = _chains(facts.work, _is_unfused(facts))
    if chains.is_empty():
        return
    saved = facts.longest(chains)
    if facts.device_share(total_of(chains["ns"])) < limit.CHAIN_SHARE:
        return
    number, length = chains.height / facts.step_count, total_of(chains["length"]) / chains.height
    yield Observation(
        f"{count(round(number, 1))} chains of {count(round(length, 1))} elementwise kernels on average take"
        f" {duration(total_of(chains['all_ns']))} of device time.",
        (Evidence("in chains", total_of(chains["all_ns"])), Evidence("saved if fused", saved)),
        saved,
        "A10",
        "elementwise",
    )


def _is_unfused(facts: Facts) -> pl.Expr:
    is_kernel = pl.col("kind") == str(Kind.KERNEL)
    return is_kernel & pl.col("kernel_class").cast(pl.String).is_in(_ELEMENTWISE) & ~facts.is_named(_NOT_FUSIBLE)


def _chains(work: pl.DataFrame, is_one: pl.Expr) -> pl.DataFrame:
    """One row a chain of neighbours: run_id, device_id, length, all_ns (its time), ns (that less its longest)."""
    rows = work.select(*_LANE, "start_ns", "even_ns", is_one.alias("is_one"))
    code, order = _by_lane(rows)
    ones = rows["is_one"].to_numpy()[order]
    starts = run_starts(code[order], ones)
    chain = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(order))))
    neighbours: pl.DataFrame = rows.select("run_id", "device_id", "even_ns")[order[ones]]
    return (
        neighbours.with_columns(pl.Series("chain", chain[ones]))
        .group_by("chain", "run_id", "device_id", maintain_order=True)
        .agg(
            pl.len().alias("length"),
            pl.col("even_ns").sum().alias("all_ns"),
            (pl.col("even_ns").sum() - pl.col("even_ns").max()).alias("ns"),
        )
        .filter(pl.col("length") > 1)
    )


def _by_lane(work: pl.DataFrame) -> tuple[Ints, Ints]:
    """A number for the stream and step of each row, and the rows by these, each in order of start."""
    code, size = group_ids(work.select(_LANE), ordered=True)
    return code, sort_by(code, size)  # work stands in order of start


_BETWEEN = [*_ELEMENTWISE, str(KernelClass.RANDOM)]
"""Classes of what runs between the products and softmax: scaling, masks, changes of type and layout, dropout."""
_MAX_BETWEEN = 8  # kernels on either side of softmax: more are another operator's
_LAYERS = ["aten::linear", "aten::addmm"]  # products with weights, as in a gate before softmax; attention has none
_BATCHED = ["aten::bmm", "aten::baddbmm"]


@rule(
    "unfused-attention",
    "Attention runs in pieces",
    fires="On one stream a matrix product, softmax and a matrix product follow each other, with nothing but elementwise"
    f" kernels between, and take at least {limit.CHAIN_SHARE:.0%} of device time. Products of layers (aten::linear) are"
    " none of these.",
    why="In pieces the scores, a number for each pair of tokens, are written to memory and read again by each kernel. A"
    " fused one never has them there, and does the scaling, the mask and softmax on its way.",
    gain="Time of these kernels less the longest of each attention: one has to remain.",
    do="Call scaled_dot_product_attention (FlashAttention, or its memory-efficient kernels): attn_implementation='sdpa'"
    " in Transformers, nn.MultiheadAttention with need_weights=False.",
    source="Our choice of share; FlashAttention (Dao and others, 2022).",
    needs=("timeline",),
    explains=("unfused-chains", "dominant-kernel"),
)
def unfused_attention(facts: Facts) -> Iterator[Observation]:
    """Softmax between two products of the same stream and step."""
    every = _attention(facts)
    time = total_of(every["all_ns"])
    if every.is_empty() or facts.device_share(time) < limit.CHAIN_SHARE:
        return
    kernels, saved = total_of(every["length"]) / every.height, facts.longest(every)
    yield Observation(
        f"Softmax between two matrix products, {count(round(kernels, 1))} kernels in all, runs"
        f" {times(every.height / facts.step_count)}{' a step' if facts.frames.is_mean else ''}: attention, unfused, of"
        f" {duration(time)}, {share(facts.device_share(time))} of device time.",
        (Evidence("unfused attention", time), Evidence("saved if fused", saved)),
        saved,
        "A10",
        "softmax",
    )


def _attention(facts: Facts) -> pl.DataFrame:
    """One row an attention in pieces: run_id, device_id, length (kernels), all_ns (its time), ns (less its longest)."""
    code, order = _by_lane(facts.work)
    work = facts.work.select("run_id", "device_id", "span_id", "kernel_class", "even_ns")[order]
    lane, classes, time = code[order], work["kernel_class"].cast(pl.String), work["even_ns"].to_numpy()
    steps = np.flatnonzero(~classes.is_in(_BETWEEN).to_numpy())  # those that no elementwise kernel is
    is_product, is_softmax = (
        (classes == str(one)).to_numpy()[steps] for one in (KernelClass.MATRIX_PRODUCT, KernelClass.SOFTMAX)
    )
    at = np.flatnonzero(is_softmax[1:-1] & is_product[:-2] & is_product[2:]) + 1
    first, middle, last = steps[at - 1], steps[at], steps[at + 1]
    near = np.maximum(middle - first, last - middle) - 1 <= _MAX_BETWEEN
    near &= (lane[first] == lane[last]) & ~_are_of_layers(facts, work["span_id"], first, last)
    first, middle, last = first[near], middle[near], last[near]
    until = np.concatenate(([0.0], np.cumsum(time)))
    all_ns = until[last + 1] - until[first]
    longest = np.maximum(np.maximum(time[first], time[middle]), time[last])
    numbers = {"length": last - first + 1, "all_ns": all_ns, "ns": all_ns - longest}
    keys: pl.DataFrame = work.select("run_id", "device_id")[middle]
    return keys.hstack(pl.DataFrame(numbers))


def _are_of_layers(facts: Facts, spans: pl.Series, first: Ints, last: Ints) -> Bools:
    """Whether either product is that of a layer's weights, by the operator that launched it."""
    if not len(first):
        return np.zeros(0, dtype=np.bool_)
    every = facts.frames.trace.scan("spans").select("parent_id", pl.col("name").cast(pl.String)).collect()
    parent = every["parent_id"].fill_null(-1).to_numpy()
    around = innermost(parent, every["name"].is_in([*_LAYERS, *_BATCHED]).to_numpy())
    is_layer = np.append(every["name"].is_in(_LAYERS).to_numpy(), False)
    of_first, of_last = (is_layer[around[spans.gather(rows).to_numpy()]] for rows in (first, last))
    return np.asarray(of_first | of_last)


# Rules on compiled code and captured graphs: code made anew, functions compiled in parts, replays without layers.


@rule(
    "recompilation",
    "Code is compiled or loaded in the middle of the run",
    fires=f"Devices are idle for at least {limit.COMPILE_SHARE:.0%} of the steps after the first (of the trace, without"
    " steps) while the host compiles, captures or loads code for them; without device work, the step is that long in"
    " compilation.",
    why="A program is compiled for the shapes it meets. New shapes, or a guard that fails, compile it anew, and the"
    " device waits for that as in the first step.",
    gain="Idle device time while a span of compilation or of loading is open; of a whole trace unknown, as it stands"
    " apart with start-up.",
    do="TORCH_LOGS=recompiles (jax_log_compiles in JAX) says what changed. Keep shapes the same (pad, bucket), mark"
    " those that vary: torch._dynamo.mark_dynamic, or dynamic=True; keep numbers that change out of what is compiled,"
    " or make them tensors. What is compiled once only: warm up before recording.",
    source="Our choice; spans are those of TorchDynamo, Inductor, graph capture, NVRTC, HIPRTC, XLA and Triton, and"
    " calls that load modules. Versions are those that TorchDynamo numbers in `Torch-Compiled Region: F/V` (PyTorch 2.5"
    " and later).",
    explains=("uneven-steps", "dominant-layer"),
)
def recompilation(facts: Facts) -> Iterator[Observation]:
    """Idle time inside spans of compilation, but those of each run's first step."""
    if facts.frames.of_trace.is_one_by_one:
        return
    spans, lost = facts.host.recompilations, facts.host.recompiling_ns
    part = lost / (facts.latency_ns + facts.start_up_ns) if facts.latency_ns else 0.0
    if spans.is_empty() or part < limit.COMPILE_SHARE:
        return
    names = spans.group_by("name").agg(pl.col("duration_ns").sum()).sort(-pl.col("duration_ns"), "name")
    averaged = facts.frames.is_mean
    where = f" in {count_of(spans.select('run_id', 'step').n_unique(), 'step', 'steps')}" if averaged else ""
    waits = "devices are idle for" if holds(facts.frames.of_trace, "kernel") else "the rest waits for"
    yield Observation(
        f"While code is compiled or loaded{where}, {waits} {duration(lost)}{' a step on average' if where else ''},"
        f" {share(part)} of the time.{_versions(facts)}",
        [Evidence(clean(name), time / facts.step_count) for name, time in names.head(limit.MAX_EVIDENCE).iter_rows()],
        None if facts.start_up_ns or not (averaged or facts.devices.height) else lost,
        "timeline",
    )


def _versions(facts: Facts) -> str:
    """How many versions ran of the function that ran in most, as a sentence; empty where each ran in one."""
    versions = facts.host.regions.calls.group_by("run_id", "function").agg(pl.col("version").n_unique())
    several = versions.filter(pl.col("version") > 1)["version"].to_list()
    if not several:
        return ""
    functions = count_of(len(several), "compiled function", "compiled functions")
    return f" {functions} ran in {'up to ' if len(several) > 1 else ''}{count(max(several))} versions."


@rule(
    "graph-breaks",
    "Compiled code is left in the middle of a function",
    fires=f"A step has on average at least {limit.BREAKS} calls of a compiled region within that of another.",
    why="What TorchDynamo cannot follow (a value read on the host, a print, a call into C) ends the graph. The rest of"
    " the function is compiled by itself: nothing is fused across the break, the operators in it run one by one, and"
    " guards are checked again. Where a value is read, the host waits too.",
    gain="Device time of what is launched in the breaks, and idle device time in them, but for what waits, input and"
    " compilation explain; unknown where calls of compiled graphs are not recorded. What fusion across them would"
    " save is not in a trace.",
    do="TORCH_LOGS=graph_breaks names each with its line, and fullgraph=True makes it an error. Keep values on the"
    " device (torch.where instead of if; torch._dynamo.config.capture_scalar_outputs=True for .item()), move printing"
    " and logging out of the compiled function, and make a custom operator of a call that cannot be traced.",
    source="`Torch-Compiled Region` of PyTorch 2.1 and later, one within the other. Several compiled graphs in one"
    " region are none: backends split on purpose (vLLM at attention, DDP at its buckets). Where TorchDynamo gives a"
    " function up as a whole (a break in a loop), its callees are regions of their own, as if each had been compiled"
    " alone: of that this rule is silent.",
)
def graph_breaks(facts: Facts) -> Iterator[Observation]:
    """Breaks in the steps chosen, what runs in them, and how long devices have nothing to do meanwhile."""
    breaks = facts.host.graph_breaks
    number = breaks.height / facts.step_count
    if number < limit.BREAKS:
        return
    eager = facts.host.inside(facts.host.regions.eager)
    by_name = eager.group_by("name").agg(pl.col("duration_ns").sum()).sort(-pl.col("duration_ns"), "name")
    evidence = [
        Evidence(clean(name), ns / facts.step_count) for name, ns in by_name.head(limit.MAX_EVIDENCE).iter_rows()
    ]
    gain = None
    if breaks["from_graph"].all():
        idle, launched = facts.idle_gain_ns(facts.idle_in_breaks[0]), facts.longest(_work_launched_in(facts, breaks))
        evidence += [Evidence("idle meanwhile", idle), Evidence("device time of what is launched there", launched)]
        gain = idle + launched
    a_step, operators = " a step" if facts.frames.is_mean else "", round(eager.height / facts.step_count)
    spent = duration(facts.per_step(eager["duration_ns"]))
    ran = (
        f"; {count_of(operators, 'operator runs', 'operators run')} there, not compiled, for {spent}"
        if operators
        else ""
    )
    yield Observation(
        f"A function is left in the middle of its compiled code {times(number)}{a_step}{ran}.",
        [one for one in evidence if one.value],
        gain,
        "timeline",
    )


def _work_launched_in(facts: Facts, breaks: pl.DataFrame) -> pl.DataFrame:
    """The device activities whose launch lies in a break."""
    windows = breaks.select("run_id", pl.col("start_ns").alias("from_ns"), "duration_ns").sort("from_ns")
    work = facts.work.drop_nulls("call_start_ns").sort("call_start_ns").drop("duration_ns")
    joined = work.join_asof(windows, left_on="call_start_ns", right_on="from_ns", by="run_id", check_sortedness=False)
    return joined.filter(pl.col("call_start_ns") < pl.col("from_ns") + pl.col("duration_ns"))


@rule(
    "graph-replays",
    "Replays of graphs have no layers",
    fires=f"At least {limit.REPLAY_SHARE:.0%} of device time is replays of graphs that no layer is known of.",
    why="A replay is one call for thousands of kernels: the trace says neither which layer nor which operator each was"
    " captured from. Tables over layers, operators and phases leave them out.",
    gain="None: this is about the numbers.",
    do="Record the capture of the graphs too, and pass it: --graph-capture PATH. vLLM: --profiler-config with"
    " capture_torch_profiler (it writes capture_traces/ beside the trace). SGLang: --enable-profile-cuda-graph with"
    " SGLANG_GRAPH_BATCH_CAPTURE=1. A program of your own: capture them under torch.profiler. xsp info"
    " names captures that lie beside the trace.",
    source="Our choice. vllm/config/profiler.py (vLLM pull request 37524), SGLang pull request 24370.",
    needs=("kernel",),
    on_trust=True,
)
def graph_replays(facts: Facts) -> Iterator[Observation]:
    """Device time attributed to replays, over the whole trace."""
    replayed, total = (
        facts.time_by_attribution.get(str(Attribution.GRAPH_REPLAY), 0.0),
        sum(facts.time_by_attribution.values()),
    )
    if not total or replayed / total < limit.REPLAY_SHARE:
        return
    is_of_torch = facts.context.runs["format"].is_in(formats_by(Recorder.TORCH_PROFILER)).any()
    yield Observation(
        f"{share(replayed / total)} of device time is replays of graphs, of which no layer is known.",
        (Evidence("replayed", replayed), Evidence("all device time", total)),
        None,
        "ledger",
        do=f"{RECORD_NODES}." if not is_of_torch else give_captures(facts.captures) if facts.captures else "",
    )


# Rules on how the model is run: recomputation, the optimizer, the batch size.


@rule(
    "recompute",
    "The forward pass is run again",
    fires=f"Activation checkpointing takes at least {limit.RECOMPUTE_SHARE:.0%} of device time.",
    why="Checkpointing trades device time for memory; where memory is to spare, the trade is a loss.",
    gain="Device time of recomputed work.",
    do="Checkpoint fewer layers, those that are cheap to compute and large to keep; see A04 for the memory.",
    source="Our choice; a full checkpoint costs about a quarter of device time.",
)
def recompute(facts: Facts) -> Iterator[Observation]:
    """Device work of phase recompute."""
    rows = facts.work.filter(pl.col("phase") == str(Phase.RECOMPUTE))
    time = total_of(rows["ns"])
    if facts.device_share(time) < limit.RECOMPUTE_SHARE:
        return
    yield Observation(
        f"Work that runs again in the backward pass takes {share(facts.device_share(time))} of device time.",
        (Evidence("recomputed", time), Evidence("all device time", facts.device_ns)),
        facts.longest(rows),
        "B06",
    )


_SET_TO_NONE = "Most of them fill gradients with zeros: zero_grad(set_to_none=True), PyTorch's default since 2.0."


@rule(
    "optimizer-kernels",
    "The optimizer runs a kernel for every parameter",
    fires=f"The optimizer launches at least {limit.OPTIMIZER_KERNELS} kernels a step that are not of many parameters.",
    why="Each parameter is updated by several tiny kernels, bound by their launches, for which the host takes long.",
    gain="Device time of the optimizer's chains of kernels less the longest of each step: a fused one has to remain."
    " Where that is more, the host's time in the optimizer less one launch's part of it, but no more than the device is"
    " idle for in the step and that device time.",
    do="fused=True or foreach=True in torch.optim, or a fused optimizer of a library.",
    source="Our choice; fused optimizers need a handful.",
)
def many_optimizer_kernels(facts: Facts) -> Iterator[Observation]:
    """Kernels of phase optimizer, without those of many parameters."""
    rows = facts.single_updates
    if rows.is_empty():
        return
    number = rows.height / facts.step_count
    fills = rows.filter(pl.col("kernel_class").cast(pl.String) == str(KernelClass.MEMSET)).height
    time = facts.longest(rows)
    longest = float(rows["duration_ns"].max() or 0)  # type: ignore[arg-type]
    saved = max(time - longest, 0.0)
    spans = facts.host.updates
    on_host = facts.host.open_ns(spans)
    less = min(on_host * (1 - facts.step_count / rows.height), facts.idle_ns + saved)
    by_name = spans.group_by("name").agg(pl.col("duration_ns").sum()).sort(-pl.col("duration_ns"), "name")
    evidence = [
        Evidence("kernels", round(number), ""),
        Evidence("device time", time),
        Evidence("idle while it is open on the host", facts.host.idle_within(spans)),
        *(
            Evidence(f"{clean(name)} on the host", facts.per_step(pl.Series([ns])))
            for name, ns in by_name.head(limit.MAX_EVIDENCE).iter_rows()
        ),
    ]
    there = f"; the host takes {duration(on_host)} for that" if on_host else ""
    yield Observation(
        f"The optimizer launches {count(round(number))} kernels a step ({duration(time)} of device time){there}.",
        [one for one in evidence if one.value],
        max(saved, less),
        "A10",
        do=_SET_TO_NONE if fills > rows.height / 2 else "",
    )


@rule(
    "small-batch",
    "Larger batches still pay",
    fires="Of several batch sizes measured, the last doubling still raised throughput by more than"
    f" {limit.BATCH_GROWTH:.0%}.",
    why="The device is not yet full: each input costs less in a larger batch.",
    gain="Unknown beyond the largest batch measured.",
    do="Measure larger batches until throughput stops growing or memory is full (A01 then marks the optimal one).",
    source="XSP's definition of the optimal batch size.",
)
def small_batch(facts: Facts) -> Iterator[Observation]:
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
    if growth <= limit.BATCH_GROWTH:
        return
    yield Observation(
        f"From batch {largest // 2} to {largest} throughput rose by {share(growth)}, to"
        f" {quantity(rates[largest], 'inputs/s')}.",
        (
            Evidence(f"inputs/s at {largest // 2}", rates[largest // 2], ""),
            Evidence(f"at {largest}", rates[largest], ""),
        ),
        None,
        "A01",
    )
