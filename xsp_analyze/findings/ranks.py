"""Rules on what differs: ranks that work together, devices, steps."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.formulas import mean_of, total_of
from xsp_analyze.frames.device_time import busiest_device, device_time
from xsp_analyze.frames.idle import DEVICE
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION
from xsp_analyze.frames.model_time import load_tests
from xsp_analyze.frames.pipelines import bubble_share, longest_bubble
from xsp_analyze.frames.rank_waits import FEW_CALLS, late_ranks_of
from xsp_analyze.frames.serving_steps import batch_of
from xsp_analyze.frames.steps import StepBasis, StepFault, StepMode
from xsp_analyze.text.doubts import missing_ranks
from xsp_analyze.text.late_ranks import bubble_words, rank_reason
from xsp_analyze.text.table import short_name
from xsp_analyze.text.units import IDLE, count, duration, share, size
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.findings.facts import Facts

__all__ = [
    "exposed_communication",
    "host_ahead",
    "incomplete_steps",
    "pipeline_bubble",
    "ramp_up",
    "small_collectives",
    "straggler",
    "unbalanced_pipeline",
    "uneven_devices",
    "uneven_steps",
]

# Rules on ranks that work together: those that are waited for, and what they say to each other.

_POINT_TO_POINT = frozenset({"send_recv", "send", "recv"})
_PIPELINE = (
    "Stages of a pipeline wait for each other: B46 says what of that the schedule leaves at best, and what unequal"
    " stages and transfers add. More micro-batches a step, several stages a rank by turns (interleaved), or weights'"
    " part of the backward pass moved into the gaps (zero bubble) shorten it."
)
_NO_GRADIENTS = (
    "No backward pass is recorded, so these are no gradients that could go out earlier. What is not hidden is a"
    " transfer that compute depends on, or ranks that come at different times: record all ranks and see who is last;"
    " split the work into parts of which one computes while another communicates."
)


def _operations(facts: Facts) -> Sequence[Mapping[str, Any]]:
    """The rows of B08."""
    table = facts.table("B08")
    return [] if table is None else table.to_dicts()


@rule(
    "straggler",
    "Ranks wait for one that comes late",
    fires=f"Ranks wait in collectives for at least {limit.WAIT_SHARE:.0%} of a step, and of that for one at least"
    f" {limit.STRAGGLER_WAIT:.0%}, and half again of what chance gives the others (of two ranks 75 %), in at least"
    f" {limit.STRAGGLER_CALLS} calls (of {FEW_CALLS} and more: more than chance explains); all ranks of the job are"
    " there.",
    why="A collective ends when the last rank has come. What looks like slow communication on all others is a late"
    " host, a slow device or more work on one.",
    gain="What a rank other than the last waits in a step, as far as nothing computes meanwhile.",
    do="Look at that rank alone: its input, its host, the clocks and the temperature of its device, its part of the"
    " data (long sequences, large tables), and whether its slot differs from the others'.",
    source="Our choice. All ranks leave a collective together, so the shortest kernel is that of the rank that came"
    " last.",
    needs=("communication", "ranks"),
    explains=("exposed-communication", "uneven-devices", "dominant-kernel", "dominant-layer", "gpu-idle"),
)
def straggler(facts: Facts) -> Iterator[Observation]:
    """B30's waits, of the rank for which there are most."""
    waits = facts.table("B30")
    if waits is None or facts.frames.of_trace.once(missing_ranks):
        return
    waits = waits.filter(~pl.col("operation").is_in(list(_POINT_TO_POINT)), pl.col("waited_for_ns") > 0)
    by_rank = waits.group_by("rank").agg(pl.col("waited_for_ns", "last_count").sum())
    if by_rank.is_empty():
        return
    rank, waited, calls = by_rank.sort("waited_for_ns", "rank", descending=[True, False]).row(0)
    of_operation = pl.col("waited_for_ns").sum().over("operation", "process_group")
    for_it = waits.filter(pl.col("waited_for_ns") >= limit.STRAGGLER_WAIT * of_operation, pl.col("rank") == rank)
    keys = set(for_it.select("operation", "process_group").iter_rows())
    own = [row for row in _operations(facts) if row["wait_ns"] and (row["operation"], row["process_group"]) in keys]
    chance = 1 / max((row["rank_count"] for row in own), default=1)
    part = waited / total_of(waits["waited_for_ns"])
    steps = facts.frames.steps["step"].n_unique() if facts.frames.is_mean else 1
    if part < max(limit.STRAGGLER_WAIT, (1 + chance) / 2) or calls * steps < limit.STRAGGLER_CALLS:
        return
    if facts.share(sum(row["wait_ns"] for row in own)) < limit.WAIT_SHARE:
        return
    if rank not in late_ranks_of(facts.frames)["rank"]:
        return
    longest = max(own, key=lambda row: row["wait_ns"])
    last = for_it.filter(pl.col("operation") == longest["operation"])["last_share"].max()
    yield Observation(
        f"Rank {rank} comes last to {share(last)} of the calls of {longest['operation']}: of"  # type: ignore[arg-type]
        f" {duration(longest['duration_ns'])} a step that the {longest['rank_count']} ranks spend in it on average,"
        f" {duration(longest['wait_ns'])} are waiting; of all waiting {share(part)} is for that rank."
        f" {rank_reason(facts.frames, rank)}".rstrip(),
        [Evidence(f"waiting in {row['operation']}, mean over ranks", row["wait_ns"]) for row in own],
        sum(_wait_of_others(row) for row in own),
        "B08",
        coverage=sum(row["matched_count"] for row in own) / sum(row["count"] for row in own),
    )


