"""Rules that hold kernels, layers and operators against what the device can do: roofs, shapes, traffic, waves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.classification import KernelClass
from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Basis, Evidence, Observation, rule
from xsp_analyze.formulas import quotient, total_of
from xsp_analyze.frames.kernels.measured_work import MEASURED
from xsp_analyze.frames.kernels.roofline import BANDWIDTH
from xsp_analyze.text.table import clean, short_name
from xsp_analyze.text.units import count, duration, share, short_call, spelled_call

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_analyze.findings.facts import Facts

__all__ = [
    "below_roof",
    "excess_traffic",
    "far_from_peak",
    "low_occupancy",
    "memory_bound",
    "small_grids",
    "tail_waste",
    "time_above_roof",
    "wide_types",
]

# Rules that hold operators against what their shapes ask of the device.

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
    first = rows.head(limit.MAX_EVIDENCE).iter_rows(named=True)
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
    worst = bound.head(limit.MAX_EVIDENCE).iter_rows(named=True)
    yield Observation(
        f"Operators on FP32 that only wait for memory take {share(facts.device_share(time))} of device time; in"
        f" {facts.context.narrow_type} they would move half of the bytes.",
        [Evidence(short_call(row, _MAX_LABEL), row["spent_ns"]) for row in worst],
        gain,
        "B23",
        coverage=facts.device_share(total_of(rows["spent_ns"])),
        basis=Basis.MODELLED,
    )


# Rules that hold kernels and layers against their roof; they need hardware counters.


def _measured_rows(facts: Facts, identity: str) -> pl.DataFrame | None:
    """The rows of A09 or A14 whose flop and bytes counters measured; models have rules of their own (`shapes`)."""
    table = facts.table(identity)
    return None if table is None else table.filter(pl.col("work_basis") == MEASURED)


def time_above_roof(facts: Facts, which: pl.Expr) -> float | None:
    """Time above what the roof allows, of A09's kernels that were measured; None where no roof is known."""
    table = _measured_rows(facts, "A09")
    rows = None if table is None else table.filter(which).drop_nulls("roof_share")
    if rows is None or rows.is_empty():
        return None
    best = rows.sort("roof_share", descending=True).unique("execution", keep="first", maintain_order=True)
    return float((best["duration_ns"] * (1 - best["roof_share"].clip(0, 1))).sum())


@rule(
    "below-roof",
    "Kernels reach little of what the device can do",
    fires=f"Kernels that reach less than {limit.BELOW_ROOF:.0%} of their roof take at least"
    f" {limit.ROOF_TIME_SHARE:.0%} of device time (needs hardware counters).",
    why="Neither arithmetic nor memory bandwidth limits such a kernel, but latency, too little parallel work, uneven"
    " blocks or instructions that are no flops.",
    gain="Sum over these kernels of time times (1 - share of the roof reached).",
    do="Larger batches or problem sizes for more parallel work, another algorithm or tile size, fewer and larger"
    " kernels; what stalls them, a report of Nsight Compute tells (A08).",
    source="Our choice; roofline model of Williams, Waterman and Patterson (2009).",
    basis=Basis.COUNTERS,
    needs=("kernel", "peak rates"),
    explains=("dominant-kernel", "far-from-peak"),
)
def below_roof(facts: Facts) -> Iterator[Observation]:
    """Kernels of A09 far below their roof; of a kernel in several precisions its best counts."""
    table = _measured_rows(facts, "A09")
    if table is None:
        return
    best = (
        table.drop_nulls("roof_share")
        .sort("roof_share", descending=True)
        .unique("execution", keep="first", maintain_order=True)
    )
    low = best.filter(pl.col("roof_share") < limit.BELOW_ROOF)
    time = total_of(low["duration_ns"])
    if facts.device_share(time) < limit.ROOF_TIME_SHARE:
        return
    lost = pl.col("duration_ns") * (1 - pl.col("roof_share").clip(0, 1))
    worst = low.group_by("kernel_name").agg(lost.sum().alias("lost")).sort(-pl.col("lost"), "kernel_name")
    yield Observation(
        f"Kernels with {share(facts.device_share(time))} of device time reach less than {share(limit.BELOW_ROOF)} of"
        " their roof.",
        [Evidence(short_name(name), value) for name, value in worst.head(limit.MAX_EVIDENCE).iter_rows()],
        total_of(low.select(lost).to_series()),
        "A09",
    )


