"""What stands at the head of a report: the findings in short, what was measured, the model in a few numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xsp_analyze.render.shown import short_name
from xsp_analyze.render.units import count, duration, share, size
from xsp_analyze.report import blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_analyze.report.answers import Answers
    from xsp_analyze.report.blocks import Section

__all__ = ["in_short", "measured", "model"]

_CAPTURED: Mapping[str, str] = {
    "M": "the model as a whole",
    "ML": "model and layers",
    "MLG": "model, layers and device work",
}
_MORE_THAN_ROUNDING = 1.01
_SOURCES: Mapping[str, str] = {
    "module": "calls of framework modules",
    "range": "named ranges",
    "operator": "outermost framework operators",
    "none": "nothing: the trace has no layers",
}


def in_short(answers: Answers) -> list[str]:
    """The findings a reader in a hurry should take away, a sentence each."""
    return list(_in_short(answers))


def _in_short(answers: Answers) -> Iterator[str]:
    model_row, summary = answers.first("A15"), answers.summary
    if latency := model_row.get("model_latency_ns"):
        what = "A step takes" if answers.step_count else "The trace spans"
        busy, part = model_row["kernel_duration_ns"], model_row["gpu_share"]
        several = " for each process" if _is_per_process(model_row) else ""
        yield f"{what} {duration(latency)}; device work adds up to {duration(busy)}, {share(part)} of that{several}."
    if not summary.attributed:
        yield "No device work was recorded, so this report is about the host only."
    top_type = answers.first("A06")
    if top_type.get("share"):
        yield f"Layers of type {top_type['layer_type']} take {share(top_type['share'])} of all layer time."
    kernel, total = answers.first("A10"), model_row.get("kernel_duration_ns")
    if kernel and total:
        part, name = share(kernel["duration_ns"] / total), short_name(kernel["kernel_name"])
        yield f"The kernel with most time is {name}: {part} of device time."
    if summary.coverage is not None and summary.layer_count:
        yield f"{share(summary.coverage)} of device time is tied to a layer of the model."


def _is_per_process(row: Mapping[str, Any]) -> bool:
    """Whether the GPU share was taken of the latency times the processes whose device time is summed."""
    part, busy, latency = (row.get(key) or 0.0 for key in ("gpu_share", "kernel_duration_ns", "model_latency_ns"))
    return bool(busy > part * latency * _MORE_THAN_ROUNDING)


def measured(answers: Answers) -> list[dict[str, Any]]:
    """Label and text of what the trace is, for the page's head."""
    summary, provenance = answers.summary, answers.per_step.provenance
    rows = [("Source", _source(run)) for run in summary.runs]
    rows += [(f"Device {_or_dash(d['device_id'])}", _device(d)) for d in summary.devices]
    rows += [
        ("Levels", ", ".join(f"{level} {number:,}" for level, number in summary.counts.items()) or "none"),
        ("Layers are", "; ".join(_SOURCES.get(s, s) for s in summary.layer_sources) or _SOURCES["none"]),
        ("Steps", _steps(answers)),
        ("Window", _window(summary.window_ns, summary.device_window_ns)),
        ("Model latency", str(provenance.get("model_latency_basis") or "unknown")),
        ("Layer latency", _layer_basis(provenance)),
    ]
    return [{"label": label, "text": sentence} for label, sentence in rows]


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
        f"{device['name'] or 'no name in the trace'}, run {device['run_id']}: {device['activities']:,} activities,"
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
    words = {
        "device": "measured on the device, from the first start to the last end of the layer's own work",
        "host": "measured on the host, with the device waited for after each layer",
    }
    basis = provenance.get("layer_latency_basis")
    return words.get(str(basis), str(basis)) if basis else "no layers"


def model(answers: Answers) -> Section:
    """Key numbers of the model, a sentence each."""
    means = f"The model as a whole, {answers.basis}."
    items = list(_facts(answers))
    found = blocks.facts(items) if items else blocks.missing("The trace holds neither steps nor device work.")
    return blocks.section("model", "Model", "The model", means, [found])


def _facts(answers: Answers) -> Iterator[tuple[str, str, str, str]]:
    row, summary = {**answers.first("A01"), **answers.first("A15")}, answers.summary
    latency = row.get("model_latency_ns", row.get("latency_ns"))
    if latency is not None:
        note = (
            "From the start to the end of a step, host and device together."
            if answers.step_count
            else "From the first start to the last end of anything in the trace, as no steps are marked."
        )
        yield "Latency", duration(latency), _exact(latency), note
    if (busy := row.get("kernel_duration_ns")) is not None:
        yield "Device time", duration(busy), _exact(busy), "Sum of the durations of all kernels, copies and fills."
    if (part := row.get("gpu_share")) is not None:
        several = ", for each process" if _is_per_process(row) else ""
        note = f"Device time over latency{several}. Where kernels do not overlap, the device is idle for the rest."
        yield "GPU share", share(part), f"{part}", note
    if (number := row.get("kernel_count")) is not None:
        yield (
            "Kernels and copies",
            count(number),
            "",
            "Pieces of device work; many short ones make a launch-bound model.",
        )
    if summary.layer_count:
        note = f"With work of their own, called {summary.layer_call_count:,} times in the whole trace."
        yield "Layers", count(summary.layer_count), "", note
    if row.get("throughput_per_s") is not None:
        note = f"With {row['batch_size']} inputs a step."
        yield "Throughput", f"{row['throughput_per_s']:,.1f} inputs/s", "", note


def _exact(time_ns: float) -> str:
    return f"{time_ns:,.0f} ns"


def _or_dash(value: object) -> object:
    return "-" if value is None else value
