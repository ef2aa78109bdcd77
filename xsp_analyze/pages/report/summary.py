"""The head of a report: in sentences what ran and what bounds it, and in rows what the trace is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.formulas import total_of
from xsp_analyze.frames import coverage
from xsp_analyze.frames.device_time import window_by_run
from xsp_analyze.frames.model_time import load_test
from xsp_analyze.frames.steps import StepBasis, kind_of_mean
from xsp_analyze.pages.report import attribution, roofline, serving
from xsp_analyze.pages.report.step_bar import phases_on_host
from xsp_analyze.service import roof_summary
from xsp_analyze.text.doubts import first_doubts
from xsp_analyze.text.table import clean, short_name
from xsp_analyze.text.units import apart, count, count_of, duration, or_dash, quantity, share, size
from xsp_model import Attribution, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_analyze.service import Answers, Summary
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["facts_measured", "in_one_line", "over_ranks", "summary_sentences"]

# The head of a report in sentences: what ran, on what, how fast, what bounds it, and how far to trust that.

_MATCH = "match_"
_HOST_ALONE = "the host alone: no device work was recorded"
_UNNAMED_WORK = "A recording of work"
_SPELLED = {
    "pytorch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "onnxruntime": "ONNX Runtime", "mxnet": "MXNet",
    "tensorrt": "TensorRT",
}  # fmt: skip


def summary_sentences(answers: Answers) -> list[str]:
    """What a reader in a hurry should take away, a sentence each."""
    first = first_doubts(answers.per_step.of_trace)
    lines = (
        _what(answers),
        _how_fast(answers),
        answers.verdict.sentence if answers.verdict else None,
        *_where(answers),
        *_confidence(answers),
    )
    extra = (
        serving.sentence(answers),
        roofline.verdict(answers),
        roof_summary(answers),
        attribution.sentence(answers),
    )
    return [clean(line) for line in (*first, *lines[:3], *extra, *lines[3:]) if line]


def _what(answers: Answers) -> str:
    """What was run, under which framework and on which devices: `Training under PyTorch on 2 x H100, batch size 8`."""
    runs = _runs(answers)
    frameworks = list(dict.fromkeys(_makers_spelling(str(r["framework"])) for r in runs if r["framework"]))
    batches = list(dict.fromkeys(r["batch_size"] for r in runs if r["batch_size"]))
    parts = [_kind_of_work(answers)]
    parts += [f"under {' and '.join(frameworks)}"] if frameworks else []
    parts += [f"on {_devices(answers)}"]
    ending = f", batch size{'s' if len(batches) > 1 else ''} {', '.join(map(str, batches))}" if batches else ""
    ranks = f", {len(runs)} runs side by side" if _several_runs(answers, runs) else ""
    return f"{' '.join(parts)}{ending}{ranks}."


def in_one_line(answers: Answers) -> list[str]:
    """What ran, on what, under what, batch size, and the step's time with its basis: the parts of one line.

    Before them what is to be known before any number.
    """
    work = _kind_of_work(answers)
    runs = _runs(answers)
    frameworks = list(dict.fromkeys(_makers_spelling(str(r["framework"])) for r in runs if r["framework"]))
    batches = list(dict.fromkeys(r["batch_size"] for r in runs if r["batch_size"]))
    parts = [work] if work != _UNNAMED_WORK else []
    devices = _devices(answers)
    parts += ["no device work recorded" if devices == _HOST_ALONE else devices, *frameworks]
    parts += [f"batch size{'s' if len(batches) > 1 else ''} {', '.join(map(str, batches))}"] if batches else []
    parts += [_side_by_side(runs)] if _several_runs(answers, runs) else []
    doubts = (sentence.rstrip(".") for sentence in first_doubts(answers.per_step.of_trace))
    first, *others = (clean(part) for part in (*doubts, *parts, *_step_time(answers)) if part)
    return [f"{first[:1].upper()}{first[1:]}", *others]


def _side_by_side(runs: Sequence[Mapping[str, Any]]) -> str:
    ranks = {run["rank"] for run in runs}
    if None not in ranks and len(ranks) == len(runs):
        return count_of(len(runs), "rank", "ranks")
    return count_of(len(runs), "run side by side", "runs side by side")


def _step_time(answers: Answers) -> Iterator[str]:
    """`177.9 ms on the device, mean of 6 steps`."""
    row = {**answers.of_model(), **answers.first("A15")}
    latency = row.get("model_latency_ns", row.get("latency_ns"))
    if latency is None:
        return
    if answers.of_load_test():
        yield from _load_test_words(answers, latency)
        return
    if not answers.step_count:
        if answers.per_step.of_trace.has_starts:
            yield f"{duration(latency)} recorded{'' if answers.has_steps else ', no steps marked'}"
        return
    phase = f"{answers.per_step.serving_phase} " if answers.per_step.serving_phase else ""
    number = answers.step_count
    of = f"{kind_of_mean(number)} of {count(number)} {phase}steps" if number > 1 else f"the one {phase}step"
    if (chosen := answers.per_step.choice.number) is not None:
        of = f"step {chosen}"
    yield f"{duration(latency)}{_latency_basis_words(row)}, {of}{_of_each(answers)}{_ramp_up(answers)}"


def _load_test_words(answers: Answers, latency: float) -> Iterator[str]:
    """`LoadGen Server PerformanceOnly: INVALID (early stopping)`, and the mean latency that it states."""
    test = load_test(answers.trace)
    if test is not None and test.valid is not None:
        rules = f" ({', '.join(test.broken_rules)})" if test.broken_rules else ""
        yield f"{test.test}: {'valid' if test.valid else 'INVALID'}{rules}"
    yield f"{duration(latency)}, the mean latency that the load generator states"


def over_ranks(answers: Answers) -> str:
    """The sentence for several runs side by side; else nothing."""
    ends = _ends(answers)
    return f" The mean over runs side by side, whose own steps take {ends[0]} to {ends[1]}." if ends else ""


def _of_each(answers: Answers) -> str:
    ends = _ends(answers)
    return f" of each, mean of {count(len(_runs(answers)))} ({ends[0]} to {ends[1]})" if ends else ""


def _ends(answers: Answers) -> list[str]:
    """Of several runs side by side, the step of the shortest and of the longest; none of one run."""
    runs, timeline = _runs(answers), answers.of("B03")
    if not _several_runs(answers, runs) or isinstance(timeline, str):
        return []
    times = window_by_run(timeline.table)
    return apart((min(times), max(times)), "ns") if times else []


def _runs(answers: Answers) -> list[Mapping[str, Any]]:
    """The runs that the page is about: of a profile those that latency is from."""
    summary = answers.summary
    view = summary.view
    runs = [run for run in summary.runs if run["run_id"] in view.own_runs]
    return [run for run in runs if not view.is_leveled or run["run_id"] in view.model_runs]


def _several_runs(answers: Answers, runs: Sequence[Mapping[str, Any]]) -> bool:
    return len(runs) > 1 and not answers.summary.view.is_leveled


def _makers_spelling(framework: str) -> str:
    """The framework as its makers write it; a version stays behind it."""
    name, _, version = framework.partition(" ")
    return " ".join(filter(None, (_SPELLED.get(name.lower(), name), version)))


def _kind_of_work(answers: Answers) -> str:
    phases = set(
        answers.per_step.of_trace.own_runs.scan("spans")
        .select(pl.col("phase").cast(pl.String).unique())
        .collect()["phase"]
    )
    if str(Phase.BACKWARD) in phases:
        return "Training" if str(Phase.OPTIMIZER) in phases else "Forward and backward passes"
    if str(Phase.FORWARD) in phases and "module" in answers.summary.layer_sources:
        return "Forward passes"
    return _UNNAMED_WORK


def _devices(answers: Answers) -> str:
    """The devices that worked, counted by name; the host where none did."""
    summary = answers.summary
    runs = summary.view.kernel_runs if summary.view.is_leveled else summary.view.timed_runs
    described = {r["run_id"]: r["device_name"] for r in summary.runs}
    names: dict[str, int] = {}
    key = ("run_id", "device_id")
    sources = answers.trace.frame("devices").drop_nulls("peak_source").unique(key, keep="first", maintain_order=True)
    source_of = {(run, device): source for run, device, source in sources.select(*key, "peak_source").iter_rows()}
    for device in (d for d in summary.devices if d["run_id"] in runs):
        source = source_of.get((device["run_id"], device["device_id"]), "")
        name = device["name"] or described.get(device["run_id"]) or _assumed_product(str(source))
        names[name] = names.get(name, 0) + 1
    listed = [_several(name, number) for name, number in names.items()]
    return " and ".join(listed) or _HOST_ALONE


def _assumed_product(source: str) -> str:
    """What a device without a name is taken for where its peaks, of this source, are known: whose data sheet it is."""
    product, sheet, _ = source.partition(" data sheet")
    return f"a device without a name, taken for {product}" if sheet else ""


def _several(name: str, number: int) -> str:
    if not name:
        return f"{number} devices" if number > 1 else "a device that the trace does not name"
    return f"{number} x {name}" if number > 1 else name


def _how_fast(answers: Answers) -> str | None:
    row = {**answers.of_model(), **answers.first("A15")}
    latency = row.get("model_latency_ns", row.get("latency_ns"))
    if latency is None:
        return None
    rate = row.get("throughput_per_s")
    if answers.of_load_test():
        completed = f", and {quantity(rate, 'samples/s')} were completed" if rate is not None else ""
        return f"A query takes {duration(latency)} in the mean that the load generator states{completed}."
    phase = answers.per_step.serving_phase
    step = f"A {phase} step" if phase else "A step"
    what = f"{step} takes" if answers.step_count else "The trace spans"
    low, high = row.get("low_ns"), row.get("high_ns")
    taken, *ends = apart([v for v in (latency, low, high) if v is not None], "ns")
    interval = f" (95 % interval {ends[0]} to {ends[1]})" if len(ends) > 1 else ""
    number = answers.step_count
    over = f", the {kind_of_mean(number)} over {count(number)} steps" if number > 1 else ""
    over += _ramp_up(answers)
    inputs = f"; that is {quantity(rate, 'inputs/s')}" if rate is not None and answers.step_count else ""
    return f"{what} {taken}{_latency_basis_words(row) if answers.step_count else ''}{over}{interval}{inputs}."


def _latency_basis_words(row: Mapping[str, Any]) -> str:
    """What the latency is of, in a word or two; the section on the model says it whole."""
    bases = str(row.get("latency_basis") or "").split(" and ")
    if any(basis.startswith("device") for basis in bases):
        return " on the device"
    return ", timed without a profiler" if str(StepBasis.TIMED) in bases else " on the host"


def _ramp_up(answers: Answers) -> str:
    left_out = answers.per_step.ramp_up_count
    return f" ({count_of(left_out, 'step', 'steps')} of ramp-up left out)" if left_out else ""


def _where(answers: Answers) -> Iterator[str]:
    """What the host did where no device worked; which type of layer and which kernel lead."""
    top_type, kernel, summary = answers.first("A06"), answers.first("A10"), answers.summary
    total = answers.first("A15").get("kernel_duration_ns")
    phases = phases_on_host(answers)
    total_ns = total_of(phases["duration_ns"])
    if parts := [f"{name} {share(ns / total_ns)}" for name, ns in phases.iter_rows()]:
        yield f"Of that time on the host, {', '.join(parts[:-1])} and {parts[-1]}."
    if top_type.get("share") and top_type["layer_type"] not in phases["phase"]:
        caveat = f", but {summary.layer_caveat}" if summary.layer_caveat else ""
        yield f"Layers of type {top_type['layer_type']} take {share(top_type['share'])} of all layer time{caveat}."
    if kernel and total:
        part, name = share(kernel["duration_ns"] / total), _kernel_name(kernel)
        yield f"The kernel with most time is {name}: {part} of device time."


def _kernel_name(kernel: Mapping[str, Any]) -> str:
    """The kernel's label, and its name where that says more."""
    label, name = clean(str(kernel["kernel_label"])), short_name(kernel["kernel_name"])
    return name if name.startswith(label) else f"{label} ({name})"


