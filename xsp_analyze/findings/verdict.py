"""The verdict: what bounds the run, in which parts its time falls, and what promises most about that."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.classification import KernelClass
from xsp_analyze.faults import attempt
from xsp_analyze.findings import thresholds as limit
from xsp_analyze.findings.facts import Facts
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.device_time import busiest_device
from xsp_analyze.frames.kernels.activities import column_at
from xsp_analyze.frames.model_time import load_test
from xsp_analyze.frames.steps import StepBasis, StepMode
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import IDLE, count, count_of, duration, share
from xsp_model import Kind, LedgerKind
from xsp_model.columns.arrays import nullable_index
from xsp_model.columns.tree import outermost

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from xsp_analyze.findings.advice import Advice
    from xsp_analyze.trace.step_view import StepView

__all__ = ["HOST_BOUNDS", "Bound", "Verdict", "largest_part", "verdict"]


class Bound(StrEnum):
    """What bounds a run, see `largest_part`; words that begin a sentence."""

    DEVICE = "Device-bound"
    COMMUNICATION = "Bound by communication"
    COPIES = "Bound by copies"
    INPUT = "Input-bound"
    HOST = "Host-bound"
    LAUNCH = "Launch-bound"
    HOST_ONLY = "Host only"
    TOO_LITTLE = "Too little work to judge"
    UNKNOWN = "What bounds it cannot be told"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What bounds the run, and the sentences that say so."""

    bound: Bound
    sentence: str


HOST_BOUNDS = (Bound.HOST, Bound.LAUNCH, Bound.INPUT)
"""The device waits for the host."""
_OF_IDLE_TIME = ("data-wait", "host-sync", "launch-bound", "gpu-idle", "recompilation", "graph-breaks")
_CLAUSE_END = re.compile(r"[.;] ")
_SHOWN = 0.01  # of the time: smaller parts are not named
_MAX_SHARE = 0.95  # from there on a gain tells no number of times
_FEW = 0.05  # nor up to there: it would be 1.0 or 1.1 times


def verdict(frames: StepView, advice: Sequence[Advice]) -> Verdict | None:
    """What bounds the run, judged by B03's device with most work of its own; None where nothing was run.

    `advice` is what rules found in the same steps, most promising first. What fails is noted (`noting_faults`).
    """
    return attempt("What bounds the run", lambda: _verdict(frames, advice), lambda _: None)


def _verdict(frames: StepView, advice: Sequence[Advice]) -> Verdict | None:
    facts = Facts(frames)
    if not frames.of_trace.is_timed or load_test(frames.trace) is not None:
        return None
    if reason := facts.reason_unknown:
        return Verdict(Bound.UNKNOWN, f"{Bound.UNKNOWN}: {reason}.{_classes_words(facts)}")
    row = busiest_device(facts.devices)
    if row is None:
        return _of_host_alone(facts) if facts.latency_ns else None
    if little := _little_words(facts, row):
        return Verdict(Bound.TOO_LITTLE, f"{Bound.TOO_LITTLE}: {little}.{_start_up_words(row)}")
    bound = largest_part(row)
    apart = f"{_start_up_words(row)}{_unseen_words(frames, row)}"
    account = f"{bound}: {_parts_words(facts, row)}.{apart}{_inferred_words(frames)}{_outside_words(frames)}"
    return Verdict(bound, f"{account}{_classes_words(facts)}{_first_words(advice, bound)}")


def _classes_words(facts: Facts) -> str:
    """Which classes take most of device time; nothing where no kernel's is known."""
    of_class = facts.work.group_by(pl.col("kernel_class").cast(pl.String)).agg(pl.col("ns").sum())
    much = of_class.filter(pl.col("ns") >= limit.CLASS_SHARE * facts.device_ns).sort(-pl.col("ns"), "kernel_class")
    if not facts.device_ns or much.filter(pl.col("kernel_class") != str(KernelClass.OTHER)).is_empty():
        return ""
    names = {str(KernelClass.OTHER): "kernels of no known class"}
    first = much.head(limit.MAX_EVIDENCE).iter_rows()
    parts = [f"{names.get(name, name)} {share(time / facts.device_ns)}" for name, time in first]
    return f" Device time: {', '.join(parts)}."