def _wait_of_others(row: Mapping[str, Any]) -> float:
    """The mean over ranks holds the one that waits for nobody."""
    others = row["rank_count"] / max(row["rank_count"] - 1, 1)
    return float(min(row["wait_ns"], row["exposed_ns"]) * others)


@rule(
    "unbalanced-pipeline",
    "Stages of the pipeline take unequally long",
    fires="Ranks pass work on from one to the next (send and receive take more time than collectives), and the one that"
    f" computes longest computes at least {limit.STAGE_IMBALANCE:.0%} longer than they do on average.",
    why="Micro-batches follow each other through the pipeline at the pace of its slowest stage; the others wait.",
    gain="Latency of a step, times the part by which the longest stage is above the mean: all of a step, its filling"
    " and its draining too, goes at the pace of that stage.",
    do="Move layers from the longest stage to the shortest (embedding and the head count too), or split by measured"
    " time instead of by number of layers.",
    source="Our choice.",
    needs=("timeline", "several devices"),
    explains=("exposed-communication", "uneven-devices", "straggler", "dominant-kernel", "gpu-idle", "uneven-steps"),
)
def unbalanced_pipeline(facts: Facts) -> Iterator[Observation]:
    """Compute time over the devices of ranks that send and receive."""
    rows = _operations(facts)
    passing = sum(row["duration_ns"] for row in rows if row["operation"] in _POINT_TO_POINT)
    if not passing or passing < sum(row["duration_ns"] for row in rows) / 2:
        return
    devices = facts.devices.with_columns(pl.col("compute_ns").cast(pl.Float64)).sort("compute_ns", descending=True)
    longest, mean = float(devices["compute_ns"][0]), mean_of(devices["compute_ns"])
    if not longest or longest < (1 + limit.STAGE_IMBALANCE) * mean:
        return
    yield Observation(
        f"The stage of rank {_rank(facts, devices['run_id'][0])} computes for {duration(longest)} a step, the"
        f" {devices.height} stages on average for {duration(mean)}.",
        (Evidence("longest stage", longest), Evidence("mean over stages", mean), Evidence("passing on", passing)),
        facts.latency_ns * (1 - mean / longest),
        "B03",
    )