@rule(
    "memory-bound",
    "Layers are bound by memory bandwidth",
    fires=f"Layers below the ridge of their roofline take at least {limit.MEMORY_BOUND_SHARE:.0%} of device time;"
    " without hardware counters: operators on types of 4 bytes, whose shapes say that they use at least"
    f" {limit.AT_BANDWIDTH:.0%} of the bandwidth, would save at least {limit.TYPE_SHARE:.0%} of the step with types of"
    " 2 bytes.",
    why="These layers wait for device memory; a faster arithmetic unit would not help them.",
    gain="With counters, the sum over these layers of time times (1 - share of the roof reached): what is left without"
    " less traffic. By shapes, half of the time of the operators on types of 4 bytes, whose traffic would be half."
    " Fusion lowers the traffic too, and can save more.",
    do="Compute in a type of 2 bytes, fuse neighbouring operators (torch.compile, fused kernels), avoid copies of"
    " layout, make batches larger where weights are most of the traffic.",
    source="Most of device time; the ridge is the device's peak over its bandwidth. The rest is our choice.",
    basis=Basis.COUNTERS,
    needs=("kernel",),
    explains=("dominant-kernel", "dominant-layer"),
)
def memory_bound(facts: Facts) -> Iterator[Observation]:
    """Memory bound layers of A14, each in the precision that it does most in; else operators by their shapes."""
    table = _measured_rows(facts, "A14")
    main = None if table is None else (
        table.drop_nulls("bound")
        .sort("flop_count", descending=True, nulls_last=True)
        .unique("layer_index", keep="first", maintain_order=True)
    )  # fmt: skip
    if main is None or main.is_empty():
        yield from wide_types(facts)
        return
    bound = main.filter(pl.col("bound") == "memory")
    time = total_of(bound["kernel_duration_ns"])
    if facts.device_share(time) < limit.MEMORY_BOUND_SHARE:
        return
    left = pl.col("kernel_duration_ns") * (1 - pl.col("roof_share").fill_null(1).clip(0, 1))
    worst = bound.sort("kernel_duration_ns", descending=True).head(limit.MAX_EVIDENCE)
    yield Observation(
        f"{bound.height} of {main.height} layers are memory bound; they take {share(facts.device_share(time))} of"
        " device time.",
        [Evidence(str(n), t) for n, t in worst.select("layer_name", "kernel_duration_ns").iter_rows()],
        total_of(bound.select(left).to_series()),
        "A14",
        coverage=facts.device_share(total_of(main["kernel_duration_ns"])),
    )


# The rule that holds measured traffic against what shapes ask for.


@rule(
    "excess-traffic",
    "Operators move more bytes than their shapes ask for",
    fires=f"Operators that move at least {limit.EXCESS_RATIO:g} times the bytes that their shapes ask for, at"
    f" {limit.EXCESS_BANDWIDTH:.0%} of the memory's bandwidth or more, would save at least {limit.EXCESS_SHARE:.0%} of"
    " a step without the excess (needs hardware counters and shapes).",
    why="An operator has to read each operand and write each result once. What it moves beyond that is the cost of how"
    " it goes about it, or of how its operands lie in memory.",
    gain="Sum over these operators of time times the part of their bytes that is above the model's.",
    do="Look at the operands' strides: of a transposed or sliced tensor whole sectors are fetched for a few bytes"
    " (contiguous(), channels_last). Look for conversions of layout and copies within the operator, for tiles that read"
    " operands again because L2 does not hold them (another algorithm or order of blocks), for registers spilled to"
    " local memory (Nsight Compute: memory workload analysis), and for chains that one fused kernel could do.",
    source="Our choice; bytes as modelled in B11, DRAM traffic by counters.",
    basis=Basis.COUNTERS,
    needs=("kernel", "peak rates"),
    explains=("dominant-kernel",),
)
def excess_traffic(facts: Facts) -> Iterator[Observation]:
    """Rows of B27 with far more bytes than modelled, bound by memory."""
    table, bandwidth = facts.table("B27"), facts.context.peaks.get(BANDWIDTH)
    if table is None or bandwidth is None:
        return
    compared = pl.col("device_sum_ns") * pl.col("bytes_share")
    rows = table.with_columns(compared.alias("compared_ns")).with_columns(
        quotient(pl.col("compared_ns") * pl.col("excess_bytes"), pl.col("measured_bytes")).alias("lost_ns")
    )
    is_waiting = pl.col("byte_per_s") >= limit.EXCESS_BANDWIDTH * bandwidth
    above = rows.filter(pl.col("bytes_ratio") >= limit.EXCESS_RATIO, is_waiting).sort(-pl.col("lost_ns"), "operator")
    gain = total_of(above["lost_ns"]) / max(len(facts.context.runs), 1)
    if facts.share(gain) < limit.EXCESS_SHARE:
        return
    time = total_of(above["compared_ns"])
    rest = f"operators with {share(facts.device_share(time))} of device time move {limit.EXCESS_RATIO:g} times or more"
    worst = list(above.head(limit.MAX_EVIDENCE).iter_rows(named=True))
    yield Observation(
        f"{_operator_in_layer(worst[0])} moves {count(worst[0]['bytes_ratio'])} times the bytes that its shapes ask"
        f" for; {rest}.",
        [Evidence(f"{_operator_in_layer(row)} ({count(row['bytes_ratio'])} times)", row["lost_ns"]) for row in worst],
        gain,
        "B27",
        worst[0]["operator"],
        coverage=facts.device_share(total_of(rows["compared_ns"])),
    )