def _little_words(facts: Facts, row: Mapping[str, Any]) -> str:
    """What the device did at all, where that is too little to say what bounds a program; else nothing."""
    if not facts.has_little_work:
        return ""
    kernels, copies = facts.kernel_count, facts.work.height - facts.kernel_count
    work = [
        count_of(kernels, "kernel", "kernels"),
        *([count_of(copies, "copy or fill", "copies and fills")] if copies else []),
    ]
    return (
        f"no step repeats, and the device is busy for {duration(row['busy_ns'])} of"
        f" {duration(row['window_ns'] - row['start_up_ns'])}, with {_enumeration(work)}"
    )


def _inferred_words(frames: StepView) -> str:
    """What steps are where the program marked none."""
    kind, detail = pl.col("kind").cast(pl.String), pl.col("detail").cast(pl.String)
    ledger = frames.trace.frame("ledger").filter(kind == str(LedgerKind.STEPS_INFERRED))
    repeated = ledger.select("count", detail.str.extract(r"each is one repetition (of .+)$").alias("of")).drop_nulls()
    if not frames.is_mean or repeated.is_empty():
        return ""
    number, of = repeated.row(0)
    return f" No step is marked: each is one of {count(number)} repetitions {of}."


def _outside_words(frames: StepView) -> str:
    """How much of the work launched lies outside of the steps that a mean is of, and in which range most of that."""
    if not frames.is_mean:
        return ""
    is_orphan = pl.col("attribution").cast(pl.String).str.starts_with("orphan")
    work = frames.of_trace.all_activities.filter(~is_orphan | pl.col("step").is_not_null())
    outside = work.filter(pl.col("step").is_null())
    part = total_of(outside["duration_ns"]) / max(total_of(work["duration_ns"]), 1.0)
    if part < limit.OUTSIDE_SHARE:
        return ""
    spans = frames.trace.scan("spans").select("parent_id", pl.col("kind").cast(pl.String)).collect()
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    around = outermost(parent, (spans["kind"] == str(Kind.RANGE)).to_numpy())[outside["span_id"].to_numpy()]
    names = outside.select(
        "duration_ns", column_at(frames.trace, "name", nullable_index(around)).cast(pl.String).alias("range")
    )
    first = names.group_by("range").agg(pl.col("duration_ns").sum()).sort(-pl.col("duration_ns"), "range").row(0)
    within = f", most in {clean(first[0])}" if first[0] is not None else ""
    return f" {share(part)} of the device work lies outside of steps{within}."


def _of_host_alone(facts: Facts) -> Verdict:
    """What the host's time is made of, by B43; where threads worked side by side, of what they spent in sum."""
    table = facts.table("B43")
    made_of = ""
    if table is not None and (total := total_of(table["duration_ns"])):
        of = f"{_time_words(facts, facts.latency_ns)} on the host"
        if total > facts.latency_ns * (1 + _SHOWN):
            of += f", {duration(total)} in sum over threads"
        by_phase = table.group_by("phase").agg(pl.col("duration_ns").sum()).sort(-pl.col("duration_ns"), "phase")
        parts = (f"{phase} {share(time / total)}" for phase, time in by_phase.iter_rows() if time >= _SHOWN * total)
        made_of = f" Of {of}: {', '.join(parts)}."
    made_of += _inferred_words(facts.frames)
    return Verdict(Bound.HOST_ONLY, f"{Bound.HOST_ONLY}: no device work was recorded.{made_of}")


def _time_words(facts: Facts, time_ns: float) -> str:
    return f"{duration(time_ns)}{'' if facts.frames.choice.mode is StepMode.ALL else ' a step'}"


def largest_part(row: Mapping[str, Any]) -> Bound:
    """The largest of computing, communicating, copying and waiting; the last by what it waits for.

    Computing counts for half: a device of twice the speed would save no more. What the profiler did of its own is none
    of the run's: where most is that, the rest cannot be told.
    """
    profiler_ns = row["idle_profiler_ns"] or 0
    times = {
        Bound.DEVICE: row["compute_ns"],
        Bound.COMMUNICATION: row["exposed_communication_ns"],
        Bound.COPIES: row["exposed_memory_ns"],
        Bound.HOST: row["waiting_ns"] - profiler_ns,
        Bound.UNKNOWN: profiler_ns,
    }
    bound = max(times, key=lambda each: times[each])
    if bound is Bound.DEVICE and 2 * (times[Bound.HOST] - (row["idle_unknown_ns"] or 0)) > times[bound]:
        bound = Bound.HOST
    if bound is not Bound.HOST:
        return bound
    half = times[bound] / 2
    causes = {"idle_unknown_ns": Bound.UNKNOWN, "idle_launch_ns": Bound.LAUNCH, "idle_input_ns": Bound.INPUT}
    return next((each for column, each in causes.items() if (row[column] or 0) >= half), Bound.HOST)


