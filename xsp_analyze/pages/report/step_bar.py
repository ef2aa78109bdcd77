"""The bar of the first screen: what a step is made of, in parts that add up to it, each with where more is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import polars as pl

from xsp_analyze.classification import KernelClass
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.device_time import busiest_device
from xsp_analyze.frames.idle import DEVICE
from xsp_analyze.frames.layers.layer_time import COMMUNICATION, INPUT, host_time_by
from xsp_analyze.frames.model_time import load_test
from xsp_analyze.pages.blocks import IDLE_TONES, tone
from xsp_analyze.text.table import clean, short_name
from xsp_analyze.text.units import IDLE, duration, share
from xsp_model import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_analyze.core import Result
    from xsp_analyze.pages.blocks import Block
    from xsp_analyze.service import Answers

__all__ = ["busiest", "glance", "phases_on_host", "step_bar"]

_KEYS = ("label", "tone", "time", "about", "link")
_MAX_TYPES = 12  # types of layers with a colour of their own, of runs on the host alone
_ALONE = {  # what nothing hides: its name, what it is, and the analysis that says more
    ("communication", KernelClass.COMMUNICATION): (
        "communication, exposed", "Collectives while nothing computes; the rest is in what it ran beside.", "B08"
    ),
    ("memory", KernelClass.COPY): ("copies, exposed", "Copies while nothing computes or communicates.", "B07"),
    ("memory", KernelClass.MEMSET): ("memsets, exposed", "Memsets while nothing computes or communicates.", "B07"),
}  # fmt: skip
_PHASES = {  # of a run on the host alone: tone, and what it is
    Phase.FORWARD: ("t-g0", "Calls of layers, outside of the backward pass."),
    Phase.RECOMPUTE: ("t-g1", "Calls of layers within the backward pass: activation checkpointing."),
    Phase.BACKWARD: ("t-g2", "Operators of the backward pass."),
    Phase.OPTIMIZER: ("t-g3", "Steps of optimizers, and gradients set to zero."),
    INPUT: ("t-g4", "The next batch was waited for or made."),
    COMMUNICATION: ("c-communication", "Calls of process groups (Gloo, MPI), with what they wait for."),
    Phase.OTHER: ("c-other", "What no layer, backward operator, optimizer, data loader or process group took."),
}
_KERNELS = {KernelClass.COPY: "copy kernels", KernelClass.MEMSET: "fill kernels", KernelClass.OTHER: "other kernels"}
_SUMS = {"copy": "copies", "memset": "memsets"}
_SHARED = (
    "A moment is of compute if a kernel runs, else of communication, else of copies; where kernels of several classes"
    " run side by side it is shared out evenly among them. So the parts add up to the whole."
)


def step_bar(answers: Answers) -> Block | None:
    """Title, what it is of, total in ns and parts; None where the trace tells of no time to divide."""
    row = busiest(answers)
    if row is not None and row["window_ns"]:
        return _of_device(answers, row)
    return _sums_of_classes(answers) or _of_host(answers)


def busiest(answers: Answers) -> dict[str, Any] | None:
    """B03's row of the device with most work of its own; None where gaps and shares of time tell nothing."""
    timeline, view = answers.of("B03"), answers.per_step.of_trace
    if isinstance(timeline, str) or view.is_one_by_one or not view.has_starts:
        return None
    return busiest_device(timeline.table)


def _of_device(answers: Answers, row: Mapping[str, Any]) -> Block:
    """The bar of one device's window."""
    rows = _rows_of(answers.of("B42"), row)
    parts = [*_work(rows, answers), *_waiting(rows, answers, row)]
    return _bar(_title(answers, row), f"{_of_several(answers)}{_SHARED}", row["window_ns"], parts)


def _bar(title: str, about: str, total: float, parts: list[dict[str, Any]]) -> Block:
    return {
        "title": clean(title),
        "about": clean(about),
        "total": total,
        "parts": [{**part, "share": part["time"] / total} for part in parts],
    }


def _part(*values: object) -> dict[str, Any]:
    return dict(zip(_KEYS, values, strict=True))


def _title(answers: Answers, row: Mapping[str, Any]) -> str:
    return f"{_window(answers)}{_on(answers, row)}, {duration(row['window_ns'])}{_profiled_clause(answers)}"


