"""What the steps of a serving engine computed, by the names that it gave to them, and which are its steady state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import total_of
from xsp_model import Kind, Level, XspError
from xsp_model.step_annotations import ServingPhase, is_serving_step, parse_step_annotation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model import Trace

__all__ = [
    "COUNTS",
    "STEADY_LOAD",
    "Output",
    "batch_of",
    "of_phase",
    "output_of",
    "parsed_phase",
    "serving_steps",
    "with_state",
]

COUNTS = (
    "requests",
    "prefill_requests",
    "decode_requests",
    "tokens",
    "prefill_tokens",
    "decode_tokens",
    "kv_tokens",
)
"""What an annotation counts."""

STEADY_LOAD = 0.9  # of the usual number of decoding requests: from the first to the last step with it
_USUAL = 0.75  # quantile of decoding requests over steps: ramp-up and drain lie below, and so does a burst above
_NS_PER_S = 1e9
_MIN_STEADY = 3  # steps with that load: of fewer nothing is said

_IN = ["run_id", "process_id", "step"]
_KEYS = ["run_id", "step"]
_LABELS = ("tool", "annotation", "mode", "serving_phase")
_SCHEMA = {
    "run_id": pl.Int64(),
    "step": pl.Int64(),
    **dict.fromkeys(_LABELS, pl.String()),
    **dict.fromkeys(COUNTS, pl.Int64()),
}


def serving_steps(trace: Trace) -> pl.DataFrame:
    """One row a run and step that a serving engine named, in order: run_id, step, tool, annotation, mode, COUNTS.

    `serving_phase` is null for a step of neither phase. What the name does not say is null. Several processes with one
    name computed one batch together; several names, of processes side by side or of batches within a step that the user
    chose, are summed, and have no number of requests.
    """
    rows = [(*where, *_labels_and_counts(texts)) for where, texts in _names(trace).items()]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row").sort(_KEYS)


def _names(trace: Trace) -> dict[tuple[int, int], Sequence[str]]:
    """By run and step the outermost annotations in it, in order; of processes that have the same ones, one's."""
    where = (pl.col("level") == str(Level.MODEL)) | (pl.col("level") == str(Level.APPLICATION))
    kind = (pl.col("kind") == str(Kind.STEP)) | (pl.col("kind") == str(Kind.RANGE))
    spans = trace.scan("spans").filter(where, kind, pl.col("step").is_not_null(), pl.col("duration_ns").is_not_null())
    rows = (
        spans.select(*_IN, "start_ns", "duration_ns", pl.col("name").cast(pl.String).alias("text"))
        .sort(*_IN, "start_ns", -pl.col("duration_ns"))
        .collect()
    )
    engines = rows["text"].unique().to_frame().filter(pl.col("text").map_elements(is_serving_step, pl.Boolean))
    named = rows.join(engines, on="text", how="semi", maintain_order="left")
    reach = (pl.col("start_ns") + pl.col("duration_ns")).cum_max().shift(1, fill_value=-1).over(_IN)
    by_process = named.filter(pl.col("start_ns") >= reach).group_by(_IN, maintain_order=True).agg("text")
    by_step: dict[tuple[int, int], dict[tuple[str, ...], None]] = {}
    for run, _, step, texts in by_process.iter_rows():
        by_step.setdefault((run, step), {})[tuple(texts)] = None
    return {key: [text for texts in each for text in texts] for key, each in by_step.items()}


def _labels_and_counts(texts: Sequence[str]) -> tuple[object, ...]:
    """The values of _LABELS and COUNTS of the step with these annotations."""
    read = [one for one in map(parse_step_annotation, texts) if one is not None]
    first = read[0]
    if len(read) == 1:
        return (first.tool, texts[0], first.mode, first.serving_phase, *(getattr(first, name) for name in COUNTS))
    phases = {one.serving_phase for one in read}
    phase = first.serving_phase if len(phases) == 1 else _both(phases)
    counts = (None if name.endswith("requests") else _sum([getattr(one, name) for one in read]) for name in COUNTS)
    return (first.tool, f"{len(read)} batches, {texts[0]} the first", None, phase, *counts)