@rule(
    "pipeline-bubble",
    "Stages of the pipeline compute nothing",
    fires=f"Of the time of a pipeline's stages, from its first work to its last, at least {limit.PIPELINE_BUBBLE:.0%}"
    " is bubble (B46).",
    why="A stage waits for its first micro-batch, for the last ones to come back, and for stages and links that are"
    " slower than it is.",
    gain="The bubble less what unequal stages add to it, mean over stages. What the schedule leaves at best stands"
    " beside it, and is not all to be had.",
    do="More micro-batches a step or several stages a rank by turns (interleaved) shorten what the schedule leaves, and"
    " weights' part of the backward pass fills it (zero bubble). Move layers off the stage that others wait for; send"
    " earlier, or over a faster link, where transfers add to it.",
    source="Our choice; the ideal of GPipe and 1F1B is (p-1)/(m+p-1) of p stages and m micro-batches.",
    needs=("pipeline",),
    explains=("gpu-idle", "uneven-steps"),
)
def pipeline_bubble(facts: Facts) -> Iterator[Observation]:
    """The pipeline of B46 with the longest bubble."""
    rows = facts.table("B46")
    if rows is None:
        return
    own = longest_bubble(rows)
    if bubble_share(own) < limit.PIPELINE_BUBBLE:
        return
    of_schedule = own["schedule_ns"].drop_nulls()
    ideal = [Evidence("of it the schedule's own", mean_of(of_schedule))] if len(of_schedule) else []
    causes = (("unequal stages", "imbalance_ns"), ("transfers", "transfer_ns"), ("other gaps", "other_ns"))
    of_others = max(mean_of(own["imbalance_ns"]), 0) if ideal else 0
    yield Observation(
        bubble_words(own),
        (
            Evidence("bubble, mean over stages", mean_of(own["bubble_ns"])),
            *ideal,
            *(Evidence(name, mean_of(own[column])) for name, column in causes if own[column].count()),
        ),
        mean_of(own["bubble_ns"]) - of_others,
        "B46",
    )


def _rank(facts: Facts, run_id: int) -> int:
    runs = facts.frames.trace.frame("runs").filter(pl.col("run_id") == run_id)
    return int(runs.select(pl.coalesce("rank", "run_id")).item())


@rule(
    "small-collectives",
    "Many small collectives",
    fires=f"A rank makes at least {limit.SMALL_CALLS} collectives of one kind a step, of at most"
    f" {limit.SMALL_BYTES >> 20} MiB on average (or, where no size is recorded, {limit.SMALL_NS // 1000} \u00b5s),"
    f" and they run for at least {limit.WAIT_SHARE:.0%} of a step while nothing computes.",
    why="A small message takes as long as its latency, some tens of microseconds, whatever its size; a hundred of them"
    " take a hundred times as long as one of the same bytes.",
    gain="Their time in which nothing computes, less the part of it that as few calls as buckets of 25 MiB would take.",
    do="Put what is sent into buckets: gradients with bucket_cap_mb and gradient_as_bucket_view of"
    " DistributedDataParallel, fused or coalesced collectives elsewhere (torch.distributed._coalescing_manager,"
    " XLA's collective combiner).",
    source="Our choice; 25 MiB are the buckets of PyTorch's DistributedDataParallel.",
    needs=("timeline",),
    explains=("exposed-communication", "dominant-kernel", "straggler", "uneven-steps"),
)
def small_collectives(facts: Facts) -> Iterator[Observation]:
    """The operation of B08 with most calls that are small."""
    for row in _operations(facts):
        time, calls = float(row["duration_ns"]), float(row["count"])
        if row["operation"] in _POINT_TO_POINT or calls < limit.SMALL_CALLS:
            continue
        is_small = (
            row["bytes"] / calls <= limit.SMALL_BYTES if row["bytes"] is not None else time / calls <= limit.SMALL_NS
        )
        if not is_small or facts.share(row["exposed_ns"]) < limit.WAIT_SHARE:
            continue
        needed = ceil((row["bytes"] or 0) / limit.BUCKET_BYTES) or 1
        moved = f" of {size(row['bytes'] / calls)} each" if row["bytes"] is not None else ""
        yield Observation(
            f"A step has {count(round(calls))} calls of {row['operation']}{moved}; they take {duration(time)},"
            f" {duration(row['exposed_ns'])} of it while nothing computes.",
            (Evidence("calls", round(calls), ""), Evidence("a call", time / calls), Evidence("needed", needed, "")),
            row["exposed_ns"] * max(1 - needed / calls, 0),
            "B08",
            do=_NO_GRADIENTS if facts.context.is_inference else "",
        )


