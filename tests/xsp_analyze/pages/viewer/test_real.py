"""The viewer's boxes and idle time on real traces, against the files themselves and against B03."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.viewer_columns import unpacked_rows
from xsp_analyze.analyses.timeline import timeline
from xsp_analyze.core import run
from xsp_analyze.frames.idle import CAUSES
from xsp_analyze.pages.viewer.block import range_statistics, view_of, viewer
from xsp_analyze.pages.viewer.boxes import Windows
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real

_KINETO = ["kineto/resnet50_train_torch19.v100.json.gz", "kineto/nccl_training.json.gz"]
_WORK = {"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"}


def _work_of(path: Path) -> list[dict[str, Any]]:
    """Device activities as the file has them, with `start` and `duration` in ns of its own clock."""
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    events = document if isinstance(document, list) else document["traceEvents"]
    work = [e for e in events if e.get("ph") == "X" and e.get("cat", "").lower() in _WORK]
    return [e | {"start": int(e["ts"] * 1000), "duration": int(e["dur"] * 1000)} for e in work]


@pytest.mark.parametrize("name", _KINETO)
def test_boxes_of_streams_are_the_file_s_kernels(real_dir: Path, name: str) -> None:
    work = _work_of(real_dir / name)
    trace = convert([real_dir / name], Options())
    origin = trace.frame("runs")["clock_origin_ns"][0]
    block = viewer(view_of(StepView.of(trace)), name)
    drawn = [
        (box["start"], box["duration"], block["names"][box["name"]], block["lanes"][box["lane"]]["title"])
        for box in unpacked_rows(block["levels"][0]["boxes"])
        if block["lanes"][box["lane"]]["side"] == "device"
    ]
    expected = [(e["start"] - origin, e["duration"], e["name"], f"stream {e['args']['stream']}") for e in work]
    assert Counter(drawn) == Counter(expected)


@pytest.mark.parametrize("name", _KINETO)
def test_statistics_of_a_range_are_what_the_file_says(real_dir: Path, name: str) -> None:
    work = _work_of(real_dir / name)
    trace = convert([real_dir / name], Options())
    origin = trace.frame("runs")["clock_origin_ns"][0]
    viewed_trace = view_of(StepView.of(trace))
    begin, until = viewed_trace.opening_window
    begin, until = begin + (until - begin) // 3, begin + (until - begin) // 2
    expected = range_statistics(viewed_trace, Windows(viewed_trace.drawing.boxes).exact(begin, until), begin, until)
    sums: Counter[str] = Counter()
    for event in work:
        start = event["start"] - origin
        inside = min(start + event["duration"], until) - max(start, begin)
        if inside > 0:
            sums[event["name"]] += inside
    ours: Counter[str] = Counter()
    for row in expected["by_name"]:
        ours[row["name"]] += row["duration"]
    assert ours == sums
    assert sum(row["duration"] for row in expected["by_class"]) == sums.total()
    for device in expected["devices"]:
        assert device["busy"] + device["idle"] == until - begin
        assert sum(gap["duration"] for gap in device["gaps"]) == device["idle"]


@pytest.mark.parametrize("name", [*_KINETO, "kineto/cuda_graphs.json.gz", "nsys/h100_fsdp_2gpu.nsys2026_2.sqlite"])
def test_the_causes_of_idle_time_add_up_to_those_of_b03(real_dir: Path, name: str) -> None:
    trace = convert([real_dir / name], Options())
    frames = StepView.of(trace, "all")
    viewed_trace = view_of(frames)
    devices = {
        (lane.run, lane.device): at
        for at, lane in reversed(list(enumerate(viewed_trace.drawing.lanes)))
        if lane.side == "device"
    }
    windows = frames.of_trace.extents_seen.select("run_id", "begin_ns", "end_ns")
    for row in run(timeline, frames).table.join(windows, on="run_id").iter_rows(named=True):
        sums = dict.fromkeys(CAUSES, 0)
        for gap in unpacked_rows(viewed_trace.gaps.overlapping(row["begin_ns"], row["end_ns"]).encode()):
            if gap["lane"] == devices[row["run_id"], row["device_id"]]:
                inside = min(gap["start"] + gap["duration"], row["end_ns"]) - max(gap["start"], row["begin_ns"])
                sums[CAUSES[gap["cause"]]] += inside
        assert sums == {cause: row[cause] for cause in CAUSES}
        assert sum(sums.values()) == row["idle_ns"]
