"""Rules that doubt the numbers: what is not recorded, profiling's own cost, too few steps, runs that disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.advice import Evidence, Observation, rule
from xsp_analyze.frames.idle import DEVICE
from xsp_analyze.frames.model_time import latency_by_run, load_tests
from xsp_analyze.frames.steps import MIN_SHARE_IN_STEPS
from xsp_analyze.text.doubts import double_counting, impossible_times, lost_work, missing_ranks
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count, count_of, duration, share
from xsp_model import Attribution, Kind, LayerSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.findings.facts import Facts
    from xsp_analyze.trace.trace_view import TraceView

__all__ = [
    "device_only",
    "double_counts",
    "few_steps",
    "impossible_device_times",
    "job_incomplete",
    "layers_unknown",
    "low_match_rates",
    "no_modules",
    "orphans",
    "profiling_overhead",
    "runs_disagree",
    "start_up",
    "unexplained_idle",
    "work_not_recorded",
]

_RANGES = (
    "Mark layers with NVTX ranges (emit_nvtx, or the framework's own), or name ranges that are layers: --layer-range."
)
_RECORD = {
    "pytorch": "Record modules: with_stack=True in torch.profiler; or name ranges that are layers: --layer-range.",
    "jax": "Name the parts of the model with jax.named_scope, which its operators then carry.",
    "tensorflow": "Name the parts of the model with tf.name_scope; tf.profiler records operators by name.",
}
_MATCHED = "match_"  # how kinds of the ledger begin that tell match rates of a profile's runs


@rule(
    "work-not-recorded",
    "Kernels were launched that are not recorded",
    fires="Launches of kernels are recorded and no kernel; or none of some steps or processes that launched some. Or"
    " many numbers lack in between of those that the recorder gives dispatches or operators.",
    why="What the device did is then missing, and stands as idle or as the host's alone; means are over what has it.",
    gain="None: this is about the numbers.",
    do="Record the device's activity over the whole window: activities=[CPU, CUDA] in torch.profiler, no other profiler"
    " beside it, the right to read performance counters, and buffers that do not run full.",
    source="No threshold.",
    on_trust=True,
    first=True,
)
def work_not_recorded(facts: Facts) -> Iterator[Observation]:
    """Over the whole trace."""
    for sentence in facts.frames.of_trace.once(lost_work):
        yield Observation(sentence, rows="ledger")


@rule(
    "impossible-times",
    "Device times that cannot be",
    fires="Device activities last over 50 us beyond the next start on their stream, start over 100 us before their"
    " launch, outlast all that the host did a hundred times, or overlap on their streams by over 1 % of device time.",
    why="Work of one stream runs one after another, and none before it is launched. Activities of which this holds"
    " alone are set aside; where many are so, the stream or the clock is not what the trace says.",
    gain="None: this is about the numbers.",
    do="Read busy time rather than sums; compare the profiler's version with its known defects, and record again.",
    source="Of 46 real traces none overlaps by more than 0.6 %, and none starts more than 1 us early.",
    on_trust=True,
    first=True,
)
def impossible_device_times(facts: Facts) -> Iterator[Observation]:
    """Over the whole trace."""
    for sentence in facts.frames.of_trace.once(impossible_times):
        yield Observation(sentence, rows="ledger")


@rule(
    "ranks-missing",
    "Ranks of the job are missing",
    fires="Several ranks of one job were read, and fewer than its files say it has.",
    why="A collective ends when the last rank has come: if it is not here, waiting looks like slow communication.",
    gain="None: this is about the numbers.",
    do="Give the traces of all ranks together, or of all ranks of one group that communicates.",
    source="No threshold: the ranks and the world size that the files state.",
    on_trust=True,
    first=True,
)
def job_incomplete(facts: Facts) -> Iterator[Observation]:
    """Over the whole trace."""
    for sentence in facts.frames.of_trace.once(missing_ranks):
        yield Observation(sentence, rows="ranks")


@rule(
    "counted-twice",
    "One recording is counted more than once",
    fires="Several files say that they are the same rank, or hold work that took the same times to the nanosecond.",
    why="What is summed over files then holds it once for each of them; shares and means over ranks are of copies.",
    gain="None: this is about the numbers.",
    do="Give one file of each rank of one job, and none of its copies, exports and conversions.",
    source="No threshold on ranks; times are compared where files have ten kernels or operators at least.",
    on_trust=True,
    first=True,
)
def double_counts(facts: Facts) -> Iterator[Observation]:
    """Over the whole trace."""
    for sentence in double_counting(facts.frames.trace):
        yield Observation(sentence, rows="ledger")


@rule(
    "device-only",
    "Device work alone is recorded",
    fires="The file has device work, and neither host nor launches nor layers: a list of kernels.",
    why="Tables over layers, operators and steps are then empty, and why the device was idle cannot be said.",
    gain="None: this is about the numbers.",
    do="For a kernel's own numbers nothing more is needed. For layers and for the host record a timeline too (the"
    " framework's profiler, nsys profile, rocprofv3 --sys-trace), alone or in a run set.",
    source="No threshold.",
    needs=("kernel",),
    explains=("orphans", "unattributed", "no-modules", "few-steps", "unexplained-idle"),
    on_trust=True,
)
def device_only(facts: Facts) -> Iterator[Observation]:
    """Nothing but device activities among the spans."""
    if (
        facts.frames.of_trace.all_activities.height
        == facts.frames.of_trace.own_runs.scan("spans").select(pl.len()).collect().item()
    ):
        yield Observation("The file lists device work alone, without host, launches, layers or steps.", (), None, "A10")


@rule(
    "unexplained-idle",
    "What the device waits for is not known",
    fires=f"For at least {limit.IDLE_REST:.0%} of a step the busiest device is idle before work whose launch is not in"
    " the trace, or long after it, and no range or operator is open on the host that is shorter than most of the step.",
    why="It may be input, Python, another process or the device's own queue: no finding can promise this time.",
    gain="None: this is about the numbers.",
    do="Record the host too, with its calls of the runtime, over the whole window; name what it does between operators"
    " with ranges.",
    source="Our choice of share, as for the rest of gpu-idle.",
    needs=("timeline",),
    on_trust=True,
)
def unexplained_idle(facts: Facts) -> Iterator[Observation]:
    """Of B03's idle_unknown_ns what nothing on the host meets."""
    rest = facts.idle_of("idle_unknown_ns") - facts.open_in_unknown[1]
    if facts.idle_share(rest) < limit.IDLE_REST or facts.reason_unknown:
        return
    yield Observation(
        f"For {duration(rest)}, {share(facts.idle_share(rest))} {facts.of_the_time}, the device is idle and the trace"
        " does not tell why: no launch of what comes next is known, and nothing is open on the host.",
        (Evidence("idle: unknown", facts.idle_of("idle_unknown_ns")),),
        None,
        "B16",
    )