def _parts_words(facts: Facts, row: Mapping[str, Any]) -> str:
    """`of 12.1 ms a step the device computes for 61 %, and waits for 39 % (host work 25 %)`."""
    window_ns = row["window_ns"] - row["start_up_ns"]
    of = f"{_time_words(facts, window_ns)}{' without start-up' if row['start_up_ns'] else ''}"
    times = {
        "computes": row["compute_ns"],
        "communicates alone": row["exposed_communication_ns"],
        "copies alone": row["exposed_memory_ns"],
        "waits": row["waiting_ns"],
    }
    parts = [f"{what} for {share(time / window_ns)}" for what, time in times.items() if time >= _SHOWN * window_ns]
    device = "the device" if facts.devices.height == 1 else "the busiest device"
    causes = ", ".join(_causes_words(row, window_ns))
    return f"of {of} {device} {_enumeration(parts)}{f' ({causes})' if causes else ''}"


def _causes_words(row: Mapping[str, Any], window_ns: float) -> Iterator[str]:
    for column, cause in sorted(IDLE.items(), key=lambda each: -(row.get(each[0]) or 0)):
        time = row.get(column) or 0
        if time >= _SHOWN * window_ns and not (row["start_up_ns"] and column == "idle_initialisation_ns"):
            yield f"{cause} {share(time / window_ns)}"


def _enumeration(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def _start_up_words(row: Mapping[str, Any]) -> str:
    if row["start_up_ns"] < row["window_ns"] / 2:
        return ""
    return f" Start-up and end take {duration(row['start_up_ns'])} more, once a process."


def _unseen_words(frames: StepView, row: Mapping[str, Any]) -> str:
    """How long devices first did what was launched before the recording, where that is much beside the time judged."""
    if frames.is_mean:
        begins = frames.steps.filter(pl.col("basis") == str(StepBasis.DEVICE_END)).select("start_ns", "begin_ns")
    else:
        seen = frames.of_trace.extents_seen.select("run_id", "begin_ns")
        begins = frames.of_trace.extents.select("run_id", pl.col("begin_ns").alias("start_ns")).join(seen, on="run_id")
    waited = float((begins["begin_ns"] - begins["start_ns"]).max() or 0)  # type: ignore[arg-type]
    if waited < limit.MUCH_OF_IT * row["window_ns"] * max(frames.steps.height, 1):
        return ""
    return f" Before that {duration(waited)} were a wait for work of before the recording, and are in no share."


def _first_words(advice: Sequence[Advice], bound: Bound) -> str:
    """What promises most: its title and gain, where that is unknown what it is about, and the first thing to do.

    And that it is of another time than what bounds, where it is.
    """
    one = next((each for each in advice if not each.rule.on_trust), None)
    if one is None:
        return ""
    is_of_idle_time = one.rule.id in _OF_IDLE_TIME
    where = ""
    if bound is Bound.DEVICE and is_of_idle_time:
        where = " Most may be gained where it waits, though."
    elif bound in HOST_BOUNDS and not is_of_idle_time:
        where = " Most may be gained elsewhere, though."
    gain, waits = one.gain_share, [each for each in advice if each.rule.id in _OF_IDLE_TIME and each.gain_share]
    together = ""
    every = sum(each.gain_share or 0.0 for each in waits)
    if bound in HOST_BOUNDS and is_of_idle_time and len(waits) > 1 and every < _MAX_SHARE:  # they divide the idle time
        gain, together = every, f", with {_enumeration([each.rule.id for each in waits[1:]])} together"
    faster = f"{_gain_words(gain)}{together}" if gain and gain < _MAX_SHARE else ""
    what = one.rule.title if gain else clean(_CLAUSE_END.split(one.observation.sentence)[0].rstrip("."))
    return f"{where} {what}{faster}: {_CLAUSE_END.split(one.do)[0].rstrip('.')}."


def _gain_words(gain: float) -> str:
    """How much faster at most; what is too little for a number of times as a share."""
    return f", up to {1 / (1 - gain):.1f} times as fast" if gain > _FEW else f", at most {share(gain)} of the time"
