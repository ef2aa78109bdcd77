"""The report: one self-contained HTML page about a trace."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from xsp_analyze.analyses.kernels import kernel_information
from xsp_analyze.catalog import all_analyses
from xsp_analyze.faults import attempt, fault_of
from xsp_analyze.frames.kernels.kernel_means import kernel_executions
from xsp_analyze.frames.steps import StepBasis
from xsp_analyze.needs import holds
from xsp_analyze.pages import blocks
from xsp_analyze.pages.blocks import page_by_script, program_and_version
from xsp_analyze.pages.report import attribution, detail, memory, overview, ranks, roofline, serving, summary
from xsp_analyze.pages.report.attribution import ids_of, split_sections
from xsp_analyze.pages.report.detail import blocks_of_layers
from xsp_analyze.pages.report.figures import MAX_ROWS, cut_executions, cut_rows, figure
from xsp_analyze.pages.report.first_screen import first_screen, next_steps, simulated_gains, work_list
from xsp_analyze.pages.report.summary import facts_measured
from xsp_analyze.pages.viewer.block import SCRIPTS, STYLES, view_of, viewer
from xsp_analyze.service import Answers
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import duration
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_analyze.core import Analysis, Result
    from xsp_analyze.faults import FaultError
    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.pages.viewer.block import MedianStep
    from xsp_model import Trace

__all__ = ["every_analysis", "render", "render_answers", "timeline"]

# The whole run over time, opened at the median step: the section of the trace viewer.

_TITLE = ("timeline", "Timeline", "The run over time")
_MAX_NAMES = 1_200_000  # characters of the timeline


def timeline(answers: Answers) -> Section:
    """Every thread, stream and counter of every run on one axis of time."""
    viewed_trace = view_of(answers.per_step, limits().viewer_page_lanes)
    if not len(viewed_trace.drawing.boxes):
        return blocks.section(
            *_TITLE, "When each piece of work ran.", [blocks.missing("The trace holds no timed work.")]
        )
    title = clean(answers.summary.runs[0]["source_path"] or "trace")
    drawn = blocks.cut_names(viewer(viewed_trace, title), _MAX_NAMES)
    return blocks.section(*_TITLE, _means(answers, viewed_trace.median), drawn)


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


# The part of a report that holds every analysis: how to read it, its figure, its table, its definition.

_OURS = re.compile(r"[AB]\d\d")  # reports that carry nsys' names say the same again in other columns
_MEANS = (
    "Every question that XSP asks of a trace, by the id that xsp analyze INPUT -a ID takes. Open one for how to read"
    " it, its figure, its table and its definition."
)


def every_analysis(answers: Answers) -> Section:
    """One entry an analysis; those that the trace cannot answer say why."""
    items = [
        attempt(f"{one.id} ({one.title})", partial(_entry, answers, one), partial(_missing, one))
        for one in all_analyses()
        if _OURS.fullmatch(one.id)
    ]
    return blocks.section("analyses", "All analyses", "Every analysis", _MEANS, [{"type": "analyses", "items": items}])


def _entry(answers: Answers, one: Analysis) -> Block:
    answer, left_out, height = _answer(answers, one)
    if isinstance(answer, str):
        return _missing(one, answer)
    kept, left_out = (answer, left_out) if left_out else cut_rows(answer)
    drawn = [*figure(answers, answer), blocks.table(kept, name=one.id, left_out=left_out)]
    return {**_about(one), "missing": None, "rows": height, "blocks": drawn}


def _about(one: Analysis) -> dict[str, str]:
    return {"id": one.id, "title": one.title, "read": one.read, "doc": " ".join(one.doc.split())}


def _missing(one: Analysis, why: object) -> Block:
    return {**_about(one), "missing": str(why), "blocks": []}


def _answer(answers: Answers, one: Analysis) -> tuple[Result | str, str | None, int]:
    """The answer, a sentence on rows that it is without already, and how many it has with them."""
    frames = answers.per_step
    if (
        one is kernel_information
        and holds(frames.of_trace, "kernel")
        and frames.once(kernel_executions).height > MAX_ROWS
    ):
        return *cut_executions(frames), frames.once(kernel_executions).height
    answer = answers.of(one.id)
    return answer, None, 0 if isinstance(answer, str) else answer.table.height


_FOOTER = (
    "Numbers are shown rounded; rest the pointer on one to read it exactly. This page holds all it needs and loads"
    " nothing. A dash stands for what the trace does not say."
)
_SCRIPTS = (
    "report/first.js",
    "report/tree.js",
    "report/figures.js",
    "ranks.js",
    *SCRIPTS,
    "report/layers.js",
)
_STYLES = ("report/report.css", "ranks.css", *STYLES)

_SECTIONS: tuple[tuple[str, str, Callable[[Answers], Section | None]], ...] = (  # id, label, what makes it
    ("next", "What to do", next_steps),
    ("what-if", "What if", simulated_gains),
    ("gain", "Time to gain", work_list),
    ("ledger", "Coverage", attribution.ledger),
    ("model", "Model", overview.model),
    ("batches", "Batch sizes", overview.batches),
    ("overhead", "Profiling overhead", attribution.overhead),
    ("ranks", "Ranks", ranks.ranks),
    ("serving", "Prefill and decode", serving.serving),
    ("stages", "Stages", serving.stages),
    ("timeline", "Timeline", timeline),
    ("tree", "Tree", detail.time_by_path),
    ("blocks", "Blocks", blocks_of_layers),
    ("layers", "Layers", detail.layers),
    ("gpu", "GPU by layer", detail.gpu_by_layer),
    ("types", "Layer types", detail.layer_types),
    ("kernels", "Kernels", detail.kernels),
    ("rooflines", "Rooflines", roofline.rooflines),
    ("memory", "Memory", memory.memory),
    ("devices", "Devices", detail.devices),
    ("modules", "Module tree", detail.modules),
    ("analyses", "All analyses", every_analysis),
)


def render(trace: Trace, serving_phase: str | None = None, steps: str | None = None) -> str:
    """The page as HTML of the steps as in `Answers`; what the trace has nothing for is one line at its end."""
    return render_answers(Answers(trace, serving_phase, steps))


@fault_of("The report")
def render_answers(answers: Answers) -> str:
    """The page of what is being asked of a trace; the answers stay known to whoever asks more."""
    sections = [
        attempt(f"The section {label!r}", partial(section, answers), partial(_not_made, identity, label))
        for identity, label, section in _SECTIONS
    ]
    shown, missing = split_sections(answers, sections)
    data = {
        "kind": "XSP report: where the time went",
        "title": _title(answers),
        "first": first_screen(answers, ids_of(shown)),
        "short": attempt("The summary", partial(summary.summary_sentences, answers), lambda _: []),
        "measured": facts_measured(answers),
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
