"""What a trace holds, for a first look in Python."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from xsp_analyze.catalog import all_analyses
from xsp_analyze.findings.recording import Recording, recordings
from xsp_analyze.needs import holds, words_of_need
from xsp_analyze.render import html
from xsp_analyze.service import Summary, summarise
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count, duration, share
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.needs import Need
    from xsp_model import Trace

__all__ = ["Info", "document", "info_of", "not_answered"]

_UNKNOWN = "-"
_STEPS_IN_FULL = 8
_OURS = re.compile(r"[AB]\d\d")  # the reports of nsys need what nsys records


@dataclass(frozen=True)
class Info:
    """Runs, levels, steps, devices, and how much device time has a layer; times in ns, null where unknown."""

    summary: Summary
    recording: Sequence[Recording] = ()
    """By topic what the trace has, and what to record or give for more."""

    @property
    def spans_by_level(self) -> Mapping[str, int]:
        """How many spans each level has, outermost first."""
        return self.summary.counts

    @property
    def device_time_ns(self) -> int | None:
        """Sum of the durations of all device activities; null where none of them is known."""
        return self.summary.device_time_ns

    @property
    def coverage(self) -> float | None:
        """Share of device time that belongs to a layer, 0 to 1; null where there is no device time."""
        return self.summary.coverage

    def lines(self) -> Iterator[tuple[str, str]]:
        """A word and what stands beside it, in order."""
        summary = self.summary
        for run in summary.runs:
            parts = (run["source_path"], run["format"], run["profiler"], run["framework"])
            yield f"run {run['run_id']}", ", ".join(str(part) for part in parts if part)
        if captures := ", ".join(str(run["source_path"]) for run in summary.captures):
            yield "captures", captures
        yield "layers", f"{count(summary.layer_count)} from {', '.join(summary.layer_sources) or 'nothing'}"
        yield "spans", ", ".join(f"{count(spans)} {level}" for level, spans in summary.counts.items()) or "none"
        yield "steps", _steps(summary)
        for device in summary.devices:
            name = device["name"] or "no name in the file"
            time = device["duration_ns"]
            yield (
                f"device {_or_unknown(device['device_id'])}",
                f"{name}: {count(device['activities'])} activities"
                + (
                    f", {duration(time)} in sum (run {device['run_id']})"
                    if isinstance(time, int)
                    else ", of unknown duration"
                ),
            )
        yield "device time", self._device_time()
        worrying = [one for one in summary.findings if one["severity"] != "info"]
        yield (
            "ledger",
            "; ".join(f"{one['severity']}: {one['detail']} ({count(one['count'])})" for one in worrying) or "clear",
        )
        for one in self.recording:
            yield "recording", f"{one.topic}: {one.state}{f'; {one.do}' if one.do else ''}"

    def _device_time(self) -> str:
        if self.device_time_ns is None:
            return "unknown: the trace says of no activity how long it took"
        if self.coverage is None:
            return "none recorded"
        return f"{duration(self.device_time_ns)}, of which {share(self.coverage)} in a layer"

    def __str__(self) -> str:
        return "\n".join(f"{label:<13}{clean(what)}" for label, what in self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html.definitions(list(self.lines()))


def info_of(trace: Trace) -> Info:
    """Reads the trace once over."""
    return Info(summarise(trace), recordings(trace))


def document(
    summary: Summary, without: Mapping[str, Sequence[str]], recording: Sequence[Recording]
) -> dict[str, object]:
    """What `xsp info -f json` writes; times are ns, null is unknown."""
    held = {field.name: getattr(summary, field.name) for field in fields(summary) if field.name != "view"}
    return {
        **held,
        "attributed": [asdict(one) for one in summary.attributed],
        "coverage": summary.coverage,
        "not_answered": without,
        "recording": [asdict(one) for one in recording],
    }


def not_answered(trace: Trace) -> Mapping[str, Sequence[str]]:
    """For each thing that analyses need and the trace does not hold: which they are."""
    frames = StepView.of(trace)
    without: dict[Need, list[str]] = {}
    for one in all_analyses():
        for need in one.needs if _OURS.fullmatch(one.id) else ():
            if not holds(frames.of_trace, need):
                without.setdefault(need, []).append(one.id)
    return {words_of_need(need): ids for need, ids in without.items()}


def _steps(summary: Summary) -> str:
    if not summary.steps:
        return "none marked"
    if len(summary.steps) <= _STEPS_IN_FULL:
        return f"{len(summary.steps)}: {', '.join(map(str, summary.steps))}"
    return f"{len(summary.steps)}: {summary.steps[0]} to {summary.steps[-1]}"


def _or_unknown(value: object) -> object:
    return _UNKNOWN if value is None else value
