"""A trace as lanes and boxes, worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.linked import converted
from tests.helpers.report_trace import HOSTILE, small_trace
from tests.helpers.synth import KinetoTrace
from tests.helpers.viewer_columns import unpacked, unpacked_rows
from xsp_analyze.analyses.timeline import timeline
from xsp_analyze.core import run
from xsp_analyze.frames.idle import CAUSES
from xsp_analyze.pages.viewer.block import about, view_of, viewer
from xsp_analyze.pages.viewer.drawing import VIEWER_TONES
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_analyze.pages.viewer.block import Viewed
    from xsp_model import Trace


def _made(folder: Path) -> Trace:
    """An operator of 100 us; a product launched at 10 us, run from 50 to 90; a copy launched at 20, run 60 to 80."""
    kineto = KinetoTrace()
    kineto.operator("aten::linear", 0, 100_000)
    kineto.launch("volta_sgemm_128x64_nn", 10_000, 50_000, 40_000)
    kineto.copy("HtoD", 20_000, 60_000, 20_000, size=64, stream_id=9)
    kineto.memory(30_000, 512, allocated=512, reserved=2_048)
    kineto.memory(40_000, 512, allocated=1_024, reserved=2_048)
    return converted(kineto, folder)


@pytest.fixture(name="viewed_trace", scope="module")
def fixture_viewed_trace(tmp_path_factory: pytest.TempPathFactory) -> Viewed:
    return view_of(StepView.of(_made(tmp_path_factory.mktemp("made"))))


def _boxes(viewed_trace: Viewed) -> list[tuple[str, int, str, str, int, int]]:
    """Lane, row, name, tone, start and duration of each box."""
    rows = unpacked_rows(viewed_trace.drawing.boxes.encode())
    return [
        (
            viewed_trace.drawing.lanes[row["lane"]].title,
            row["row"],
            viewed_trace.drawing.names[row["name"]],
            VIEWER_TONES[row["tone"]],
            row["start"],
            row["duration"],
        )
        for row in rows
    ]


def test_lanes_are_threads_then_streams_then_counters(viewed_trace: Viewed) -> None:
    lanes = [(lane.group, lane.title, lane.side, lane.rows) for lane in viewed_trace.drawing.lanes]
    assert lanes == [
        ("host", "thread 100", "host", 2),
        ("device 0", "stream 7", "device", 1),
        ("device 0", "stream 9", "device", 1),
        ("device 0", "allocated", "counter", 1),
        ("device 0", "reserved", "counter", 1),
        ("device 0", "launched, not yet started", "counter", 1),
    ]


def test_every_span_is_a_box_where_and_when_it_ran(viewed_trace: Viewed) -> None:
    assert _boxes(viewed_trace) == [
        ("thread 100", 0, "aten::linear", "operator", 0, 100_000),
        ("thread 100", 1, "cudaLaunchKernel", "runtime", 10_000, 5_000),
        ("thread 100", 1, "cudaMemcpyAsync", "runtime", 20_000, 5_000),
        ("stream 7", 0, "volta_sgemm_128x64_nn", "matrix-product", 50_000, 40_000),
        ("stream 9", 0, "Memcpy HtoD (Pinned -> Device)", "copy", 60_000, 20_000),
    ]


def test_arrows_lead_from_each_call_to_its_work(viewed_trace: Viewed) -> None:
    launches = [
        (row["from_lane"], row["from_row"], row["from_time"], row["to_lane"], row["to_time"])
        for row in unpacked_rows(viewed_trace.launches.encode())
    ]
    assert launches == [(0, 1, 10_000, 1, 50_000), (0, 1, 20_000, 2, 60_000)]


def test_the_queue_is_what_was_launched_and_had_not_started(viewed_trace: Viewed) -> None:
    queue = next(counter for counter in viewed_trace.counters.values() if counter.unit == "launches")
    assert list(zip(queue.times.tolist(), queue.values.tolist(), strict=True)) == [
        (10_000, 1), (20_000, 2), (50_000, 1), (60_000, 0),
    ]  # fmt: skip


def test_counters_are_lanes_with_their_unit(viewed_trace: Viewed) -> None:
    counters = about(viewed_trace)["counters"]
    by_title = {viewed_trace.drawing.lanes[each["lane"]].title: each for each in counters}
    assert by_title["allocated"]["unit"] == "byte"
    assert by_title["allocated"]["values"] == [512, 1_024]
    assert unpacked(by_title["allocated"]["times"], summed=True) == [30_000, 40_000]


def test_idle_stretches_are_told_with_their_cause(viewed_trace: Viewed) -> None:
    gaps = [
        (CAUSES[g["cause"]], g["lane"], g["start"], g["duration"]) for g in unpacked_rows(viewed_trace.gaps.encode())
    ]
    assert gaps == [  # before the first work, which was launched at 10 us, and after the last
        ("idle_initialisation_ns", 1, 0, 10_000),
        ("idle_initialisation_ns", 1, 10_000, 40_000),
        ("idle_initialisation_ns", 1, 90_000, 10_000),
    ]


def test_the_causes_of_a_step_add_up_to_its_idle_time(tmp_path: Path) -> None:
    frames = StepView.of(small_trace(tmp_path), "each")
    viewed_trace = view_of(frames)
    table = run(timeline, frames).table
    assert table.height == 2
    for row in table.join(frames.steps, on=["run_id", "step"]).iter_rows(named=True):
        begin, end = row["begin_ns"], row["end_ns"]
        sums = dict.fromkeys(CAUSES, 0)
        for gap in unpacked_rows(viewed_trace.gaps.overlapping(begin, end).encode()):
            inside = min(gap["start"] + gap["duration"], end) - max(gap["start"], begin)
            sums[CAUSES[gap["cause"]]] += inside
        assert sums == {cause: row[cause] for cause in CAUSES}
        assert sum(sums.values()) == row["idle_ns"]


def test_it_opens_at_the_step_nearest_to_the_median_and_holds_the_hostile_name_as_text(tmp_path: Path) -> None:
    trace = small_trace(tmp_path)
    block = viewer(view_of(StepView.of(trace)), "small.json")
    first = block["steps"][0]
    assert first["number"] == 0
    step = trace.frame("spans").filter(pl.col("step") == 0)
    end = step.select((pl.col("start_ns") + pl.col("duration_ns")).max()).item()
    assert block["open"] == [step["start_ns"].min(), end]
    assert HOSTILE in block["names"]
    assert [level["resolution"] for level in block["levels"]] == [0]
    assert block["left_out"] is None


def test_layers_of_boxes_are_named(tmp_path: Path) -> None:
    viewed_trace = view_of(StepView.of(small_trace(tmp_path)))
    rows = unpacked_rows(viewed_trace.drawing.boxes.encode())
    names = viewed_trace.drawing.names
    layers = {names[row["name"]]: names[row["layer"]] if row["layer"] >= 0 else None for row in rows}
    assert layers["gemm_0"] == "Linear_0"
    assert layers[HOSTILE] == "ReLU_0"
    assert layers["left over"] is None


def test_ranks_are_named_where_there_are_several(tmp_path: Path) -> None:
    files = []
    for rank in range(2):
        kineto = KinetoTrace(distributedInfo={"rank": rank, "world_size": 2})
        kineto.launch("gemm", 10_000, 50_000, 40_000)
        files.append(kineto.write(tmp_path / f"rank{rank}.json"))
    drawing = view_of(StepView.of(convert(files, Options()))).drawing
    assert list(dict.fromkeys(lane.group for lane in drawing.lanes)) == [
        "rank 0, host", "rank 0, device 0", "rank 1, host", "rank 1, device 0",
    ]  # fmt: skip
    assert len({lane.key for lane in drawing.lanes}) == len(drawing.lanes)


def test_a_span_that_was_never_closed_is_counted_not_drawn(tmp_path: Path) -> None:
    trace = _made(tmp_path)
    open_end = pl.when(pl.col("name").cast(pl.String) != "aten::linear").then("duration_ns").alias("duration_ns")
    block = viewer(view_of(StepView.of(trace.with_tables({"spans": trace.frame("spans").with_columns(open_end)}))), "x")
    assert block["levels"][0]["boxes"]["count"] == 4
    assert "1 span was never closed" in block["left_out"]