@rule(
    "uneven-devices",
    "Devices do unequal work",
    fires="The device that computes longest computes at least"
    f" {limit.IMBALANCE:.0%} longer than devices do on average (only with several devices that compute).",
    why="Devices that train one model wait for the slowest at every collective.",
    gain="Compute time of the busiest device less the mean over devices.",
    do="Spread the work evenly: split by cost instead of by count, pad or sort sequences, balance pipeline stages"
    " and experts; or look for a slow device.",
    source="Our choice.",
    needs=("timeline",),
)
def uneven_devices(facts: Facts) -> Iterator[Observation]:
    """Compute time over devices."""
    times = facts.devices["compute_ns"].cast(pl.Float64).drop_nulls()
    times = times.filter(times > 0)  # one that only copies has no part of the work
    if len(times) < 2:  # noqa: PLR2004 (several)
        return
    longest, mean = float(times.max() or 0), float(times.mean() or 0)  # type: ignore[arg-type]
    if not longest or (longest - mean) / longest < limit.IMBALANCE:
        return
    yield Observation(
        f"The busiest of {len(times)} devices computes for {duration(longest)}, the average one for {duration(mean)}.",
        (Evidence("busiest device", longest), Evidence("mean over devices", mean)),
        longest - mean,
        "B03",
    )


@rule(
    "exposed-communication",
    "Communication is not hidden behind compute",
    fires=f"Communication kernels run at least {limit.EXPOSED_SHARE:.0%} of a step while nothing computes.",
    why="Collectives can run beside compute; where they do not, every device waits for the network, or for the rank"
    " that comes last: a kernel of communication spins until all are there.",
    gain="Communication time in which nothing computes, mean over devices.",
    do="In training, let gradients go out in buckets while the backward pass runs, and prefetch sharded weights. Else"
    " see whether it is waiting: traces of all ranks together say for whom.",
    source="Our choice.",
    needs=("timeline",),
)
def exposed_communication(facts: Facts) -> Iterator[Observation]:
    """Exposed communication of B03."""
    if facts.devices.is_empty():
        return
    columns = ("communication_ns", "exposed_communication_ns")
    every, time = (mean_of(facts.devices[column]) for column in columns)
    if facts.share(time) < limit.EXPOSED_SHARE:
        return
    number = facts.devices.height
    waits = sum(float(row["wait_ns"] or 0) * row["rank_count"] for row in _operations(facts)) / number
    waits = min(waits, every)  # calls side by side wait at once
    waiting = [Evidence("waiting for other ranks", waits)] if waits else []
    waited = f"; {duration(waits)} of it is waiting for other ranks" if waits else ""
    yield Observation(
        f"Communication runs alone for {duration(time)}, {share(facts.share(time))} {facts.of_the_time}, of"
        f" {duration(every)} in all{f' (mean over {number} devices)' if number > 1 else ''}{waited}."
        f"{_longest_call_words(facts)}",
        (Evidence("communication", every), Evidence("of it exposed", time), *waiting),
        time,
        "B03",
        do=_PIPELINE if _is_of_stages(facts) else _NO_GRADIENTS if facts.context.is_inference else "",
    )


def _is_of_stages(facts: Facts) -> bool:
    """Whether most of communication is between the stages of a pipeline."""
    rows = _operations(facts)
    passing = sum(row["duration_ns"] for row in rows if row["operation"] in _POINT_TO_POINT)
    return passing > sum(row["duration_ns"] for row in rows) / 2 and facts.table("B46") is not None


def _longest_call_words(facts: Facts) -> str:
    """The one call, of several, that takes most of all communication on its device."""
    calls = facts.work.filter(IS_COMMUNICATION)
    if calls.height <= 2 * facts.step_count:
        return ""
    longest = calls.sort("even_ns").row(-1, named=True)
    same = [pl.col(column).eq_missing(pl.lit(longest[column], pl.Int64)) for column in ("run_id", "device_id")]
    total = total_of(calls.filter(same)["even_ns"])
    if longest["even_ns"] < limit.OUTLIER_SHARE * total:
        return ""
    return (
        f" One call of {short_name(longest['name'])} takes {duration(longest['duration_ns'])} of"
        f" {duration(total * facts.step_count)}."
    )


# Rules on steps: those that differ in length, those of a ramp-up, a host that runs ahead of them.


_FAULTS = {
    StepFault.EMPTY: ("is empty", "are empty"),
    StepFault.CUT: ("is cut short", "are cut short"),
    StepFault.WAITS: ("begins in a wait for work of before it", "begin in waits for work of before them"),
}


