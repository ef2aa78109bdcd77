"""What more a trace of this kind could tell, and what has to be recorded for it: for `xsp info`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.classification.experts import expert_matcher
from xsp_analyze.findings.advice import RECORD_NODES, give_captures
from xsp_analyze.formulas import total_of
from xsp_analyze.text.units import count, count_of, share
from xsp_analyze.trace.trace_view import TraceView
from xsp_model import Attribution, AttributionBasis, Kind, LayerSource, LedgerKind
from xsp_model.step_annotations import StepAnnotation, parse_step_annotation
from xsp_model.vocabulary import Recorder, formats_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from xsp_model import Trace

__all__ = ["Recording", "recordings"]

_MIN_SHARE = 0.01  # of device time: what is less is worth no recording
_GENERATED = r"^triton_(?:poi|per|red|tem|for)_"
_COMPILED_CALL = "## Call CompiledFxGraph"
_ENGINES = {"SGLang": r"(?i)sglang|sgl_kernel", "vLLM": r"(?i)\bvllm::", "TensorRT-LLM": r"\btensorrt_llm::"}
"""Whose kernels and operators these are; engines borrow from those further down."""

_CAPTURE = {
    "vLLM": "--profiler-config.capture_torch_profiler=true (0.26 and later) writes capture_traces/ beside the trace",
    "SGLang": "--enable-profile-cuda-graph with SGLANG_GRAPH_BATCH_CAPTURE=1 writes a trace a batch size",
    "": "capture the graphs under torch.profiler, in the same trace or in one of its own",
}
_DETAILS = {
    "vLLM": "--profiler-config.detailed_trace_annotation=true adds what attention reads",
    "SGLang": '"detailed_annotations": true in /start_profile adds what attention reads',
}
_STEPS = {
    "vLLM": "start its profiler by --profiler-config.profiler=torch and /start_profile: it then names each step",
    "SGLang": "record by /start_profile: versions since April 2026 name each step (step[DECODE bs=32])",
}
_LAYERWISE = {
    "vLLM": "--enable-layerwise-nvtx-tracing marks each module (not within CUDA graphs: add --enforce-eager)",
    "SGLang": "--enable-layerwise-nvtx-marker marks each module (not within CUDA graphs: add --disable-cuda-graph)",
}


@dataclass(frozen=True, slots=True)
class Recording:
    """Of one topic what this trace has, and what to record or give for more (empty: it has all)."""

    topic: str
    state: str
    do: str = ""


def recordings(trace: Trace, captures: Sequence[str] = ()) -> list[Recording]:
    """What concerns this trace; `captures` are paths beside it that look like traces of graphs' capture."""
    names = _Names(trace)
    return [one for topic in _TOPICS for one in topic(names, captures)]