def _operator_in_layer(row: Mapping[str, object]) -> str:
    layer = row["layer_name"]
    return f"{row['operator']} in {layer}" if layer is not None else str(row["operator"])


# Rules on kernels whose blocks do not fill the device.


@rule(
    "tail-waste",
    "Kernels end in a wave that does not fill the device",
    fires=f"Kernels that lose at least {limit.TAIL_SHARE:.0%} of their time to a last wave that is not full would save"
    f" at least {limit.TAIL_WASTE_SHARE:.0%} of a step with full waves, as estimated.",
    why="A device runs the blocks of a kernel in waves, as many at once as fit. The last wave takes as long as a full"
    " one, however few blocks it has, and with few waves that is a large part of the kernel.",
    gain="Sum over these kernels of time times (ceil(waves) - waves) / ceil(waves): all blocks taken as equally long."
    " Kernels that run beside others on the device do not count.",
    do="Another tile size, split-K or a persistent kernel (stream-K), as autotuning finds them (torch.compile with"
    " max-autotune, cudnn.benchmark); batches and sequence lengths whose blocks fill waves; independent work on a"
    " second stream.",
    source="Our choice; the rule on launch statistics of Nsight Compute speaks of the same.",
    basis=Basis.LAUNCHES,
    needs=("timeline",),
    explains=("dominant-kernel",),
)
def tail_waste(facts: Facts) -> Iterator[Observation]:
    """Kernels of few waves, each alone on its device."""
    kernels, coverage = _with_value(facts, "tail_share")
    wasteful = kernels.filter(pl.col("tail_share") >= limit.TAIL_SHARE)
    lost = wasteful.with_columns((pl.col("ns") * pl.col("tail_share")).alias("lost_ns"))
    gain = facts.longest(lost, "lost_ns")
    if facts.share(gain) < limit.TAIL_WASTE_SHARE:
        return
    time = facts.longest(lost)
    yield Observation(
        f"Kernels that take {duration(time)} end in a wave that is not full, and lose {share(gain / time)} of their"
        " time to it, as estimated.",
        _worst(lost),
        gain,
        "B26",
        coverage=coverage,
    )


@rule(
    "small-grids",
    "Kernels leave multiprocessors without work",
    fires=f"Kernels of {limit.SMALL_GRID_NS / 1000:g} µs and more, and of one name that takes most of device time"
    f" shorter ones too (from {limit.SHORT_GRID_NS / 1000:g} µs on), with fewer blocks than the device has"
    f" multiprocessors would save at least {limit.SMALL_GRID_SHARE:.0%} of a step if they used all, as estimated.",
    why="A block runs on one multiprocessor: the others have nothing to do.",
    gain="Sum over these kernels of time times the part of the multiprocessors without a block. Communication, and"
    " kernels that run beside others on the device, do not count.",
    do="More blocks: smaller tiles, split-K or split reductions, larger batches, several small problems in one kernel"
    " (batched or grouped products); or run independent kernels side by side on several streams.",
    source="Our choice; the rule on small grids of Nsight Compute estimates the same.",
    basis=Basis.LAUNCHES,
    needs=("timeline",),
    explains=("dominant-kernel",),
)
def small_grids(facts: Facts) -> Iterator[Observation]:
    """Kernels that hold the device for long with few blocks, each alone on its device."""
    kernels, coverage = _with_value(facts, "unused_share")
    shortest = pl.when(_leads(facts)).then(limit.SHORT_GRID_NS).otherwise(limit.SMALL_GRID_NS)
    small = kernels.filter(pl.col("unused_share") > 0, pl.col("duration_ns") >= shortest)
    lost = small.with_columns((pl.col("ns") * pl.col("unused_share")).alias("lost_ns"))
    gain = facts.longest(lost, "lost_ns")
    if facts.share(gain) < limit.SMALL_GRID_SHARE:
        return
    time = facts.longest(lost)
    yield Observation(
        f"Kernels that take {duration(time)} use {share(1 - gain / time)} of the device's multiprocessors on average.",
        _worst(lost),
        gain,
        "B26",
        coverage=coverage,
    )