@rule(
    "uneven-steps",
    "Steps differ in length",
    fires=f"Of at least {limit.FEW_STEPS} steps of a run (of a server's those of its commonest batch), the one that a"
    " tenth of them is slower than and the one that a tenth is faster than (of fewer than six the slowest and the"
    f" fastest) differ by at least {limit.STEP_SPREAD:.0%} of the median, and the mean step is at least"
    f" {limit.STEP_GAIN:.0%} above the fast one. Not of queries that waited in a load test's queue.",
    why="A step that is now and then slower has a cause of its own: input, garbage collection, logging, clocks,"
    " another process, inputs of another shape.",
    gain="Mean step less that fast step.",
    do="Compare a slow step with a fast one (xsp analyze --steps N); fix shapes and clocks, and move periodic work"
    " out of the step.",
    source="Our choice.",
    needs=("steps",),
)
def uneven_steps(facts: Facts) -> Iterator[Observation]:
    """Spread over the steps of the run where it is widest."""
    widest = None
    queued = any(
        test.has_queueing for test in facts.frames.of_trace.once(load_tests)
    )  # how long a query waited is of its load
    for lengths, part in _lengths(facts.frames) if facts.frames.is_mean and not queued else ():
        if len(lengths) < limit.FEW_STEPS:
            continue
        low, high = (float(lengths.quantile(part, "nearest") or 0) for part in (0.1, 0.9))
        middle = float(lengths.median() or 0)  # type: ignore[arg-type]
        spread = (high - low) / middle if middle else 0.0
        if spread >= limit.STEP_SPREAD and (widest is None or spread > widest[0]):
            mean = facts.latency_ns if part == 1 else float(lengths.mean() or 0)  # type: ignore[arg-type]
            widest = (spread, low, middle, high, (mean - low) * part, bool((lengths < low).any()))
    if widest is None:
        return
    spread, low, middle, high, gain, is_inner = widest
    gain = max(gain, 0.0)
    if facts.share(gain) < limit.STEP_GAIN:
        return
    yield Observation(
        f"{'Eight of ten steps' if is_inner else 'Steps'} take between {duration(low)} and {duration(high)}:"
        f" {share(spread)} of the median{_difference_words(facts)}.",
        (Evidence("fast step", low), Evidence("median step", middle), Evidence("slow step", high)),
        gain,
        "A01",
    )