@rule(
    "orphans",
    "Device work without a launch",
    fires=f"At least {limit.ORPHAN_SHARE:.0%} of device time has no launch in the trace.",
    why="Such work stands in no layer and no operator; tables over them miss it.",
    gain="None: this is about the numbers.",
    do="Start the profiler a step earlier and synchronise before it starts; record runtime and driver calls over the"
    " whole window.",
    source="Our choice: more than a trace's edges.",
    on_trust=True,
)
def orphans(facts: Facts) -> Iterator[Observation]:
    """Device time of the three kinds of orphans, over the whole trace."""
    times = facts.time_by_attribution
    lost = {a: times.get(str(a), 0.0) for a in Attribution if str(a).startswith("orphan")}
    total = sum(times.values())
    part = sum(lost.values()) / total if total else 0.0
    if part < limit.ORPHAN_SHARE:
        return
    yield Observation(
        f"{share(part)} of device time has no launch in the trace.",
        [Evidence(str(a).replace("_", " "), time) for a, time in lost.items() if time],
        None,
        "ledger",
    )


@rule(
    "unattributed",
    "Most device time is outside of every layer",
    fires=f"Less than {limit.ATTRIBUTED_SHARE:.0%} of device time, replays of graphs aside, is in a layer.",
    why="Tables over layers then show the smaller part of the model.",
    gain="None: this is about the numbers.",
    do="Record modules (with_stack=True), or name ranges that are layers with --layer-range.",
    source="Below it, most of the work stands in no table over layers.",
    on_trust=True,
)
def layers_unknown(facts: Facts) -> Iterator[Observation]:
    """Coverage of layers, over the whole trace."""
    part = facts.layer_coverage
    if facts.layer_coverage_beside_replays >= limit.ATTRIBUTED_SHARE:
        return
    times = facts.time_by_attribution.items()
    others = [Evidence(name.replace("_", " "), time) for name, time in sorted(times) if name != "layer"]
    sentence = f"Only {share(part)} of device time is in a layer." if part else "No device time is in a layer."
    yield Observation(sentence, others, None, "ledger", do=_record_more(facts))


