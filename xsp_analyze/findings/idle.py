"""Rules on a device that has nothing to do: launches, waits of the host, input data, copies."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Evidence, Observation, rule, times
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.device_time import NS_PER_S, with_start_up, working_times
from xsp_analyze.frames.host_calls import is_named
from xsp_analyze.frames.idle import CAUSES, DEVICE, SHORT_GAP_NS, idle_by_device
from xsp_analyze.frames.steps import StepMode
from xsp_analyze.needs import holds
from xsp_analyze.text.table import clean, short_name
from xsp_analyze.text.units import IDLE, count, count_of, duration, share, size
from xsp_model import Kind, Level
from xsp_model.columns.intervals import merge, union_length

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.findings.facts import Facts
    from xsp_analyze.needs import Need

__all__ = ["copies_in_step", "data_wait", "gpu_idle", "host_sync", "launch_bound", "page_migrations", "pageable_copies"]

_BETWEEN_REPLAYS = (
    "Most device work is in replays of graphs already. Look at the timeline for what the host does between them:"
    " sampling, scheduling, input, waits."
)

_COPYING_CALLS = r"(?i)^(?:cuda|cu|hip)(?:Memcpy|(?:Stream|Device|Event|Ctx)Synchronize)"
_ALLOCATIONS = re.compile(r"(?i)(?:malloc|memalloc|hostalloc|free|hostregister)")
_ONCE = "Reserve memory once and use it again, or take it from a caching allocator: the host spends this time in {}."
_IN_CALL = (
    "See why the host spends so long in {}. Take synchronisation out of the step, use larger batches, prepare input in"
    " other processes, and let fewer launches do more."
)

# Findings on idle time divide that of one device, the one that is idle least, as B03 divides it: each of its moments
# is in the gain of one of them at most.


def _input_ns(facts: Facts) -> float:
    """Idle time that data-wait tells; 0 where it is too little of it."""
    return _at_least(limit.DATA_SHARE * facts.idle_window_ns, facts.idle_of("idle_input_ns"))


def _sync_ns(facts: Facts) -> float:
    """Idle time that host-sync tells, likewise."""
    return _at_least(limit.SYNC_SHARE * facts.idle_window_ns, facts.idle_of("idle_sync_ns"))


def _launching_ns(facts: Facts) -> float:
    """Idle time that launch-bound tells, likewise; 0 where kernels are few, or most are replayed."""
    kernels = facts.work.filter(pl.col("kind").cast(pl.String) == str(Kind.KERNEL))
    if kernels.height / facts.step_count < limit.MANY_KERNELS:
        return 0.0
    if not all(holds(facts.frames.of_trace, need) for need in _LAUNCH_NEEDS):
        return 0.0
    lower_ns = max(limit.LAUNCH_SHARE * facts.idle_window_ns, limit.LAUNCH_IDLE_SHARE * facts.idle_ns)
    return _at_least(lower_ns, facts.idle_of("launching_ns") - facts.idle_in_breaks[1])


def _compiling_ns(facts: Facts) -> float:
    """What recompilation tells of the initialisation in a mean step; of a whole trace that is start-up."""
    return 0.0 if facts.start_up_ns else min(facts.host.recompiling_ns, facts.idle_of("idle_initialisation_ns"))


def _updating_ns(facts: Facts) -> float:
    """Of idle time for whose end no launch is known what optimizer-kernels tells."""
    return facts.unknown_within(facts.host.updates) if facts.single_updates.height else 0.0


def _at_least(lower_ns: float, time_ns: float) -> float:
    """The time; 0 where it is less."""
    return time_ns if time_ns >= lower_ns else 0.0


@rule(
    "gpu-idle",
    "The device waits for the host",
    fires=f"The busiest device has nothing to do for at least {limit.IDLE_SHARE:.0%} of a step, and for at least"
    f" {limit.IDLE_REST:.0%} beside what other findings tell of its idle time. Not where it works for under"
    f" {limit.LITTLE_NS / 1e6:g} ms in all, in no step.",
    why="A device that waits is paid for and does nothing. The host launches too late: it is busy with Python, with"
    " many small operators, with reading data, or it waits for the device itself.",
    gain="Idle time of the busiest device (B03) that no finding on input, waits, launches, compilation or breaks of"
    " graphs tells (nor that on an optimizer, where no launch is known), without what is the profiler's and, where that"
    " is most, what launched work waits for or the trace does not tell; of a profile of levels as much of it as a step"
    " is idle without a profiler.",
    do="Look at the timeline for where the gaps are, and at what the host does in them. Take synchronisation out of the"
    " step, use larger batches, prepare input in other processes, and let fewer launches do more.",
    source="Our choice; the rule gpu_time_util of Nsight Systems speaks below 50 % use.",
    needs=("timeline",),
)
def gpu_idle(facts: Facts) -> Iterator[Observation]:
    """Idle time of the busiest device that no other finding tells."""
    elsewhere = sum(part(facts) for part in (_input_ns, _sync_ns, _launching_ns, _compiling_ns, _updating_ns))
    elsewhere += facts.idle_in_breaks[0]
    rest = facts.idle_ns - elsewhere - facts.idle_of("idle_profiler_ns")
    replays = not holds(facts.frames.of_trace, "few replays")
    unexplained = 0.0 if replays else _unexplained_ns(facts, rest)
    rest -= unexplained
    if (
        facts.devices.is_empty()
        or facts.has_little_work
        or facts.idle_share(facts.idle_ns) < limit.IDLE_SHARE
        or facts.idle_share(rest) < limit.IDLE_REST
    ):
        return
    calls = _calls(facts)
    others = "what other findings tell" if elsewhere else ""
    others += (
        f"{' and ' if others else ''}{duration(unexplained)} that no work of the host explains" if unexplained else ""
    )
    beside = f", {share(facts.idle_share(rest))} beside {others}" if others else ""
    yield Observation(
        f"Even the busiest device is idle for {share(facts.idle_share(facts.idle_ns))} of the time"
        f" ({duration(facts.idle_ns)} of {duration(facts.idle_window_ns)}{_kernels_profiled_words(facts)}"
        f"{_start_up_words(facts)}){beside}{_calls_words(facts, calls)}{_longest_words(facts)}.",
        (Evidence("latency", facts.latency_ns), Evidence("idle", facts.idle_ns), *_causes(facts), *_spans_open(facts)),
        facts.idle_gain_ns(rest),
        "B03",
        do=_BETWEEN_REPLAYS if replays else _advice_on(calls[0][0]) if calls else "",
    )


def _start_up_words(facts: Facts) -> str:
    return " without start-up" if facts.start_up_ns else ""


def _kernels_profiled_words(facts: Facts) -> str:
    return " with kernels profiled" if facts.idle_window_ns != facts.latency_ns else ""


def _unexplained_ns(facts: Facts, rest_ns: float) -> float:
    """What launched work waits for or the trace does not tell, where that is most of the rest; else 0.

    Where no launch tells, the host is what had something open.
    """
    unexplained = facts.idle_of("idle_launch_ns", "idle_unknown_ns") - facts.open_in_unknown[1] - _launching_ns(facts)
    return _at_least(rest_ns / 2, max(unexplained, 0.0))


def _calls(facts: Facts) -> list[tuple[str, float]]:
    """The calls of the host that explain most of the idle time of that device, where any explains much."""
    table, busiest = facts.table("B16"), facts.idle_device
    if table is None:
        return []
    of_device = pl.col("device_id").eq_missing(pl.lit(busiest["device_id"], pl.Int64))
    rows = table.filter(pl.col("run_id") == busiest["run_id"], of_device)
    elsewhere = {"initialisation": facts.start_up_ns, "input": _input_ns(facts), "sync": _sync_ns(facts)}
    rows = rows.filter(~pl.col("cause").is_in([cause for cause, time in elsewhere.items() if time]))
    return facts.main_calls(rows, busiest["waiting_ns"])


def _advice_on(call: str) -> str:
    return (_ONCE if _ALLOCATIONS.search(call) else _IN_CALL).format(clean(call))


def _calls_words(facts: Facts, calls: Sequence[tuple[str, float]]) -> str:
    parts = [f"{clean(call)} ({share(ns / facts.idle_ns)})" for call, ns in calls]
    return f", of which the host spends much in {', '.join(parts)}" if parts else ""


def _longest_words(facts: Facts) -> str:
    """The one pause, of a trace taken whole, that is most of its idle time."""
    device, frames = facts.idle_device, facts.frames
    if frames.choice.mode is not StepMode.ALL or not facts.idle_ns:
        return ""
    key = device["run_id"], device["device_id"]
    idle = with_start_up(frames.of_trace.once(idle_by_device)[key], working_times(frames.of_trace).get(key[0]))
    idle = idle.of(idle.cause != CAUSES.index("idle_initialisation_ns"))
    start, end = merge(idle.start, idle.end)
    longest = int((end - start).max(initial=0))
    if longest < limit.OUTLIER_SHARE * facts.idle_ns:
        return ""
    return f"; one pause of {duration(longest)} is {share(min(longest / facts.idle_ns, 1.0))} of it"


def _causes(facts: Facts) -> Iterator[Evidence]:
    """What B03 knows of the idle time of the device that is idle least; only causes that occur."""
    for column, cause in IDLE.items():
        if (time := facts.idle_of(column)) and not (facts.start_up_ns and column == "idle_initialisation_ns"):
            yield Evidence(f"idle: {cause}", time)


def _spans_open(facts: Facts) -> Iterator[Evidence]:
    """What was open on the host while the device waited for work of which no launch is known."""
    for name, ns in facts.open_in_unknown[0].head(limit.MAX_EVIDENCE).iter_rows():
        yield Evidence(f"of unknown {clean(name)} was open", ns)


_LAUNCH_NEEDS: Sequence[Need] = ("timeline", "launches", "few replays")


@rule(
    "launch-bound",
    "The device idles between short kernels",
    fires=f"A step has at least {limit.MANY_KERNELS} kernels, and gaps of at most {limit.LAUNCH_GAP_NS // 1000} \u00b5s"
    " between device work take, but for what waits, input, start-up, breaks of graphs and calls that are named explain"
    f" of them, at least {limit.LAUNCH_SHARE:.0%} of it and {limit.LAUNCH_IDLE_SHARE:.0%} of the time in which the"
    " device is idle.",
    why="Each launch costs the host several microseconds, and an operator of the framework some tens of them. Where"
    " kernels are shorter than that, the device outruns the host and waits for the next launch.",
    gain="The sum of these gaps, part of B03's idle_host_ns and idle_launch_ns.",
    do="Launch less: fusion (torch.compile) makes fewer and longer kernels, graphs (torch.compile with"
    " mode='reduce-overhead', torch.cuda.graph) replay many with one call, larger batches make longer ones.",
    source="Our choice. A launch takes 5 to 10 \u00b5s, an operator in Python with its profiler some tens.",
    needs=_LAUNCH_NEEDS,
)
def launch_bound(facts: Facts) -> Iterator[Observation]:
    """Short gaps in which the host only launched."""
    lost = _launching_ns(facts)
    if not lost:
        return
    kernels = facts.work.filter(pl.col("kind").cast(pl.String) == str(Kind.KERNEL))
    number = kernels.height / facts.step_count
    launches = kernels.drop_nulls("call_end_ns").unique("parent_id")
    evidence = [Evidence("kernels", round(number), ""), Evidence("idle between them", lost)]
    if launches.height:
        spent = facts.per_step(launches["call_end_ns"] - launches["call_start_ns"])
        evidence.append(Evidence("time in launch calls", spent))
    median = float(kernels["duration_ns"].median() or 0)  # type: ignore[arg-type]
    yield Observation(
        f"Between {count(round(number))} kernels, half of them of at most {duration(median)}, the device is idle for"
        f" {duration(lost)}, {share(facts.idle_share(lost))} {facts.of_the_time}, in gaps of at most"
        f" {duration(limit.LAUNCH_GAP_NS)}.",
        evidence,
        facts.idle_gain_ns(lost),
        "A10",
    )


@rule(
    "host-sync",
    "The host waits for the device in the middle of a step",
    fires=f"In and after calls that wait for the device, it is idle for at least {limit.SYNC_SHARE:.0%} of a step.",
    why="While the host waits it launches nothing. When the wait ends the device has run dry, and stays so until the"
    " next launch arrives.",
    gain="B03's idle_sync_ns: idle device time in such calls, and from their end on to the next device work, without"
    " what the host then spends on input or compilation, and no more than the wait took (so much earlier the host would"
    f" be), nor than {SHORT_GAP_NS // 1000} \u00b5s: a longer pause is work of the host's own. A call waits while work"
    " that was launched before it is unfinished, and a copy that blocks while it copies.",
    do="Find what waits: .item(), .cpu(), printing a tensor, comparisons in Python, nonzero(), copies that are not"
    " non_blocking. Keep such values on the device and read them once in many steps.",
    source="Our choice; the calls are those of the rule cuda_api_sync of Nsight Systems, with events, driver and HIP.",
)
def host_sync(facts: Facts) -> Iterator[Observation]:
    """Idle time that follows synchronisation."""
    lost = _sync_ns(facts)
    if not lost:
        return
    waits = facts.host.waits
    number, a_step = waits.height / facts.step_count, " a step" if facts.frames.is_mean else ""
    names = waits.group_by("name").agg(pl.col("waited_ns").sum()).sort(-pl.col("waited_ns"), "name")
    evidence = [
        Evidence(f"waited in {name}", time / facts.step_count)
        for name, time in names.head(limit.MAX_EVIDENCE).select("name", "waited_ns").iter_rows()
    ]
    yield Observation(
        f"The host waits for the device {times(number)}{a_step}; in and after that the device is idle for"
        f" {duration(lost)}, {share(facts.idle_share(lost))} {facts.of_the_time}.",
        evidence,
        facts.idle_gain_ns(lost),
        "timeline",
    )


@rule(
    "data-wait",
    "The device waits for input",
    fires=f"Devices are idle for at least {limit.DATA_SHARE:.0%} of a step while the host fetches the next batch.",
    why="Reading, decoding and collating input takes the host longer than the device needs for a batch.",
    gain="B03's idle_input_ns: idle device time until the next launch while a span of the data loader is open.",
    do="More num_workers, persistent_workers and prefetch_factor for PyTorch's DataLoader, prefetch() in tf.data;"
    " decode on the device or beforehand.",
    source="Our choice.",
    needs=("timeline",),
)
def data_wait(facts: Facts) -> Iterator[Observation]:
    """Idle time inside spans of data loaders."""
    lost = _input_ns(facts)
    if not lost:
        return
    fetching = facts.per_step(facts.host.data_waits["duration_ns"])
    yield Observation(
        f"Devices are idle for {duration(lost)}, {share(facts.idle_share(lost))} {facts.of_the_time}, while the next"
        " batch is fetched.",
        (Evidence("fetching input", fetching), Evidence("idle meanwhile", lost)),
        facts.idle_gain_ns(lost),
        "timeline",
    )


# Rules on copies: those that nothing runs beside, those of pageable memory.

_PAGEABLE = "Pageable"
_FEWER_COPIES = (
    "These are small: each takes as long as its start, whatever the memory. Copy less often: gather values on the"
    " device and read them at once, once in many steps, instead of one at a time."
)
_NOTHING_BESIDE = (
    "Nothing computes as long as that, to copy beside: keep data on the device from one use to the next, move fewer"
    " bytes (a narrower type, only what is needed), and pin the host memory."
)
_WAYS = ("Host-to-Device", "Device-to-Host")
_COPY_BACK = (
    "Copy results asynchronously into host memory that is pinned once and used again, or keep them on the device until"
    " the end."
)


@rule(
    "pageable-copies",
    "Copies use pageable memory",
    fires=f"Copies from or to pageable host memory take at least {limit.PAGEABLE_SHARE:.0%} of a step.",
    why="The driver copies pageable memory through a pinned buffer of its own: slower, and never beside other work, as"
    " even an asynchronous call then waits.",
    gain="Device time of these copies, on the device where it is most, less what the bus takes for their bytes at its"
    " peak (PCI Express, where the device's is known).",
    do="Pin the host memory (pin_memory=True in PyTorch's DataLoader) and copy with non_blocking=True.",
    source="Our choice of share; CUDA C++ Best Practices Guide on pinned memory, rule cuda_memcpy_async of Nsight"
    " Systems.",
    needs=("timeline",),
    explains=("copies-in-step",),
)
def pageable_copies(facts: Facts) -> Iterator[Observation]:
    """Copies with a pageable end."""
    ends = pl.any_horizontal(pl.col("source_kind", "destination_kind").cast(pl.String) == _PAGEABLE)
    columns = ("span_id", "bytes", "destination_kind")
    pageable = facts.frames.trace.scan("copies").filter(ends).select(columns).collect()
    rows = (
        facts.work.lazy()
        .select("span_id", "run_id", "device_id", "ns", "duration_ns")
        .join(pageable.lazy(), on="span_id")
        .collect()
    )
    time, bus = facts.longest(rows), facts.context.peaks.get("pcie")
    if facts.share(time) < limit.PAGEABLE_SHARE:
        return
    on_bus = pl.col("bytes").fill_null(0) * NS_PER_S / bus if bus else pl.lit(0.0)
    saved = pl.col("ns") * (1 - (on_bus / pl.col("duration_ns")).fill_nan(1).clip(0, 1))
    gain = facts.longest(rows.with_columns(saved.alias("saved_ns")), "saved_ns")
    pinned = f"; pinned they would take {duration(time - gain)} at least" if bus else ""
    moved = facts.per_step(rows["bytes"])
    to_host = rows.filter(pl.col("destination_kind").cast(pl.String) == _PAGEABLE)["ns"].sum() > rows["ns"].sum() / 2
    is_small = moved * facts.step_count < limit.SMALL_COPY_BYTES * rows.height
    copies = count_of(round(rows.height / facts.step_count, 1), "copy", "copies")
    yield Observation(
        f"Device time of {copies} with pageable memory ({size(moved)}) is {duration(time)},"
        f" {share(facts.share(time))} {facts.of_the_time}{pinned}.",
        (Evidence("bytes moved", moved, "byte"), Evidence("device time", time)),
        gain,
        "A10",
        "pageable",
        do=_FEWER_COPIES if is_small else _COPY_BACK if to_host else "",
        is_for_any=is_small or to_host,
    )


@rule(
    "page-migrations",
    "Pages of unified memory move while the device works or waits",
    fires="Migrations of unified memory, and kernels and fills that wait for pages, take at least"
    f" {limit.COPY_SHARE:.0%} of a step.",
    why="Pages of unified memory move when either side touches them: in small pieces, while what touched them waits."
    " Where both touch the same pages in turn they move again each time, and a prefetch is in vain.",
    gain="Time in which pages move, or a kernel waits for faults, with fills that either meets, on the device where it"
    " is most; what must move once in any case is in it.",
    do="Move pages before they are used (cudaMemPrefetchAsync, to the host too before it reads), say who uses them"
    " (cudaMemAdvise: read by both, preferred place), or keep data in device memory and copy it explicitly. See that"
    " the host does not touch it in between.",
    source="CUDA C++ Programming Guide on unified memory; our choice of share.",
    needs=("timeline",),
)
def page_migrations(facts: Facts) -> Iterator[Observation]:
    """Migrations, how much moves again, and what waits for them."""
    if facts.devices.is_empty() or not facts.migrating:
        return
    device, (time, _, waiting) = max(facts.migrating.items(), key=lambda each: each[1][0])
    if facts.share(time) < limit.COPY_SHARE:
        return
    steps = max(facts.host.windows.filter(pl.col("run_id") == device[0]).height, 1)
    moved = facts.migrations.filter(pl.col("run_id") == device[0], pl.col("device_id").eq_missing(pl.lit(device[1])))
    to_device, to_host = (moved.filter(pl.col("copy_kind") == f"Unified {way}") for way in _WAYS)
    placed = to_device.drop_nulls(["virtual_address", "bytes"])
    begin = placed["virtual_address"].to_numpy()
    again = total_of(placed["bytes"]) - union_length(*merge(begin, begin + placed["bytes"].to_numpy()))
    sizes = [size(total_of(rows["bytes"]) / steps) for rows in (to_device, to_host)]
    evidence = [
        Evidence("moving to the device", total_of(to_device["duration_ns"]) / steps),
        Evidence("moving back", total_of(to_host["duration_ns"]) / steps),
        Evidence("to the device again", again / steps, "byte"),
        *(Evidence(f"{short_name(name)} meanwhile", ns) for name, ns in waiting.head(limit.MAX_EVIDENCE).iter_rows()),
    ]
    yield Observation(
        f"Pages of unified memory move, or are waited for, for {duration(time)}, {share(facts.share(time))}"
        f" {facts.of_the_time}: {sizes[0]} to the device and {sizes[1]} back, in"
        f" {count_of(round(moved.height / steps), 'piece', 'pieces')}.",
        [one for one in evidence if one.value],
        time,
        "A10",
        "Unified",
        is_for_any=True,
    )


@rule(
    "copies-in-step",
    "The device copies while it could compute",
    fires=f"Copies and memsets that nothing else runs beside take at least {limit.COPY_SHARE:.0%} of a step; of a file"
    " of sums all that do.",
    why="Copy engines work beside the arithmetic units; a copy that runs alone is time in which nothing computes.",
    gain="Time of copies and memsets in which the device neither computes nor communicates, on the device where it is"
    " most, but for those that set up a program before its first kernel, and for migrations of unified memory.",
    do="Copy the next batch on a stream of its own while this one computes; keep what is used again on the device;"
    " allocate without filling.",
    source="Our choice.",
    needs=("timeline",),
)
def copies_in_step(facts: Facts) -> Iterator[Observation]:
    """Exposed copies of B03."""
    if facts.devices.is_empty():
        return
    apart = {device: alone for device, (_, alone, _) in facts.migrating.items()}
    rows = facts.devices.select(*DEVICE, "exposed_memory_ns").iter_rows()
    time = max(float(exposed or 0) - apart.get((run, device), 0.0) for run, device, exposed in rows)
    time = max(time - facts.longest(facts.set_up, "duration_ns"), 0.0)
    if facts.share(time) < limit.COPY_SHARE or not facts.devices["compute_ns"].sum():
        return
    kinds = [str(Kind.MEMCPY), str(Kind.MEMSET)]
    copies = facts.work.filter(pl.col("kind").is_in(kinds))
    copies = copies.join(facts.migrations, on="span_id", how="anti", maintain_order="left")
    copies = copies.join(facts.calls, on="span_id", how="left", maintain_order="left")
    sums = (pl.col("ns", "calls").sum(), pl.len().alias("rows"))
    by_name = copies.group_by(pl.col("name").cast(pl.String)).agg(sums).sort(-pl.col("ns"), "name")
    computing = float(facts.devices["compute_ns"].max() or 0)  # type: ignore[arg-type]
    has_starts = facts.frames.of_trace.has_starts
    how, of_what, often = f"run alone for {duration(time)}", facts.of_the_time, ""
    part = facts.share(time)
    if not has_starts:
        how, of_what, often = f"take {duration(time)} in sum", "of device time", _small_words(by_name)
        part = facts.device_share(time)
    yield Observation(
        f"Copies and memsets {how}, {share(part)} {of_what}{often}.",
        [
            *(Evidence(name if calls == rows else f"{name} ({count(calls)} calls)", ns)
              for name, ns, calls, rows in by_name.head(limit.MAX_EVIDENCE).iter_rows()),
            *(() if has_starts else _calls_that_copy(facts)),
        ],
        time,
        "A10",
        "mem",
        do=_FEWER_COPIES if often else _NOTHING_BESIDE if time > computing else "",
        is_for_any=bool(often) or time > computing,
    )  # fmt: skip


def _small_words(by_name: pl.DataFrame) -> str:
    """Of sums the copies that are many and short, if any are: what is said of them beside their time."""
    small = by_name.filter(pl.col("calls") >= limit.MANY_COPIES, pl.col("ns") < limit.SMALL_COPY_NS * pl.col("calls"))
    if small.is_empty():
        return ""
    name, ns, calls, _ = small.sort(-pl.col("calls"), "name").row(0)
    return f"; {count(calls)} of {name} take {duration(ns / calls)} each"


def _calls_that_copy(facts: Facts) -> Iterator[Evidence]:
    """The calls in which the host copies or waits, of a file of sums: short copies cost it more than the device."""
    calls = facts.frames.of_trace.kernel_runs.scan("spans").filter(
        pl.col("level").cast(pl.String) == str(Level.RUNTIME),
        is_named(facts.frames.of_trace, lambda name: name.str.contains(_COPYING_CALLS)),
    )
    sums = calls.group_by(pl.col("name").cast(pl.String)).agg(pl.col("duration_ns").sum()).collect()
    for name, ns in sums.sort(-pl.col("duration_ns"), "name").head(2).iter_rows():
        yield Evidence(f"host in {clean(name)}", ns)
