"""The report: one self-contained HTML page about a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.pages.report import (
    all_analyses,
    attribution,
    batches,
    detail,
    folded,
    memory,
    next_steps,
    origin,
    overhead,
    overview,
    ranks,
    roofline,
    serving,
    stages,
    summary,
    timeline,
    work_list,
)
from xsp_analyze.pages.report.answers import Answers
from xsp_analyze.pages.report.first_screen import first_screen
from xsp_analyze.pages.report.missing_parts import ids_of, shown_and_missing
from xsp_analyze.pages.shell import drawn, made_by
from xsp_analyze.pages.viewer import assets as viewer_assets

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["render", "render_answers"]

_FOOTER = (
    "Numbers are shown rounded; rest the pointer on one to read it exactly. This page holds all it needs and loads"
    " nothing. A dash stands for what the trace does not say."
)

_SCRIPTS = (
    "report/first.js",
    "report/tree.js",
    "report/figures.js",
    "ranks.js",
    *viewer_assets.SCRIPTS,
    "report/layers.js",
)
_STYLES = ("report/report.css", "ranks.css", *viewer_assets.STYLES)


def render(trace: Trace, serving_phase: str | None = None) -> str:
    """The page as HTML, its mean step one of that phase; what the trace has nothing for is one line at its end."""
    return render_answers(Answers(trace, serving_phase))


def render_answers(answers: Answers) -> str:
    """The page of what is being asked of a trace; the answers stay known to whoever asks more."""
    sections = (
        next_steps.next_steps(answers),
        work_list.work_list(answers),
        attribution.ledger(answers),
        overview.model(answers),
        batches.batches(answers),
        overhead.overhead(answers),
        ranks.ranks(answers),
        serving.serving(answers),
        stages.stages(answers),
        timeline.timeline(answers),
        detail.time_by_path(answers),
        folded.folded(answers),
        detail.layers(answers),
        detail.gpu_by_layer(answers),
        detail.layer_types(answers),
        detail.kernels(answers),
        roofline.rooflines(answers),
        memory.memory(answers),
        detail.devices(answers),
        detail.modules(answers),
        all_analyses.every_analysis(answers),
    )
    shown, missing = shown_and_missing(answers, sections)
    data = {
        "kind": "XSP report: where the time went",
        "title": _title(answers),
        "first": first_screen(answers, ids_of(shown)),
        "short": summary.in_short(answers),
        "measured": origin.measured(answers),
        "sections": shown,
        "missing": missing,
        "footer": f"{made_by()} {_FOOTER}",
    }
    return drawn(data, _SCRIPTS, _STYLES)


def _title(answers: Answers) -> str:
    names = list(dict.fromkeys(str(run["model"] or run["source_path"]) for run in answers.summary.runs))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