def _window(answers: Answers) -> str:
    """What the bar is of: the trace, a mean step or one step."""
    if not answers.step_count:
        return "The whole trace"
    if (number := answers.per_step.choice.number) is not None:
        return f"Step {number}"
    phase = answers.per_step.serving_phase
    return f"A {phase} step" if phase else "A step"


def _profiled_clause(answers: Answers) -> str:
    """Of a profile, whose bar is not of the run that tells the latency."""
    if not answers.is_leveled:
        return ""
    test = load_test(answers.trace)
    latency = None if test and test.has_queueing else answers.first("A15").get("model_latency_ns")
    without = f" ({duration(latency)} without)" if latency else ""
    return f", with kernels profiled{without}"


def _on(answers: Answers, row: Mapping[str, Any]) -> str:
    """Of several devices, which one the bar is of."""
    timeline = answers.of("B03")
    if isinstance(timeline, str) or timeline.table.height <= 1:
        return ""
    device = f" on device {'-' if row['device_id'] is None else row['device_id']}"
    return device + (f" of {_rank(answers, row['run_id'])}" if timeline.table["run_id"].n_unique() > 1 else "")


def _of_several(answers: Answers) -> str:
    """What the other devices did, where there are several."""
    timeline = answers.of("B03")
    if isinstance(timeline, str) or timeline.table.height <= 1:
        return ""
    every = answers.first("A15").get("gpu_share")
    of_all = (
        f" together they are busy for {share(every)} of the time."
        if every is not None and not answers.is_leveled
        else ""
    )
    which = f"Of {timeline.table.height} devices it is the one with most work beside communication"
    return f"{which}{f';{of_all}' if of_all else '.'} "


def _rank(answers: Answers, run_id: int) -> str:
    rank = next((run["rank"] for run in answers.summary.runs if run["run_id"] == run_id), None)
    return f"run {run_id}" if rank is None else f"rank {rank}"


def _work(parts: pl.DataFrame, answers: Answers) -> Iterator[dict[str, Any]]:
    """Compute by class, most first, then what nothing hides."""
    for part, name, time in parts.filter(pl.col("part") != "idle").select("part", "name", "duration_ns").iter_rows():
        kernel_class = KernelClass(name)
        label, about, analysis = _ALONE.get((part, kernel_class), (None, "", ""))
        link = _of_class(name)
        if label is None:
            label = _KERNELS.get(kernel_class, name)
            about = f"Kernels of class {name}, in the time that no other class shares with them, or their part of it."
        elif _has_rows(answers, analysis):
            link = analysis
        yield _part(label, f"c-{tone(kernel_class)}", time, about, link)


def _rows_of(result: Result | str, device: Mapping[str, Any]) -> pl.DataFrame:
    """The rows of one device; none where there is no answer."""
    if isinstance(result, str):
        return pl.DataFrame()
    rows = result.table
    return rows.filter(*(pl.col(key).eq_missing(pl.lit(device[key], rows.schema[key])) for key in DEVICE))


