"""What a report is about: the files and runs, devices, levels and steps, and what latencies are measured by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xsp_analyze.frames import coverage
from xsp_analyze.text.units import count, duration, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.service.answers import Answers
    from xsp_analyze.service.contents import Summary
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["facts_measured"]

_MAX_LISTED = 200  # runs, and devices
_CAPTURED: Mapping[str, str] = {
    "M": "the model as a whole",
    "ML": "model and layers",
    "MLG": "model, layers and device work",
    "MLG+metrics": "device work and hardware counters",
}
_SOURCES: Mapping[str, str] = {
    "module": "calls of framework modules",
    "range": "named ranges",
    "operator": "outermost framework operators",
    "none": "nothing: the trace has no layers",
}


def facts_measured(answers: Answers) -> list[dict[str, Any]]:
    """Label and text of what the trace is, for the page's head."""
    summary, provenance = answers.summary, coverage.provenance(answers.per_step)
    rows = _first("runs", _runs(summary))
    rows += _first("devices", [(f"Device {_or_dash(d['device_id'])}", _device(d)) for d in summary.devices])
    rows += [
        ("Levels", ", ".join(f"{level} {count(number)}" for level, number in summary.counts.items()) or "none"),
        ("Layers are", "; ".join(_SOURCES.get(s, s) for s in summary.layer_sources) or _SOURCES["none"]),
        ("Steps", _steps(answers)),
        ("Window", _window(summary.window_ns, summary.device_window_ns)),
        ("Model latency", str(provenance.get("model_latency_basis") or "unknown")),
        ("Layer latency", _layer_basis(provenance)),
    ]
    return [{"label": label, "text": sentence} for label, sentence in rows]


def _first(what: str, rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The rows, of many the first with a row that counts the others."""
    more = len(rows) - _MAX_LISTED
    return rows if more <= 0 else [*rows[:_MAX_LISTED], (f"More {what}", f"{count(more)}; xsp info lists them")]


def _runs(summary: Summary) -> list[tuple[str, str]]:
    """What was read, a line a run; of a profile also what each run gave."""
    captures = [("Graph capture", _source(run)) for run in summary.captures]
    if not summary.view.is_leveled and not summary.view.has_other_batches:
        return [*(("Source", _source(run)) for run in summary.runs), *captures]
    return [*((f"Run {run['run_id']}", _run_of_profile(run, summary.view)) for run in summary.runs), *captures]


def _run_of_profile(run: Mapping[str, Any], view: TraceView) -> str:
    """What a run of a profile gave, then where it is from."""
    number = run["run_id"]
    gave = [
        text
        for runs, text in ((view.model_runs, "model latency"), (view.layer_runs, "layer latency"))
        if number in runs
    ]
    gave += ["kernels and all device time"] if number in view.kernel_runs else []
    if number in view.counter_runs:
        gave = ["hardware counters, none of its times"]
    if number not in view.own_runs:
        gave = [f"what is by batch size, at {run['batch_size']}, and nothing else"]
    if not gave:
        gave = ["which layer a kernel belongs to, where the run of the kernels leaves that open"]
    return f"gave {' and '.join(gave)}: {_source(run)}"


def _source(run: Mapping[str, Any]) -> str:
    parts = (
        run["source_path"],
        run["source_bytes"] and size(run["source_bytes"]),
        run["profiler"],
        run["framework"],
        run["rank"] is not None and f"rank {run['rank']} of {_or_dash(run['world_size'])}",
        run["level_captured"] and f"captured {_CAPTURED.get(run['level_captured'], run['level_captured'])}",
        run["source_sha256"] and f"SHA-256 {run['source_sha256'][:12]}",
    )
    return ", ".join(str(p) for p in parts if p)


def _device(device: Mapping[str, Any]) -> str:
    return (
        f"{device['name'] or 'no name in the trace'}, run {device['run_id']}: {count(device['activities'])} activities,"
        f" {duration(device['duration_ns'])} in sum"
    )


def _steps(answers: Answers) -> str:
    steps = answers.summary.steps
    if not steps:
        return "none are marked, so times are totals over the whole trace"
    named = ", ".join(map(str, steps)) if len(steps) <= 12 else f"{steps[0]} to {steps[-1]}"  # noqa: PLR2004
    return f"{len(steps)} ({named}); times per step are trimmed means over them"


def _window(whole_ns: int | None, device_ns: int | None) -> str:
    within = f"; device work spans {duration(device_ns)} of it" if device_ns is not None else ""
    return f"{duration(whole_ns)} from the first start to the last end of anything{within}"


def _layer_basis(provenance: Mapping[str, object]) -> str:
    texts = {
        "device": "measured on the device, from the first start to the last end of the layer's own work",
        "host": "measured on the host, with the device waited for after each layer",
    }
    basis = provenance.get("layer_latency_basis")
    return texts.get(str(basis), str(basis)) if basis else "no layers"


def _or_dash(value: object) -> object:
    return "-" if value is None else value