class _Names:
    """What the names in a trace tell of its making."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        view = TraceView(trace)
        self.kernel_runs, self.own_runs = view.kernel_runs, view.own_runs

    @cached_property
    def device(self) -> pl.DataFrame:
        """Device time by name and attribution, of the runs that kernels are taken from: name, attribution, ns, known.

        `known` is the part of it whose layers were found by another way than its launch.
        """
        attributed = (
            self.trace.scan("attributions").select("span_id").unique().with_columns(pl.lit(value=True).alias("known"))
        )
        return (
            self.kernel_runs.scan("spans")
            .filter(pl.col("attribution").is_not_null())
            .join(attributed, on="span_id", how="left")
            .group_by(pl.col("name").cast(pl.String), pl.col("attribution").cast(pl.String))
            .agg(
                pl.col("duration_ns").sum().alias("ns"),
                pl.col("duration_ns").filter(pl.col("known")).sum().alias("known"),
            )
            .collect()
        )

    def device_share(self, rows: pl.DataFrame, column: str = "ns") -> float:
        """What the rows have of all device time."""
        total = total_of(self.device["ns"])
        return total_of(rows[column]) / total if total else 0.0

    @cached_property
    def host(self) -> Mapping[str, Mapping[str, int]]:
        """How many spans on the host have each name, by kind."""
        rows = (
            self.own_runs.scan("spans")
            .filter(pl.col("attribution").is_null())
            .group_by(pl.col("kind").cast(pl.String), pl.col("name").cast(pl.String))
            .len()
            .drop_nulls()
            .sort("kind", "name")
            .collect()
        )
        by_kind = rows.group_by("kind", maintain_order=True)
        return {str(kind): dict(names.select("name", "len").iter_rows()) for (kind,), names in by_kind}

    @cached_property
    def steps(self) -> Sequence[tuple[StepAnnotation, int]]:
        """What ranges and steps say of serving, and how often; captures are none."""
        names = {**self.host.get(str(Kind.RANGE), {}), **self.host.get(str(Kind.STEP), {})}
        read = ((parse_step_annotation(name), number) for name, number in names.items())
        return [(one, number) for one, number in read if one is not None and not one.is_capture]

    @cached_property
    def engine(self) -> str:
        """The serving engine whose run this is; empty where none is known."""
        if tools := [one.tool for one, _ in self.steps]:  # others write vLLM's form too, beside their own
            return next((tool for tool in tools if tool != "vLLM"), "vLLM")
        names = pl.Series([*self.device["name"].drop_nulls(), *self.host.get(str(Kind.OPERATOR), ())], dtype=pl.String)
        return next((engine for engine, pattern in _ENGINES.items() if names.str.contains(pattern).any()), "")

    def is_by(self, recorder: Recorder) -> bool:
        """Whether the tool recorded one of the runs."""
        return bool(self.trace.frame("runs")["format"].is_in(formats_by(recorder)).any())


def _graph_replays(names: _Names, captures: Sequence[str]) -> Iterator[Recording]:
    lost = names.device_share(names.device.filter(pl.col("attribution") == str(Attribution.GRAPH_REPLAY)))
    if lost < _MIN_SHARE:
        return
    state = f"{share(lost)} of device time is replays of graphs without layers"
    if not names.is_by(Recorder.TORCH_PROFILER):
        do = RECORD_NODES
    elif captures:
        do = give_captures(captures)
    else:
        do = f"record their capture and give it as --graph-capture PATH; {_CAPTURE.get(names.engine, _CAPTURE[''])}"
    yield Recording("graph replays", state, do)


def _compiled_code(names: _Names, _: Sequence[str]) -> Iterator[Recording]:
    if names.engine in _ENGINES:
        return  # its models are compiled where none of our runners is
    generated = names.device.filter(pl.col("name").str.contains(_GENERATED))
    unknown = names.device_share(generated) - names.device_share(generated, "known")
    calls = [name for kind in names.host.values() for name in kind if name.startswith(_COMPILED_CALL)]
    of_host = calls and names.device.is_empty() and not _has_basis(names.trace, AttributionBasis.COMPILED_CODE)
    if unknown < _MIN_SHARE and not of_host:
        return
    state = (
        f"{share(unknown)} of device time is kernels that Inductor generated, of layers that it does not name"
        if unknown >= _MIN_SHARE
        else f"{count_of(len(calls), 'compiled graph is', 'compiled graphs are')} called, of which no layer is known"
    )
    yield Recording(
        "compiled code",
        state,
        "give what the compiler noted with the trace: the log of TORCH_TRACE=DIR INDUCTOR_PROVENANCE=1, or the"
        " compiled_code.json that our torch runner leaves (--mode compile)",
    )


def _has_basis(trace: Trace, basis: AttributionBasis) -> bool:
    return bool((trace.frame("attributions")["basis"] == str(basis)).any())


def _serving_steps(names: _Names, _: Sequence[str]) -> Iterator[Recording]:
    if names.steps:
        phases: Counter[str] = Counter()
        for one, number in names.steps:
            phases[str(one.serving_phase or "idle")] += number
        parts = ", ".join(f"{number} {phase}" for phase, number in sorted(phases.items()))
        is_detailed = any(one.kv_tokens is not None for one, _ in names.steps)
        yield Recording(
            "serving", f"steps named by {names.engine}: {parts}", "" if is_detailed else _DETAILS.get(names.engine, "")
        )
    elif names.engine in _STEPS and names.device.height:
        yield Recording("serving", f"kernels of {names.engine}, whose steps have no names", _STEPS[names.engine])


def _source_lines(names: _Names, _: Sequence[str]) -> Iterator[Recording]:
    operators = names.trace.frame("operators")["source_lines"]
    if not names.is_by(Recorder.TORCH_PROFILER) or operators.is_empty():
        return
    if has := len(operators) - operators.null_count():
        of_all = count_of(len(operators), "operator", "operators")
        yield Recording("Python lines", f"those that called {count(has)} of {of_all}")
    elif (names.trace.frame("ledger")["kind"] == str(LedgerKind.PYTHON_FRAMES_LEFT_OUT)).any():
        yield Recording("Python lines", "none, though frames of Python were recorded", "read it with --frames lines")
    else:
        yield Recording("Python lines", "none", "record with_stack=True in torch.profiler")


def _layerwise(names: _Names, _: Sequence[str]) -> Iterator[Recording]:
    sources = set(names.trace.frame("runs")["layer_source"].drop_nulls())
    if names.is_by(Recorder.NSIGHT_SYSTEMS) and names.engine in _LAYERWISE and str(LayerSource.MODULE) not in sources:
        yield Recording("layers", f"{names.engine} under Nsight Systems, without its modules", _LAYERWISE[names.engine])


def _experts(names: _Names, _: Sequence[str]) -> Iterator[Recording]:
    kernels = names.device["name"].drop_nulls().unique()
    expert_matcher().learn(kernels)
    entries = {kernel: expert_matcher().first(kernel) for kernel in kernels}
    own = [kernel for kernel, entry in entries.items() if entry and not entry.between]
    part = names.device_share(names.device.filter(pl.col("name").is_in(own)))
    if part < _MIN_SHARE:
        return
    is_alone = len(names.kernel_runs) == 1
    yield Recording(
        "experts",
        f"a mixture of experts: {share(part)} of device time in kernels named so (B21)",
        "traces of all expert-parallel ranks together (xsp batch FOLDER) tell how evenly they are used"
        if is_alone
        else "",
    )


_TOPICS: Sequence[Callable[[_Names, Sequence[str]], Iterator[Recording]]] = (
    _graph_replays,
    _compiled_code,
    _serving_steps,
    _source_lines,
    _layerwise,
    _experts,
)
