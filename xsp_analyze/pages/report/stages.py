"""The part of a report on what is around the model's call: pre-processing, inference, post-processing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.analyses.model_parts import NO_STAGE, SEVERAL_STAGES, UNKNOWN_LAUNCH
from xsp_analyze.classification.experts import Stage
from xsp_analyze.formulas import total_of
from xsp_analyze.pages import blocks
from xsp_analyze.text.units import duration, share

if TYPE_CHECKING:
    import polars as pl

    from xsp_analyze.core import Result
    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.service.answers import Answers

__all__ = ["stages"]

_MEANS = (
    "Ranges that the program named after the stages of a prediction, over the whole trace. Host time is wall-clock time"
    " in which a stage was open; where stages of several batches overlap, that is a part of its own, so that the parts"
    " add up. Device time is that of the work launched in a stage, whenever it ran."
)
_TONES = {
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
    return blocks.section("stages", "Stages", "Stages of a prediction", _MEANS, [*drawn, blocks.table(result)])


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
    shown = {label: name for label, name in measures.items() if table[name].sum()}
    series = [
        {
            "name": row["stage"],
            "tone": _TONES[row["stage"]],
            "values": [row[name] or 0 for name in shown.values()],
            "exact": "ns",
        }
        for row in table.iter_rows(named=True)
    ]
    return blocks.bars("stack", list(shown), series, title="Time by stage")