def _record_more(facts: Facts) -> str:
    """What would bring work into layers, in this trace."""
    context = facts.context
    if context.modules_recorded:
        return "Modules are recorded; see the ledger for the work that none of them launched."
    return _RECORD.get(context.framework, _RANGES)


@rule(
    "no-modules",
    "Operators stand in for layers",
    fires="The trace has device work, and neither modules nor ranges divide it, so its layers are outermost operators.",
    why="An operator says what ran, not which part of the model it was.",
    gain="None: this is about the numbers.",
    do="Record with_stack=True in torch.profiler, or mark layers with NVTX ranges (emit_nvtx, or the framework's own).",
    source="No threshold.",
    needs=("kernel", "few replays"),
    on_trust=True,
)
def no_modules(facts: Facts) -> Iterator[Observation]:
    """Layer source of the runs that layers are taken from."""
    runs = facts.frames.of_trace.layer_runs.table
    sources = set(runs["layer_source"].drop_nulls())
    if facts.frames.of_trace.all_activities.is_empty() or sources != {str(LayerSource.OPERATOR)}:
        return
    sentence = "Neither modules nor ranges divide the work, so each outermost operator counts as a layer."
    yield Observation(sentence, do=_RECORD.get(facts.context.framework, _RANGES))


@rule(
    "profiling-overhead",
    "Profiling changed what it measured",
    fires=f"Profiling made a step at least {limit.OVERHEAD_SHARE:.0%} longer (leveled runs only: a single trace cannot"
    " know).",
    why="Times of kernels stay good, but gaps between them and times of layers contain the profiler's own work.",
    gain="None: this is about the numbers.",
    do="Take latency from the run without a profiler, as this report does; record less (no stacks, no shapes) where"
    " times of layers matter.",
    source="Our choice.",
    on_trust=True,
)
def profiling_overhead(facts: Facts) -> Iterator[Observation]:
    """The total of B02, or the last level it knows."""
    table = facts.table("B02")
    rows = None if table is None else table.filter(pl.col("scope") == "model").drop_nulls("overhead_share")
    if rows is None or rows.is_empty():
        return
    row = rows.sort("overhead_share", descending=True).row(0, named=True)
    if row["overhead_share"] < limit.OVERHEAD_SHARE:
        return
    yield Observation(
        f"Profiling made a step {share(row['overhead_share'])} longer, {duration(row['overhead_ns'])}.",
        (Evidence("without", row["baseline_ns"]), Evidence("with", row["measured_ns"])),
        None,
        "B02",
    )


@rule(
    "start-up",
    "Start-up stands apart",
    fires=f"A device is idle for at least {limit.START_UP_SHARE:.0%} of the trace before its process's first kernel or"
    " while contexts are made and code is loaded or compiled: before its steps, in a trace without steps at all times,"
    " and after its last work.",
    why="A process does that once, however long it runs. Counted in, it would be the largest part of a short recording"
    " and of no long run.",
    gain="None: this is about the numbers. No finding's gain and no share holds this time.",
    do="Record after a warm-up, or mark steps, to see the steady state alone; for start-up itself look at B16's rows of"
    " cause initialisation, and at what the host calls before the first launch.",
    source="Our choice.",
    needs=("timeline",),
    on_trust=True,
)
def start_up(facts: Facts) -> Iterator[Observation]:
    """Idle time of starting up, of the device with least of it."""
    time_ns, extent_ns = facts.start_up_of_trace
    if extent_ns and time_ns >= limit.START_UP_SHARE * extent_ns:
        what, calls = ("start-up and end", _calls_of_start_up(facts)) if facts.start_up_ns else ("start-up", "")
        yield Observation(
            f"{duration(time_ns)} of {duration(extent_ns)} are {what}, once a process, and in no finding{calls}.",
            (),
            None,
            "B16",
            "initialisation",
        )