def _waiting(parts: pl.DataFrame, answers: Answers, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Idle time by cause, most first."""
    for cause, time in parts.filter(pl.col("part") == "idle").select("name", "duration_ns").iter_rows():
        column = f"idle_{cause}_ns"
        longest, has_rows = _calls(answers, row, cause)
        link = _link("B16", q=cause) if has_rows else "devices"
        about = f"The device is idle: {IDLE[column]}.{longest}"
        yield _part(f"idle: {IDLE[column]}", f"c-{IDLE_TONES[column]}", time, about, link)


def _calls(answers: Answers, row: Mapping[str, Any], cause: str) -> tuple[str, bool]:
    """What explains most of it by name, and whether B16 has rows of it."""
    rows = _rows_of(answers.of("B16"), row)
    if rows.is_empty():
        return "", False
    rows = rows.filter(pl.col("cause") == cause)
    named = rows.drop_nulls("call").sort("idle_ns", descending=True, maintain_order=True).head(1)
    total = total_of(rows["idle_ns"])
    longest = [
        f" {'Most of it' if 2 * t >= total else 'Longest'} in {short_name(c)} ({duration(t)})."
        for c, t in named.select("call", "idle_ns").iter_rows()
    ]
    return "".join(longest), rows.height > 0


def _sums_of_classes(answers: Answers) -> Block | None:
    """Device time by class where only sums are known: of kernels that ran one by one, or of reports without times."""
    result = answers.of("B17")
    rows = pl.DataFrame() if isinstance(result, str) else result.table.drop_nulls("duration_ns")
    total = total_of(rows["duration_ns"]) if rows.height else 0.0
    if not total:
        return None
    parts = [
        _part(_SUMS.get(name, name), f"c-{tone(name)}", time, f"Device work of class {name}.", _of_class(name))
        for name, time in rows.select("kernel_class", "duration_ns").iter_rows()
    ]
    why = (
        "Kernels ran one by one for their counters"
        if answers.per_step.of_trace.is_one_by_one
        else "The report has sums, not when work ran"
    )
    about = f"{why}: nothing tells of gaps, and of what ran side by side."
    return _bar(f"Device time by class, {duration(total)} in sum", about, total, parts)


def phases_on_host(answers: Answers) -> pl.DataFrame:
    """Phase and duration_ns of training on the host alone; empty where it is no training, or where devices worked."""
    result = answers.of("B43")
    if isinstance(result, str) or not {Phase.FORWARD, Phase.BACKWARD} <= set(result.table["phase"]):
        return pl.DataFrame(schema={"phase": pl.String, "duration_ns": pl.Float64})
    return host_time_by(result.table, "phase")


def _of_host(answers: Answers) -> Block | None:
    """Host time, of a run on the host alone: of training by phase, else by types of layers."""
    result = answers.of("B43")
    if isinstance(result, str) or result.table.is_empty():
        return None
    phases, types = phases_on_host(answers), result.table
    parts = list(_phases(phases) if phases.height else _types(types))
    total = total_of(types["duration_ns"])
    about = "No device work was recorded: this is the time of the host, layers without the layers inside them."
    left = types["layer_type"].null_count()  # of the window, where threads did not work side by side
    title = (
        f"{_window(answers)} on the host, {duration(total)}" if left else f"Time on the host, {duration(total)} in sum"
    )
    return _bar(title, about, total, parts)


def _phases(rows: pl.DataFrame) -> Iterator[dict[str, Any]]:
    for name, time in rows.iter_rows():
        yield _part(name, _PHASES[name][0], time, _PHASES[name][1], "B43")


def _types(table: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """A part a type, those with least in one, and what is left."""
    rows = host_time_by(table, "layer_type")
    types = rows.drop_nulls().sort("duration_ns", descending=True, maintain_order=True)
    for i, (name, time) in enumerate(types.head(_MAX_TYPES).iter_rows()):
        text = clean(str(name))
        yield _part(text, f"t-g{i}", time, f"Layers of type {text}.", _link("layers", q=str(name)))
    if rest := total_of(types["duration_ns"][_MAX_TYPES:]):
        number = types.height - _MAX_TYPES
        yield _part(f"{number} more types", "c-other", rest, "The types with least time.", "types")
    if left := total_of(rows.filter(pl.col("layer_type").is_null())["duration_ns"]):
        yield _part("outside of layers", "c-other", left, "Time of the host in no call of a layer.", "types")


def _of_class(name: str) -> str:
    return _link("kernels", **{"class": name})


def _has_rows(answers: Answers, identity: str) -> bool:
    result = answers.of(identity)
    return not isinstance(result, str) and result.table.height > 0


def _link(identity: str, **params: str) -> str:
    """A link into the page, as `linkTo` of its script writes them."""
    return f"{identity}?{urlencode(params)}"


# A trace at a glance, for a page that lists many: what its step is made of, and the first finding.


def glance(answers: Answers) -> dict[str, Any]:
    """`bar` (title, total_ns, parts of label, tone and time_ns) and `finding`; null where there is none.

    `finding` is the first that has something to gain: id, title, gain_ns and gain_share (of latency).
    """
    return {"bar": _bar_at_a_glance(answers), "finding": _first_finding(answers)}


def _bar_at_a_glance(answers: Answers) -> dict[str, Any] | None:
    bar = step_bar(answers)
    if bar is None:
        return None
    parts = [{"label": part["label"], "tone": part["tone"], "time_ns": part["time"]} for part in bar["parts"]]
    return {"title": bar["title"], "total_ns": bar["total"], "parts": parts}


def _first_finding(answers: Answers) -> dict[str, Any] | None:
    first = next((one for one in answers.advice if not one.rule.on_trust), None)
    if first is None:
        return None
    return {"id": first.rule.id, "title": first.rule.title, "gain_ns": first.gain_ns, "gain_share": first.gain_share}