def _difference_words(facts: Facts) -> str:
    """What most of the difference between the slower and the faster half of steps is, on the busiest device."""
    device = busiest_device(facts.devices)
    if device is None:
        return ""
    every = StepView(facts.frames.of_trace, str(StepMode.EACH), facts.frames.serving_phase).once(device_time).parts
    same = [pl.col(key).eq_missing(pl.lit(device[key], pl.Int64)) for key in DEVICE]
    rows = every.filter(same).join(facts.frames.steps, on=["run_id", "step"], how="semi").sort("window_ns")
    fast, slow = (part.mean() for part in (rows.head(rows.height // 2), rows.tail(rows.height // 2)))
    causes = {"busy_ns": "the device's own work", **IDLE}
    more = {column: float((slow[column] - fast[column]).fill_null(0).item()) for column in (*causes, "window_ns")}
    column = max(causes, key=lambda each: more[each])
    if more[column] <= more["window_ns"] / 2:
        return ""
    low, high = (duration(float(rows[column].quantile(part, "nearest") or 0)) for part in (0.1, 0.9))
    return f"; most of the difference is {causes[column]}, {low} to {high}"


def _lengths(frames: StepView) -> Iterator[tuple[pl.Series, float]]:
    """Latencies of each run's steps, and their part of all; of a server's those of its commonest batch.

    Steps with other batches do other work, and may well take longer.
    """
    batches = batch_of(frames.of_trace.model_runs.of(frames.steps), frames.of_trace.serving_steps)
    alike = ["run_id", "serving_phase", "requests", "tokens"]
    for _, steps in batches.group_by("run_id", maintain_order=True):
        rows = max((rows for _, rows in steps.group_by(alike, maintain_order=True)), key=lambda rows: rows.height)
        yield rows["duration_ns"].cast(pl.Float64), rows.height / steps.height


@rule(
    "ramp-up",
    "The first steps are no steps like the others",
    fires="Steps at the begin of a run are left out of means, as its latency had not settled yet.",
    why="In its first steps a program loads code, fills caches, tunes kernels, grows its pools of memory and fills the"
    " queue of launches. A mean that holds them is the mean of nothing that goes on.",
    gain="None: this is about the numbers.",
    do="Warm up before recording (wait and warmup of the profiler's schedule). To see what the first steps did, look at"
    " them alone: --steps N.",
    source="What a mean leaves out is decided with latency itself (ADR 0015).",
    needs=("steps",),
    explains=("uneven-steps",),
    on_trust=True,
)
def ramp_up(facts: Facts) -> Iterator[Observation]:
    """Steps that hold work and are not among those that a mean is taken over."""
    if not facts.frames.is_mean:
        return
    steps = facts.frames.steps
    left_out = facts.frames.worked_steps.join(steps, on=["run_id", "step"], how="anti")
    if left_out.is_empty():
        return
    first = mean_of(left_out["duration_ns"])
    middle = float(steps["duration_ns"].median() or 0)  # type: ignore[arg-type]
    number = left_out.height
    which = "The first step takes" if number == 1 else f"{number} steps at the begin take on average"
    yield Observation(
        f"{which} {duration(first)}, the others {duration(middle)} in the median: not counted in means.",
        (Evidence("first steps", first), Evidence("median of the others", middle)),
        None,
        "A01",
    )


@rule(
    "steps-left-out",
    "Some steps are not whole",
    fires="Steps without work beside others with it, first or last ones with under half of the launches (without a"
    " device: operators) of the median step, or ones that wait for half of their time before their first launch.",
    why="A profiler closes its last step at once, a schedule ends in the middle of a cycle, and a step that waits for"
    " what was launched before it has another's time. A mean over them is of nothing that happened.",
    gain="None: this is about the numbers.",
    do="Let the schedule end with a whole step (repeat=1), and synchronise before the first. To see what was left out,"
    " look at it alone: --steps N.",
    source="Our choice.",
    needs=("steps",),
    on_trust=True,
)
def incomplete_steps(facts: Facts) -> Iterator[Observation]:
    """The faulty ones among the steps, in one sentence."""
    faulty = facts.frames.faulty_steps if facts.frames.is_mean else None
    if faulty is None or faulty.is_empty():
        return
    parts = []
    for fault, (one, several) in _FAULTS.items():
        number = faulty.filter(pl.col("fault") == str(fault)).height
        if number:
            parts.append(f"{count(number)} {one if number == 1 else several}")
    every = facts.frames.every_step.height
    yield Observation(f"Of {count(every)} steps {', '.join(parts)}: not counted in means.", (), None, "A01")


@rule(
    "host-ahead",
    "The host runs ahead of the device",
    fires=f"At the end of the last step the device is at least {limit.AHEAD_STEPS:g} steps behind the host, and further"
    " than it was at the end of the first.",
    why="The host only launches; nothing makes it wait, and the queue of work grows. That is how it should be, but the"
    " host's range around a step then says how long launching took, not how long the step took.",
    gain="None: this is about the numbers. The device is busy.",
    do="Read the latency of steps on the device, not the host's ranges around them. Nothing is to be mended.",
    source="Our choice.",
    needs=("steps", "launches"),
    on_trust=True,
)
def host_ahead(facts: Facts) -> Iterator[Observation]:
    """How far the device is behind at the end of the first and the last step of a run."""
    on_device = pl.col("basis").is_in([str(StepBasis.DEVICE_PERIOD), str(StepBasis.DEVICE_END)])
    steps = facts.frames.worked_steps.filter(on_device).sort("run_id", "start_ns")
    for _, rows in steps.group_by("run_id", maintain_order=True):
        behind = (rows["end_ns"] - rows["start_ns"] - rows["host_ns"]).to_list()
        middle, host = (float(rows[column].median() or 0) for column in ("duration_ns", "host_ns"))  # type: ignore[arg-type]
        if rows.height < 2 or behind[-1] < limit.AHEAD_STEPS * middle or behind[-1] <= behind[0]:  # noqa: PLR2004
            continue
        yield Observation(
            f"At the end of the last step the device is {duration(behind[-1])} behind the host,"
            f" {count(behind[-1] / middle)} steps; the host launches a step in {duration(host)}, the device takes"
            f" {duration(middle)}.",
            (Evidence("behind at first", behind[0]), Evidence("behind at last", behind[-1])),
            None,
            "A01",
        )
        return
