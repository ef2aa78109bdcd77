"""A report keeps its size, says what it left out and opens, however large the trace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from tests.helpers.browser import Browser, opened
from tests.helpers.large_trace import large_trace
from xsp_analyze.pages.report.page import render
from xsp_analyze.pages.viewer.block import view_of, viewer
from xsp_analyze.trace.step_view import StepView
from xsp_model import TraceBuilder
from xsp_model.limits import limits, override_limits

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_MAX_BYTES = 8_000_000


@pytest.fixture(name="page", scope="module")
def fixture_page() -> str:
    return render(large_trace(100_000, layers=4_000, names=4_000))


@pytest.mark.slow
def test_a_page_about_many_kernels_layers_and_names_stays_small(page: str) -> None:
    assert len(page.encode()) < _MAX_BYTES


def test_what_is_left_out_is_said(page: str) -> None:
    assert "The 1\u202f000 rows of 4\u202f000 with most duration" in page
    assert "The 3\u202f000 rows of 4\u202f000 with most layer latency" in page


@override_limits(viewer_page_box_bytes=30_000)
def test_a_page_of_more_spans_than_it_holds_says_where_they_are_drawn_merged() -> None:
    page = render(large_trace(20_000, layers=40, names=40))
    assert re.search(r"Every span is drawn as it is from [^;\"]* to [^;\"]*; elsewhere spans shorter than", page)
    assert "xsp view, given the trace, shows all of it." in page


def _of_many_places(count: int) -> Trace:
    """A call on a thread of its own for each of so many kernels, each on a stream of a device of its own."""
    number = np.arange(count)
    alike = {"run_id": 0, "process_id": 1}
    calls = {"level": "runtime", "kind": "call", "name": "cudaLaunchKernel"}
    work = {"level": "kernel", "kind": "kernel", "name": "gemm", "attribution": "model_only"}
    parts = [
        pl.DataFrame({"span_id": number, "start_ns": number * 10, "duration_ns": number + 1, "thread_id": number}),
        pl.DataFrame(
            {"span_id": number + count, "start_ns": number * 10 + 5, "duration_ns": number + 1, "parent_id": number,
             "device_id": number, "stream_id": number}
        ),
    ]  # fmt: skip
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [0]}))
    frames = [
        part.with_columns(**{name: pl.lit(value) for name, value in (alike | labels).items()})
        for part, labels in zip(parts, (calls, work), strict=True)
    ]
    builder.add("spans", pl.concat(frames, how="diagonal_relaxed"))
    return builder.build()


@override_limits(viewer_page_lanes=60)
def test_a_page_of_more_lanes_than_it_holds_keeps_the_busiest_and_counts_the_others() -> None:
    frames = StepView.of(_of_many_places(250))
    drawn = view_of(frames, limits().viewer_page_lanes)
    block = viewer(drawn, "title")
    lanes = [lane for lane in block["lanes"] if lane["side"] != "counter"]
    assert [lane["title"] for lane in lanes] == [
        *(f"thread {number}" for number in range(220, 250)),
        *(f"stream {number}" for number in range(220, 250)),
    ]
    assert len(block["lanes"]) == 60 + 60  # and counters, of work that waits
    assert (
        "60 of 500 threads and streams are in this page, the busiest; 440 of 500 spans stand on the"
        in (block["left_out"])
    )
    assert "60 of 250 counters are in this page." in block["left_out"]
    assert drawn.drawing.boxes.lane.max() < len(block["lanes"])
    assert len(drawn.launches) == 30
    everything = view_of(frames)
    assert len(everything.drawing.lanes) == 750
    assert not everything.left_out


@override_limits(viewer_page_lanes=60)
def test_devices_are_listed_as_far_as_there_is_room_and_counted() -> None:
    page = render(_of_many_places(250))
    assert '{"label":"More devices","text":"50; xsp info lists them"}' in page
    assert len(page.encode()) < len(render(_of_many_places(60)).encode()) + 100_000


@pytest.mark.browser
def test_a_large_page_opens_with_its_first_rows(browser: Browser, page: str, tmp_path: Path) -> None:
    file = tmp_path / "large.html"
    file.write_text(page, encoding="utf-8")
    with opened(browser, file) as shown:
        shown.wait_for_selector("#tree .cell")
        assert shown.locator("#layers tbody tr").count() == 25
        assert shown.locator("#modules tbody tr").count() == 200
