"""The whole run over time, opened at the median step: the section of the trace viewer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.frames.steps import StepBasis
from xsp_analyze.pages import blocks
from xsp_analyze.pages.viewer.block import view_of, viewer
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import duration
from xsp_model.limits import limits

if TYPE_CHECKING:
    from xsp_analyze.pages.blocks import Section
    from xsp_analyze.pages.viewer.opening import MedianStep
    from xsp_analyze.service.answers import Answers

__all__ = ["timeline"]

_TITLE = ("timeline", "Timeline", "The run over time")


def timeline(answers: Answers) -> Section:
    """Every thread, stream and counter of every run on one axis of time."""
    viewed_trace = view_of(answers.per_step, limits().viewer_page_lanes)
    if not len(viewed_trace.drawing.boxes):
        return blocks.section(
            *_TITLE, "When each piece of work ran.", [blocks.missing("The trace holds no timed work.")]
        )
    title = clean(answers.summary.runs[0]["source_path"] or "trace")
    return blocks.section(*_TITLE, _means(answers, viewed_trace.median), [viewer(viewed_trace, title)])


def _means(answers: Answers, step: MedianStep | None) -> str:
    opened = "The trace marks no steps: it opens whole."
    if step is not None:
        took = f"{duration(step.latency_ns)}, {StepBasis(step.basis).sentence}"
        opened = f"Opens at step {step.number}, the one nearest to the median: {took}."
    return (
        f"{opened} One lane per host thread, with what it called, then one per stream of each device, coloured by what"
        " the work is; what is too short to be drawn by itself is drawn merged with its neighbours. Gaps in a stream"
        f" are time in which it was idle.{answers.source_runs_sentence(kernels='all')}"
    )
