"""No tick or label of a figure is cut off by its edge, stands on another, or reads like another."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.counted_layer import mixed
from tests.helpers.fixture_cases import SOUND, FixtureCase
from xsp_analyze.catalog import all_analyses
from xsp_analyze.figure.draw import blocks_of_several, figure_of_panels
from xsp_analyze.figure.look import settings
from xsp_analyze.pages.report.figures import figure as blocks_of
from xsp_analyze.service import Answers
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from matplotlib.axes import Axes
    from matplotlib.text import Text

    from xsp_analyze.core import Analysis

matplotlib = pytest.importorskip("matplotlib")

_PIXELS = 1.0
_TRACES = ("transformer_train_gpu_synthetic", "convnet_infer_cpu", "odd_names", "serving_synthetic")
_OTHERS = list({c.folder.parent.name: c for c in SOUND if c.folder.parent.name != "torch_profiler"}.values())
_FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "torch_profiler"


def _ticks(axes: Axes, axis: str) -> list[Text]:
    """The labels of ticks that are drawn, in order."""
    low, high = sorted(axes.get_xlim() if axis == "x" else axes.get_ylim())
    ticks = (axes.xaxis if axis == "x" else axes.yaxis).get_major_ticks()
    drawn = [tick for tick in ticks if low <= tick.get_loc() <= high and tick.label1.get_text().strip()]
    return [tick.label1 for tick in sorted(drawn, key=lambda tick: tick.get_loc())]


def _faults(panels: Sequence[Mapping[str, Any]], x: str) -> Iterator[str]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 (an extra)

    with warnings.catch_warnings(), matplotlib.rc_context(settings(None)):
        warnings.simplefilter("ignore", UserWarning)
        figure = figure_of_panels(panels, x, None)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    renderer = canvas.get_renderer()
    for axes in figure.axes:
        legend = axes.get_legend().get_texts() if axes.get_legend() else []
        across, up = _ticks(axes, "x"), _ticks(axes, "y")
        for text in (*across, *up, *legend, *axes.texts, axes.xaxis.label, axes.yaxis.label):
            box = text.get_window_extent(renderer)
            within = min(box.x0, box.y0) >= -_PIXELS and box.x1 <= figure.bbox.width + _PIXELS
            if text.get_text().strip() and not (within and box.y1 <= figure.bbox.height + _PIXELS):
                yield f"cut off: {text.get_text()!r}"
        boxes = [text.get_window_extent(renderer) for text in across if text.get_rotation() == 0]
        yield from (f"on another: {axes.get_xlabel()}" for left, right in pairwise(boxes) if left.x1 > right.x0)
        names = [text.get_text() for text in up]
        yield from (f"twice: {name}" for name in sorted(set(names)) if names.count(name) > 1)


@pytest.fixture(scope="module", name="traces")
def fixture_traces() -> dict[str, Answers]:
    read = {name: Answers(convert([_FIXTURES / name], Options())) for name in _TRACES}
    return {**read, "counted": Answers(mixed().build())}


def _panels(answers: Answers, analysis: Analysis) -> list[Mapping[str, Any]]:
    result = answers.of(analysis.id)
    return [] if isinstance(result, str) else [b for b in blocks_of(answers, result) if b["type"] != "text"]


@pytest.mark.slow
@pytest.mark.parametrize("analysis", [a for a in all_analyses() if a.figure], ids=lambda a: a.id)
def test_every_label_can_be_read(traces: dict[str, Answers], analysis: Analysis) -> None:
    assert analysis.figure is not None
    for name, answers in traces.items():
        if panels := _panels(answers, analysis):
            assert list(_faults(panels, analysis.figure.x)) == [], name


@pytest.mark.slow
@pytest.mark.parametrize("case", _OTHERS, ids=lambda c: c.name)
def test_labels_of_other_formats_can_be_read(case: FixtureCase) -> None:
    answers = Answers(convert([case.folder], Options()))
    for analysis in all_analyses():
        if analysis.figure and (panels := _panels(answers, analysis)):
            assert list(_faults(panels, analysis.figure.x)) == [], analysis.id


@pytest.mark.slow
def test_labels_of_several_traces_can_be_read(traces: dict[str, Answers]) -> None:
    two = {name: traces[name] for name in ("transformer_train_gpu_synthetic", "convnet_infer_cpu")}
    drawn = 0
    for analysis in all_analyses():
        try:
            panels = [b for b in blocks_of_several(two, analysis) if b["type"] != "text"]
        except XspError:
            continue
        assert analysis.figure is not None
        assert list(_faults(panels, analysis.figure.x)) == [], analysis.id
        drawn += 1
    assert drawn >= 5


def test_a_label_that_is_cut_off_would_be_noticed() -> None:
    panels = [
        {"type": "line", "title": "x" * 100, "x": "y" * 100, "points": [(1, 1), (2, 2)], "divisor": 1, "unit": ""}
    ]
    assert any(fault.startswith("cut off") for fault in _faults(panels, "step"))