def _calls_of_start_up(facts: Facts) -> str:
    """What the host was in meanwhile, where that is known of much of it."""
    table = facts.table("B16")
    if table is None:
        return ""
    first = facts.devices.sort("start_up_ns").row(0, named=True)
    of_device = (pl.col(key).eq_missing(pl.lit(first[key], pl.Int64)) for key in DEVICE)
    rows = table.filter(pl.col("cause") == "initialisation", *of_device)
    parts = [f"{clean(call)} ({duration(ns)})" for call, ns in facts.main_calls(rows, facts.start_up_ns)]
    return f": {', '.join(parts)}" if parts else ""


@rule(
    "few-steps",
    "Too few steps for an interval",
    fires=f"Numbers are means over fewer than {limit.FEW_STEPS} steps, or the trace marks no steps, or such that"
    " together hold under half of device time (without a device, of operators and of their time).",
    why="Of one or two steps nobody can tell how far a third would differ.",
    gain="None: this is about the numbers.",
    do="Record at least five steps after warm-up, with profiler.step() or a range around each.",
    source="A01 gives no interval below it.",
    on_trust=True,
)
def few_steps(facts: Facts) -> Iterator[Observation]:
    """Steps of the run that model latency is from; of a load test's queue LoadGen says how many queries it has."""
    if any(test.has_queueing for test in facts.frames.of_trace.once(load_tests)):
        return
    if facts.frames.of_trace.all_steps.is_empty():
        if facts.latency_ns and not facts.frames.of_trace.once(load_tests):
            yield Observation("The trace marks no steps, so times are totals over all of it.", (), None, "A01")
        return
    if facts.frames.is_whole_for_want_of_steps:
        yield Observation(_why_whole(facts.frames.of_trace), (), None, "A01")
        return
    step_count = max((len(d) for d in facts.frames.once(latency_by_run)["durations"].to_list()), default=0)
    if 0 < step_count < limit.FEW_STEPS and not _stands_for_many(facts.frames.of_trace):
        yield Observation(f"Numbers are from {count(step_count)} step{'s' if step_count > 1 else ''}.", (), None, "A01")


def _stands_for_many(view: TraceView) -> bool:
    """Whether a step is the average of many that its file counted, as TensorRT's profiles are."""
    steps = view.own_runs.scan("spans").filter(pl.col("kind").cast(pl.String) == str(Kind.STEP)).select("span_id")
    many = pl.col("metric").cast(pl.String).eq("invocations") & pl.col("value").ge(limit.FEW_STEPS)
    return not view.trace.scan("metrics").filter(many).join(steps, on="span_id", how="semi").collect().is_empty()


def _why_whole(view: TraceView) -> str:
    """Why no mean step is taken of a trace that marks some."""
    number, part = view.marked_steps.height, view.share_in_steps
    of = "device time" if view.work_in_steps["on_device"].any() else "operators, by number or time"
    little = f"hold{'s' if number == 1 else ''} {share(part)} of {of}"
    fault = little if part < MIN_SHARE_IN_STEPS else f"{'is' if number == 1 else 'are'} not whole"
    return f"The {count_of(number, 'marked step', 'marked steps')} {fault}, so times are totals over all of the trace."