_FILLED_BY_FEW = [
    str(c)
    for c in (
        KernelClass.MATRIX_PRODUCT, KernelClass.CONVOLUTION, KernelClass.ATTENTION, KernelClass.MIXTURE_OF_EXPERTS
    )
]  # fmt: skip
"""Classes of kernels that keep their tiles in registers and shared memory, and need few warps."""
_IF_TILED = (
    "Kernels of this class keep tiles in registers and shared memory on purpose, and need few warps. If it is far from"
    " its peak, try another tile size, so that a second block fits; measure with ncu what its warps wait for."
)


@rule(
    "low-occupancy",
    "Registers or shared memory leave room for few warps",
    fires="Kernels, other than products, convolutions, experts and attention that do not take most of device time under"
    f" one name, of which registers or shared memory let at most {limit.LOW_OCCUPANCY:.0%} of a multiprocessor's warps"
    f" be resident, take at least {limit.ROOF_TIME_SHARE:.0%} of device time.",
    why="A multiprocessor hides the time that loads take by running other warps meanwhile; with few of them it waits.",
    gain="Unknown: fewer registers may mean values that are spilled to memory, and more warps need not be faster.",
    do="Try fewer registers a thread (__launch_bounds__, -maxrregcount, fewer values alive at once, a kernel divided in"
    " two) or less shared memory a block; measure with ncu whether warps do wait for memory.",
    source="Our choice; occupancy is theoretical, of registers, shared memory and blocks as launched (B26).",
    basis=Basis.LAUNCHES,
    needs=("timeline",),
)
def low_occupancy(facts: Facts) -> Iterator[Observation]:
    """Kernels with more blocks than are resident at once, by what limits these."""
    kernels, coverage = _with_value(facts, "theoretical_occupancy")
    low = kernels.filter(
        pl.col("theoretical_occupancy") <= limit.LOW_OCCUPANCY,
        pl.col("limited_by").is_in(["registers", "shared memory", "registers, shared memory"]),
        ~pl.col("kernel_class").cast(pl.String).is_in(_FILLED_BY_FEW) | _leads(facts),
    )
    time = total_of(low["ns"])
    if facts.device_share(time) < limit.ROOF_TIME_SHARE:
        return
    worst = low.group_by("name", "limited_by", "registers_per_thread", "theoretical_occupancy").agg(pl.col("ns").sum())
    name, limits, registers, occupancy, _ = worst.sort(-pl.col("ns"), pl.col("name").cast(pl.String)).row(0)
    by = f" with {registers} registers a thread" if "registers" in limits else ""
    is_tiled = str(low.filter(pl.col("name") == name)["kernel_class"][0]) in _FILLED_BY_FEW
    yield Observation(
        f"Kernels that take {share(facts.device_share(time))} of device time have room for few warps: {limits} let"
        f" {short_name(name)}{by} fill {share(occupancy)} of a multiprocessor's.",
        _worst(low.with_columns(pl.col("ns").alias("lost_ns")), ""),
        None,
        "B26",
        do=_IF_TILED if is_tiled else "",
        is_for_any=is_tiled,
        coverage=coverage,
        about_ns=facts.longest(low),
    )


def _leads(facts: Facts) -> pl.Expr:
    """Whether kernels of this name take most of device time."""
    by_name = facts.lone_kernels.group_by("name").agg(pl.col("ns").sum())
    return pl.col("name").is_in(by_name.filter(pl.col("ns") > facts.device_ns / 2)["name"].implode())


def _with_value(facts: Facts, column: str) -> tuple[pl.DataFrame, float]:
    """The lone kernels of which the column is known, and of what part of their time it is."""
    kernels = facts.lone_kernels
    rows = kernels.drop_nulls(column)
    total = total_of(kernels["ns"])
    return rows, total_of(rows["ns"]) / total if total else 1.0


def _worst(lost: pl.DataFrame, what: str = "lost in ") -> list[Evidence]:
    names = lost.group_by(pl.col("name").cast(pl.String)).agg(pl.col("lost_ns").sum())
    rows = names.sort(-pl.col("lost_ns"), "name").head(limit.MAX_EVIDENCE).iter_rows()
    return [Evidence(f"{what}{short_name(name)}", time) for name, time in rows]
