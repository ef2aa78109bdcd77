"""The parts of a report on phases: a server's prefill, decode and mixed steps, and stages around the model's call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.analyses.model_parts import NO_STAGE, SEVERAL_STAGES, UNKNOWN_LAUNCH
from xsp_analyze.classification.experts import Stage
from xsp_analyze.formulas import total_of
from xsp_analyze.frames.serving_steps import STEADY_LOAD, output_of
from xsp_analyze.pages import blocks
from xsp_analyze.pages.report.figures import cut_rows
from xsp_analyze.text.units import count, count_of, duration, share
from xsp_model.step_annotations import ServingPhase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.core import Result
    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.service import Answers

__all__ = ["output_rate", "sentence", "serving", "stages"]

# The part of a report on a server: how long its prefill, decode and mixed steps take.

_MAX_COLUMNS = 300
_TONES = {ServingPhase.PREFILL: "compute", ServingPhase.MIXED: "communication", ServingPhase.DECODE: "layer"}
_CLIENTS = ("serving", "Serving", "What clients waited for", "No steps of a server were recorded beside the load test.")
_TITLE = ("serving", "Serving", "Prefill and decode")
_MEANS = (
    "Steps by what the engine named them. Prefill computes the tokens of prompts; decode goes on from requests past"
    " theirs, which wait for a whole step for each output token; a mixed step does both."
)


def serving(answers: Answers) -> Section | None:
    """What clients waited, the phases in a table, every step in a chart and a table; None where there is none of it."""
    steps, phases, clients = answers.of("B20"), answers.of("B25"), answers.of("B48")
    waits = [] if isinstance(clients, str) else [blocks.table(clients)]
    named = [str(phase) for phase in _TONES]
    if isinstance(steps, str) or isinstance(phases, str) or not steps.table["serving_phase"].is_in(named).any():
        return blocks.section(*_CLIENTS, waits) if waits else None
    kept, left_out = cut_rows(steps)
    return blocks.section(
        *_TITLE,
        _MEANS,
        [
            *(blocks.text(sentence) for sentence in _steady_states(steps.table)),
            blocks.table(phases, bar="duration_ns"),
            *waits,
            *_chart(steps),
            blocks.table(kept, left_out=left_out, name="steps"),
        ],
    )


def sentence(answers: Answers) -> str | None:
    """What steps of each phase take, for the page's head; None where none is of a phase, and for several runs."""
    phases = answers.of("B25")
    rows = [] if isinstance(phases, str) else phases.table.filter(pl.col("step_count") > 0).to_dicts()
    texts = [_phase_sentence(row) for row in rows if row["serving_phase"] in set(map(str, _TONES))]
    if not texts or len({row["run_id"] for row in rows}) > 1:
        return None
    first = ", ".join(texts)
    return f"{first[:1].upper()}{first[1:]} (medians{', ramp-up and drain left out' if _has_ramp_up(rows) else ''})."


def _phase_sentence(row: Mapping[str, Any]) -> str:
    requests = f" of {count(row['requests'])} requests" if row["requests"] is not None else ""
    wait = row["output_token_ns"]
    token = f" ({duration(wait)} per output token)" if wait is not None else ""
    return f"{row['serving_phase']} steps{requests} take {duration(row['median_ns'])}{token}"