def _confidence(answers: Answers) -> Iterator[str]:
    """How much of device time is in layers, how much has no launch, and how well a profile's runs match."""
    summary = answers.summary
    total = summary.device_time_ns
    if total and summary.coverage is not None:
        lost = sum(a.duration_ns or 0 for a in summary.attributed if str(a.attribution).startswith("orphan"))
        graph = sum(a.duration_ns or 0 for a in summary.attributed if a.attribution == Attribution.GRAPH_REPLAY)
        parts = [f"{share(summary.coverage)} of device time is in a layer of the model"]
        parts += [f"{share(graph / total)} is in graph replays without one"] if graph else []
        parts += [f"{share(lost / total)} has no launch in the trace" if lost else "none of it lacks its launch"]
        yield f"{', '.join(parts[:-1])} and {parts[-1]}."
    for finding in summary.findings:
        if str(finding["kind"]).startswith(_MATCH):
            detail = str(finding["detail"])
            yield f"{detail[:1].upper()}{detail[1:].rstrip('.')}."


# What a report is about: the files and runs, devices, levels and steps, and what latencies are measured by.

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
    rows = _first("runs", _run_rows(summary))
    rows += _first("devices", [(f"Device {or_dash(d['device_id'])}", _device(d)) for d in summary.devices])
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


def _run_rows(summary: Summary) -> list[tuple[str, str]]:
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
        run["rank"] is not None and f"rank {run['rank']} of {or_dash(run['world_size'])}",
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
