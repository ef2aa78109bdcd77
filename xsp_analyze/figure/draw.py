"""From an analysis to the bytes of a file: which panels there are, how large each is, and how they are written."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from xsp_analyze.figure.look import Look, require_matplotlib, settings
from xsp_analyze.figure.panels import MAX_CHARACTERS_UPRIGHT, MAX_NAMES, panel
from xsp_analyze.figure.several import Over, blocks_of_several
from xsp_analyze.pages.report.figures import figure as blocks_of
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure

    from xsp_analyze.core import Analysis
    from xsp_analyze.service.answers import Answers

__all__ = ["Drawn", "draw", "draw_several", "figure_of_panels"]

_SINGLE, _DOUBLE = 3.5, 7.16
_MANY_COLUMNS = 40
_BAR_INCHES = 0.17
_GROUP_INCHES = 0.1  # a bar of a group
_UPRIGHT_INCHES, _LINE_INCHES = 0.05, 0.25
_METADATA: Mapping[str, Mapping[str, str | None]] = {  # nothing that differs from day to day
    "pdf": {"Creator": "xsp", "Producer": "xsp", "CreationDate": None, "ModDate": None},
    "svg": {"Creator": "xsp", "Date": None},
    "png": {"Software": "xsp"},
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure as a file, and sentences on what it leaves out."""

    content: bytes
    notes: Sequence[str]


def draw(answers: Answers, analysis: Analysis, suffix: str, look: Look | None = None) -> Drawn:
    """The analysis's figure as pdf, svg or png; the same trace and look give the same bytes.

    XspError where the analysis has no figure, the trace no answer, or the answer nothing to draw.
    """
    if analysis.figure is None:
        raise XspError(f"{analysis.id} ({analysis.title}) has no figure", advice=f"These have: {_with_figures()}")
    result = answers.of(analysis.id)
    if isinstance(result, str):
        raise XspError(result.rstrip("."))
    return _draw_blocks(blocks_of(answers, result), analysis, suffix, look)


def draw_several(
    traces: Mapping[str, Answers], analysis: Analysis, suffix: str, look: Look | None = None, over: Over | None = None
) -> Drawn:
    """One figure of several traces, each by its name; see `blocks_of_several` for what it refuses."""
    return _draw_blocks(blocks_of_several(traces, analysis, over), analysis, suffix, look)


def _draw_blocks(blocks: Sequence[Mapping[str, Any]], analysis: Analysis, suffix: str, look: Look | None) -> Drawn:
    assert analysis.figure is not None  # noqa: S101 (blocks are of a figure)
    panels = [b for b in blocks if b["type"] != "text"]
    notes = [str(b["text"]) for b in blocks if b["type"] == "text"]
    if not panels:
        raise XspError(
            f"{analysis.id} ({analysis.title}) has nothing to draw in this trace",
            advice=f"`xsp analyze INPUT -a {analysis.id}` shows its table",
        )
    require_matplotlib()
    return Drawn(_file(panels, analysis.figure.x, suffix, look or Look()), notes)


def _with_figures() -> str:
    from xsp_analyze.catalog import all_analyses  # noqa: PLC0415 (only for an error)

    return ", ".join(a.id for a in all_analyses() if a.figure)


def _file(panels: Sequence[Mapping[str, Any]], x: str, suffix: str, look: Look) -> bytes:
    import matplotlib as mpl  # noqa: PLC0415 (only for figures)

    out = BytesIO()
    with warnings.catch_warnings(), mpl.rc_context(settings(look.style)):
        warnings.simplefilter("ignore", UserWarning)  # characters that the font lacks are drawn as boxes
        figure_of_panels(panels, x, look.width).savefig(out, format=suffix, metadata=dict(_METADATA[suffix]))
    return out.getvalue()


def figure_of_panels(panels: Sequence[Mapping[str, Any]], x: str, width: float | None) -> Figure:
    """The panels under one another in a figure so many inches wide (null: what suits them)."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (only for figures)

    width = width or max(map(_width, panels))
    heights = [_height(p, width) for p in panels]
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    all_axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
    for axes, block in zip(all_axes[:, 0], panels, strict=True):
        panel(axes, block, x)
    return figure


def _width(block: Mapping[str, Any]) -> float:
    wide = (
        block["type"] == "icicle"
        or "traces" in block
        or (block["type"] == "columns" and len(block["labels"]) > _MANY_COLUMNS)
    )
    return _DOUBLE if wide else _SINGLE


def _height(block: Mapping[str, Any], width: float) -> float:
    """Bars need room for each row; the others have a shape."""
    if block["type"] == "boxes":
        return 0.6 + 2 * _BAR_INCHES * len(block["labels"])
    if block["type"] == "grouped":
        traces = len(block["series"])
        return 0.8 + _GROUP_INCHES * len(block["labels"]) * (1 + traces) + _LINE_INCHES * -(-traces // 2)
    if block["type"] in ("bars", "stack"):
        return 0.6 + _BAR_INCHES * len(block["labels"]) + (0.25 if len(block["series"]) > 1 else 0)
    shape = {"roofline": 0.8, "icicle": 0.4}.get(block["type"], 0.6 if width <= _SINGLE else 0.35) * width
    return shape + (_upright_inches(block["labels"]) if block["type"] == "columns" else 0.0)


def _upright_inches(labels: Sequence[str]) -> float:
    """What names below columns take, beyond a line; numbers stand on one."""
    if len(labels) > MAX_NAMES:
        return 0.0
    longest = max((len(label) for label in labels), default=0)
    return max(min(longest, MAX_CHARACTERS_UPRIGHT) * _UPRIGHT_INCHES - _LINE_INCHES, 0.0)
