"""Statistics of a range of time and search, worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.linked import converted
from tests.helpers.synth import KinetoTrace
from xsp_analyze.frames.idle import CAUSES
from xsp_analyze.pages.viewer.block import matching_spans, range_statistics, view_of
from xsp_analyze.pages.viewer.boxes import Windows
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from xsp_analyze.pages.viewer.block import Viewed


@pytest.fixture(name="viewed_trace", scope="module")
def fixture_viewed_trace(tmp_path_factory: pytest.TempPathFactory) -> Viewed:
    """Two products, 50 to 90 and 100 to 120 us, and beside the first a copy on another stream, 80 to 95 us."""
    kineto = KinetoTrace()
    kineto.operator("aten::mm", 0, 130_000)
    kineto.launch("sgemm_a", 10_000, 50_000, 40_000)
    kineto.launch("sgemm_b", 20_000, 100_000, 20_000)
    kineto.copy("HtoD", 30_000, 80_000, 15_000, size=64, stream_id=9)
    return view_of(StepView.of(converted(kineto, tmp_path_factory.mktemp("ranges"))))


def _statistics(viewed_trace: Viewed, begin: int, until: int) -> dict[str, object]:
    return range_statistics(viewed_trace, Windows(viewed_trace.drawing.boxes).exact(begin, until), begin, until)


def test_times_are_cut_to_the_range(viewed_trace: Viewed) -> None:
    statistics = _statistics(viewed_trace, 60_000, 110_000)
    assert statistics["by_name"] == [
        {"name": "sgemm_a", "tone": "matrix-product", "count": 1, "duration": 30_000},
        {"name": "Memcpy HtoD (Pinned -> Device)", "tone": "copy", "count": 1, "duration": 15_000},
        {"name": "sgemm_b", "tone": "matrix-product", "count": 1, "duration": 10_000},
    ]
    assert statistics["by_class"] == [
        {"name": "matrix-product", "tone": "matrix-product", "count": 2, "duration": 40_000},
        {"name": "copy", "tone": "copy", "count": 1, "duration": 15_000},
    ]
    assert statistics["host"] == [{"name": "aten::mm", "tone": "operator", "count": 1, "duration": 50_000}]
    assert statistics["exact"] is True


def test_a_device_is_busy_while_any_of_its_streams_works(viewed_trace: Viewed) -> None:
    launch = CAUSES.index("idle_launch_ns")
    assert _statistics(viewed_trace, 60_000, 110_000)["devices"] == [
        {
            "title": "device 0",
            "busy": 45_000,  # 60 to 95 and 100 to 110
            "idle": 5_000,
            "gaps": [{"cause": launch, "count": 1, "duration": 5_000}],
        }
    ]


def test_a_range_in_which_nothing_ran_has_idle_time_alone(viewed_trace: Viewed) -> None:
    statistics = _statistics(viewed_trace, 96_000, 99_000)
    assert statistics["by_name"] == statistics["by_class"] == []
    assert isinstance(statistics["devices"], list)
    assert (statistics["devices"][0]["busy"], statistics["devices"][0]["idle"]) == (0, 3_000)


def test_search_finds_parts_of_names_in_order_of_time(viewed_trace: Viewed) -> None:
    answer = matching_spans(viewed_trace.drawing, " SGEMM ")
    assert answer["count"] == 2
    assert [(viewed_trace.drawing.names[hit["name"]], hit["start"]) for hit in answer["results"]] == [
        ("sgemm_a", 50_000), ("sgemm_b", 100_000),
    ]  # fmt: skip
    assert matching_spans(viewed_trace.drawing, "no such name") == {"results": [], "count": 0}
    assert matching_spans(viewed_trace.drawing, "  ") == {"results": [], "count": 0}