def _both(phases: set[ServingPhase | None]) -> ServingPhase | None:
    computed = phases - {None}
    if len(computed) == 1:
        return computed.pop()
    return ServingPhase.MIXED if computed <= {ServingPhase.PREFILL, ServingPhase.DECODE, ServingPhase.MIXED} else None


def _sum(values: Sequence[int | None]) -> int | None:
    counts = [value for value in values if value is not None]
    return sum(counts) if len(counts) == len(values) else None


def with_state(steps: pl.DataFrame) -> pl.DataFrame:
    """Serving steps in order of time, with `state`: ramp_up, steady or drain; null where that cannot be told.

    The steady state of a run lasts from the first to the last step in which STEADY_LOAD of the usual number of requests
    (the upper quartile over its steps that decode) was decoding. A prefill between such steps is part of it.
    """
    load = pl.col("decode_requests").filter(pl.col("decode_requests") > 0)
    is_loaded = pl.col("decode_requests") >= STEADY_LOAD * load.quantile(_USUAL, "nearest").over("run_id")
    at = pl.int_range(pl.len()).over("run_id")
    first, last = (getattr(at.filter(is_loaded), end)().over("run_id") for end in ("min", "max"))
    state = (
        pl.when(at < first).then(pl.lit("ramp_up")).when(at > last).then(pl.lit("drain")).otherwise(pl.lit("steady"))
    )
    enough = is_loaded.sum().over("run_id") >= _MIN_STEADY
    return steps.with_columns(pl.when(enough).then(state).alias("state"))


@dataclass(frozen=True, slots=True)
class Output:
    """What requests got of some steps: output tokens, and the time from the first's begin to the last's end."""

    tokens: int
    duration_ns: float

    @property
    def per_s(self) -> float:
        """Output tokens a second."""
        return self.tokens * _NS_PER_S / self.duration_ns


def output_of(steps: pl.DataFrame) -> Output | None:
    """Of rows of B20 that follow one another; None where a step does not say how many tokens it put out."""
    took = total_of(steps["duration_ns"]) + float(steps["gap_ns"].head(steps.height - 1).sum())
    tokens = int(steps["decode_tokens"].sum())
    is_known = steps["decode_tokens"].null_count() == 0
    return Output(tokens, took) if is_known and tokens and took else None


def batch_of(steps: pl.DataFrame, serving: pl.DataFrame) -> pl.DataFrame:
    """The steps with `serving_phase`, `requests` and `tokens`, null where no engine named them."""
    named = serving.select(*_KEYS, "serving_phase", "requests", "tokens")
    return steps.join(named, on=_KEYS, how="left", maintain_order="left")


def parsed_phase(text: str) -> ServingPhase:
    """The phase of that name; XspError for any other."""
    try:
        return ServingPhase(text)
    except ValueError:
        raise XspError(f"{text!r} is no phase of serving", advice=f"Choose {', '.join(ServingPhase)}") from None


def of_phase(steps: pl.DataFrame, serving: pl.DataFrame, phase: ServingPhase) -> pl.DataFrame:
    """The steps (with run_id and step) of the phase; XspError in a sentence where there are none."""
    if serving.is_empty():
        raise XspError(
            "the trace has no serving steps, which --phase chooses among",
            advice="It takes the names that vLLM, SGLang, ATOM, xDiT and TensorRT-LLM give to their steps:"
            " docs/serving-steps.md",
        )
    kept = steps.join(serving.filter(serving_phase=str(phase)), on=_KEYS, how="semi", maintain_order="left")
    if kept.is_empty():
        raise XspError(f"the trace has no {phase} steps", advice=f"Its serving steps are {_phases_as_text(serving)}")
    return kept


def _phases_as_text(serving: pl.DataFrame) -> str:
    counts = serving.group_by("serving_phase", maintain_order=True).len().sort("serving_phase", nulls_last=True)
    return ", ".join(f"{count} {phase or 'of no phase'}" for phase, count in counts.iter_rows())
