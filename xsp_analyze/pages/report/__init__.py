"""The report: one self-contained HTML page about a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.pages.report import (
    all_analyses,
    attribution,
    detail,
    next_steps,
    origin,
    overhead,
    overview,
    roofline,
    serving,
    step,
    summary,
)
from xsp_analyze.pages.report.answers import Answers
from xsp_analyze.pages.shell import drawn, made_by

if TYPE_CHECKING:
    from xsp_analyze.pages.blocks import Section
    from xsp_model import Trace

__all__ = ["render", "render_answers"]

_FOOTER = (
    "Numbers are shown rounded; rest the pointer on one to read it exactly. This page holds all it needs and loads"
    " nothing. A dash stands for what the trace does not say."
)

_SCRIPTS = (
    "drill.js",
    "tree.js",
    "icicle.js",
    "timelines.js",
    "roofline.js",
    "step.js",
    "advice.js",
    "report.js",
)


def render(trace: Trace, serving_phase: str | None = None) -> str:
    """The page as HTML, its mean step one of that phase; sections that the trace has nothing for say so."""
    return render_answers(Answers(trace, serving_phase))


def render_answers(answers: Answers) -> str:
    """The page of what is being asked of a trace; the answers stay known to whoever asks more."""
    sections = (
        next_steps.next_steps(answers),
        attribution.ledger(answers),
        overview.model(answers),
        *_if_any(overhead.overhead(answers)),
        *_if_any(serving.serving(answers)),
        step.one_step(answers),
        detail.time_by_path(answers),
        detail.layers(answers),
        detail.gpu_by_layer(answers),
        detail.layer_types(answers),
        detail.kernels(answers),
        *_if_any(roofline.rooflines(answers)),
        detail.devices(answers),
        detail.modules(answers),
        all_analyses.every_analysis(answers),
    )
    data = {
        "kind": "XSP report: where the time went",
        "title": _title(answers),
        "short": summary.in_short(answers),
        "measured": origin.measured(answers),
        "sections": sections,
        "footer": f"{made_by()} {_FOOTER}",
    }
    return drawn(data, _SCRIPTS)


def _if_any(section: Section | None) -> list[Section]:
    return [] if section is None else [section]


def _title(answers: Answers) -> str:
    names = list(dict.fromkeys(str(run["model"] or run["source_path"]) for run in answers.summary.runs))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