@rule(
    "unmatched",
    "The runs of the profile differ",
    fires="Layers or kernels of a profile's runs match at less than 1.",
    why="Numbers of what does not match are from one run only, and may stand beside the wrong row of another.",
    gain="None: this is about the numbers.",
    do="Take the runs with autotuning off, the same inputs and the same number of steps.",
    source="No threshold: each mismatch counts.",
    on_trust=True,
)
def low_match_rates(facts: Facts) -> Iterator[Observation]:
    """Rows on match rates in the trace's ledger that are no mere information."""
    ledger = facts.frames.trace.frame("ledger")
    rows = ledger.filter(pl.col("kind").str.starts_with(_MATCHED), pl.col("severity") != "info")
    for row in rows.iter_rows(named=True):
        detail = row["detail"]
        yield Observation(f"{detail[:1].upper()}{detail[1:].rstrip('.')}.", (), None, "ledger")


# Rules on run sets: whether its runs, taken one after the other, are of one machine in one state.

_PROFILED = {"layers": "level ML", "kernels": "level MLG", "kernels, serialised": "level MLG, serialised"}


@dataclass(frozen=True)
class _Steps:
    """A run's steps in ns: the median, and what the middle half lies between."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Of the middle half, over the median."""
        return (self.high - self.low) / self.median


@rule(
    "runs-disagree",
    "Runs of the set disagree",
    fires=f"A step without a profiler takes at least {limit.SLOWER_WITHOUT:.0%} longer than one under a profiler, and"
    " the middle halves of both runs' steps lie apart; or the middle half of the steps without a profiler spreads"
    f" over {limit.RUN_SPREAD:.0%} of their median. Both of at least {limit.FEW_STEPS} steps.",
    why="A profiler only adds time, so that the runs were not of the same machine in the same state. Numbers that are"
    " put together from both are wrong by that factor: shares of latency, overhead of profiling, throughput.",
    gain="None: this is about the numbers.",
    do="Collect the set again with more warm-up (--warmup): a GPU that was idle needs seconds to raise its clocks, and"
    " the first run on a machine loads files and chooses kernels. See that nothing else uses the GPU or its CPUs"
    " (nvidia-smi), and whether the GPU throttled: run.json has its clocks. Lock clocks where you may.",
    source="Our choice: runs of one machine in one state agree within a few percent.",
    on_trust=True,
)
def runs_disagree(facts: Facts) -> Iterator[Observation]:
    """The model's run against each profiled one: the one that it is slowest beside."""
    labels = reversed(list(facts.frames.of_trace.run_labels.items()))
    runs = {label: run for run, label in labels}  # of several that were made for one thing the first, as everywhere
    model = _steps(facts, runs["model"]) if "model" in runs else None
    if model is None:
        return
    others = {role: _steps(facts, runs[role]) for role in _PROFILED if role in runs}
    faster = {role: steps for role, steps in others.items() if steps and _is_slower(model, steps)}
    if faster:
        role, steps = min(faster.items(), key=lambda one: one[1].median)
        yield Observation(
            f"A step takes {duration(model.median)} without a profiler, {share(model.median / steps.median - 1)} longer"
            f" than the {duration(steps.median)} under one ({_PROFILED[role]}).",
            (Evidence("without", model.median), Evidence("with", steps.median)),
            None,
            "B02",
        )
    if model.spread >= limit.RUN_SPREAD:
        yield Observation(
            f"The middle half of the steps without a profiler spreads over {share(model.spread)} of their median.",
            (Evidence("a quarter is below", model.low), Evidence("a quarter is above", model.high)),
            None,
            "A01",
        )


def _is_slower(model: _Steps, profiled: _Steps) -> bool:
    return model.median >= (1 + limit.SLOWER_WITHOUT) * profiled.median and model.low > profiled.high


def _steps(facts: Facts, run: int) -> _Steps | None:
    """The steps as the run timed them itself, else by the spans of its steps; None of too few."""
    timed = facts.frames.of_trace.runs([run]).frame("step_times")
    rows = timed if timed.height else facts.frames.of_trace.all_steps.filter(pl.col("run_id") == run)
    durations = rows["duration_ns"].drop_nulls()
    if len(durations) < limit.FEW_STEPS:
        return None
    low, median, high = (float(durations.quantile(part, "linear") or 0) for part in (0.25, 0.5, 0.75))
    return _Steps(median, low, high) if median else None