def _has_ramp_up(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(row["left_out_count"] for row in rows)


def _steady_states(steps: pl.DataFrame) -> list[str]:
    """A sentence a run on which steps count, and what came out of them."""
    several = steps["run_id"].n_unique() > 1
    return [
        (f"Run {rows['run_id'][0]}: " if several else "") + _steady_state(rows)
        for rows in steps.partition_by("run_id", maintain_order=True)
    ]


def _steady_state(steps: pl.DataFrame) -> str:
    steady = steps.filter(pl.col("state") == "steady")
    if steady.is_empty():
        return "No steady state can be told apart from ramp-up and drain, so every step counts below."
    before, after = (steps.filter(pl.col("state") == state).height for state in ("ramp_up", "drain"))
    got = ""
    if (out := output_of(steady)) is not None:
        per_s = f"{count(out.per_s)} a second"
        got = f" Requests got {count(out.tokens)} output tokens in {duration(out.duration_ns)}, {per_s}."
    return (
        f"Steady state: steps {steady['step'][0]} to {steady['step'][-1]}, from the first to the last with"
        f" {round(100 * STEADY_LOAD)} % of the usual number of decoding requests. The first table leaves out"
        f" {count_of(before, 'step', 'steps')} of ramp-up and {after} of drain."
    ) + got


def output_rate(answers: Answers) -> tuple[float, str] | None:
    """Output tokens a second in a server's steady state, and of how many; None for several runs, or where unknown.

    Where no steady state can be told apart every step counts, as in the tables.
    """
    steps = answers.of("B20")
    if isinstance(steps, str) or steps.table["run_id"].n_unique() != 1:
        return None
    steady = steps.table.filter(pl.col("state") == "steady")
    counting = steady if steady.height else steps.table
    out = output_of(counting) if counting.height else None
    if out is None:
        return None
    of = f"{count_of(out.tokens, 'output token', 'output tokens')} in {count_of(counting.height, 'step', 'steps')}"
    of += " of the steady state" if steady.height else ", as no steady state can be told apart"
    return out.per_s, f"{of}, {duration(out.duration_ns)} with the gaps between them."


def _chart(steps: Result) -> list[Block]:
    """The latency of every step, coloured by its phase."""
    rows = steps.table.head(_MAX_COLUMNS)
    in_phase = {phase: pl.col("serving_phase") == str(phase) for phase in _TONES}
    series = [
        {"name": str(phase), "tone": _TONES[phase], "values": values, "exact": "ns"}
        for phase, of_phase in in_phase.items()
        if any(values := rows.select(pl.when(of_phase).then("duration_ns")).to_series().to_list())
    ]
    if rows.height < 2 or not series:  # noqa: PLR2004 (one step is no course of steps)
        return []
    drawn = blocks.bars("columns", _labels(rows), series, title="Latency of every step")
    more = steps.table.height - rows.height
    note = [blocks.text(f"Drawn: the first {_MAX_COLUMNS} of {count(steps.table.height)} steps.")] if more else []
    return [drawn, *note]


def _labels(rows: pl.DataFrame) -> list[str]:
    several = rows["run_id"].n_unique() > 1
    return [f"{step} (run {run})" if several else str(step) for run, step in rows.select("run_id", "step").iter_rows()]


# The part of a report on what is around the model's call: pre-processing, inference, post-processing.

_STAGE_MEANS = (
    "Ranges that the program named after the stages of a prediction, over the whole trace. Host time is wall-clock time"
    " in which a stage was open; where stages of several batches overlap, that is a part of its own, so that the parts"
    " add up. Device time is that of the work launched in a stage, whenever it ran."
)
_STAGE_TONES = {
    Stage.PRE_PROCESS: "memory", Stage.INFERENCE: "compute", Stage.POST_PROCESS: "layer",
    SEVERAL_STAGES: "communication", NO_STAGE: "idle", UNKNOWN_LAUNCH: "rest",
}  # fmt: skip


def stages(answers: Answers) -> Section | None:
    """A sentence, the parts of host and device time, and the table; None where no range is named so."""
    result = answers.of("B35")
    if isinstance(result, str):
        return None
    is_single = "run_id" not in result.table.columns
    drawn: list[Block] = [blocks.text(_sentence(result.table)), _parts(result)] if is_single else []
    return blocks.section("stages", "Stages", "Stages of a prediction", _STAGE_MEANS, [*drawn, blocks.table(result)])


def _sentence(table: pl.DataFrame) -> str:
    part = dict(table.select("stage", "share").iter_rows())
    time = total_of(table["exclusive_ns"])
    alone = [f"{stage} alone {'takes ' if n == 0 else ''}{share(part[stage])}" for n, stage in enumerate(_first(part))]
    rest = f"{share(part[NO_STAGE])} none"
    if SEVERAL_STAGES in part:
        rest = f"{share(part[SEVERAL_STAGES])} has several stages open at once, as batches overlap, and {rest}"
    else:
        rest = f"{rest.removesuffix(' none')} has none open"
    return f"Of {duration(time)} from the first stage to the end of the last one's work, {', '.join(alone)}; {rest}."


def _first(part: dict[str, float]) -> list[str]:
    """The stages that there are, the model's call first."""
    return [stage for stage in (Stage.INFERENCE, Stage.PRE_PROCESS, Stage.POST_PROCESS) if stage in part]


def _parts(result: Result) -> Block:
    """Two bars divided up: wall-clock time, and device time where there is any."""
    table = result.table
    measures = {"wall-clock time": "exclusive_ns", "device time": "device_sum_ns"}
    shown = {label: name for label, name in measures.items() if total_of(table[name])}
    series = [
        {
            "name": row["stage"],
            "tone": _STAGE_TONES[row["stage"]],
            "values": [row[name] or 0 for name in shown.values()],
            "exact": "ns",
        }
        for row in table.iter_rows(named=True)
    ]
    return blocks.bars("stack", list(shown), series, title="Time by stage")
