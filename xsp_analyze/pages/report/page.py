"""The report: one self-contained HTML page about a trace."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from xsp_analyze.pages import blocks
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
from xsp_analyze.pages.report.first_screen import first_screen
from xsp_analyze.pages.report.missing_parts import ids_of, shown_and_missing
from xsp_analyze.pages.shell import page_by_script, program_and_version
from xsp_analyze.pages.viewer import assets as viewer_assets
from xsp_analyze.service.answers import Answers

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_analyze.faults import FaultError
    from xsp_analyze.pages.blocks import Section
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


_SECTIONS: tuple[tuple[str, str, Callable[[Answers], Section | None]], ...] = (  # id, label, what makes it
    ("next", "What to do", next_steps.next_steps),
    ("gain", "Time to gain", work_list.work_list),
    ("ledger", "Coverage", attribution.ledger),
    ("model", "Model", overview.model),
    ("batches", "Batch sizes", batches.batches),
    ("overhead", "Profiling overhead", overhead.overhead),
    ("ranks", "Ranks", ranks.ranks),
    ("serving", "Prefill and decode", serving.serving),
    ("stages", "Stages", stages.stages),
    ("timeline", "Timeline", timeline.timeline),
    ("tree", "Tree", detail.time_by_path),
    ("blocks", "Blocks", folded.blocks_of_layers),
    ("layers", "Layers", detail.layers),
    ("gpu", "GPU by layer", detail.gpu_by_layer),
    ("types", "Layer types", detail.layer_types),
    ("kernels", "Kernels", detail.kernels),
    ("rooflines", "Rooflines", roofline.rooflines),
    ("memory", "Memory", memory.memory),
    ("devices", "Devices", detail.devices),
    ("modules", "Module tree", detail.modules),
    ("analyses", "All analyses", all_analyses.every_analysis),
)


def render(trace: Trace, serving_phase: str | None = None) -> str:
    """The page as HTML, its mean step one of that phase; what the trace has nothing for is one line at its end."""
    return render_answers(Answers(trace, serving_phase))


def render_answers(answers: Answers) -> str:
    """The page of what is being asked of a trace; the answers stay known to whoever asks more."""
    sections = [
        answers.attempt(f"The section {label!r}", partial(section, answers), partial(_not_made, identity, label))
        for identity, label, section in _SECTIONS
    ]
    shown, missing = shown_and_missing(answers, sections)
    data = {
        "kind": "XSP report: where the time went",
        "title": _title(answers),
        "first": first_screen(answers, ids_of(shown)),
        "short": answers.attempt("The summary", partial(summary.summary_sentences, answers), lambda _: []),
        "measured": origin.facts_measured(answers),
        "sections": shown,
        "missing": missing,
        "footer": f"{program_and_version()} {_FOOTER}",
    }
    return page_by_script(data, _SCRIPTS, _STYLES)


def _not_made(identity: str, label: str, fault: FaultError) -> Section:
    return blocks.section(identity, label, label, "", [blocks.missing(f"{fault}.")])


def _title(answers: Answers) -> str:
    names = list(dict.fromkeys(str(run["model"] or run["source_path"]) for run in answers.summary.runs))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
