"""Time of a device shared out to classes: parts add up to what B03 has, whatever runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.synth import KinetoTrace
from xsp_analyze.frames.device_time import class_time, device_time, window_parts
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

US = 1_000


def _launch(kineto: KinetoTrace, name: str, start_us: int, length_us: int, stream: int = 7) -> None:
    kineto.launch(name, (start_us - 5) * US, start_us * US, length_us * US, stream_id=stream)


def _overlapping(folder: Path) -> Trace:
    """A step of 100 us: product 10 to 40, softmax 20 to 50, softmax again 30 to 45, an all-reduce 35 to 70."""
    kineto = KinetoTrace()
    kineto.step(0, 0, 100 * US)
    _launch(kineto, "volta_sgemm_128x64_nn", 10, 30)
    _launch(kineto, "softmax_warp_forward", 20, 30, stream=8)
    _launch(kineto, "softmax_warp_forward", 30, 15, stream=9)
    _launch(kineto, "ncclKernel_AllReduce_RING_LL_Sum_float", 35, 35, stream=10)
    return convert([kineto.write(folder / "overlapping.json")], Options())


def test_classes_that_run_side_by_side_share_the_time_evenly(tmp_path: Path) -> None:
    rows = class_time(StepView.of(_overlapping(tmp_path)))
    times = dict(rows.select("kernel_class", "time_ns").iter_rows())
    assert times == {
        "matrix product": (10 + 20 / 2) * US,  # alone from 10 to 20, beside softmax from 20 to 40
        "softmax": (20 / 2 + 10) * US,  # two softmaxes at a time are one class
        "communication": 20 * US,  # from 50 to 70, while nothing computes
    }


def test_the_parts_add_up_to_the_busy_time_of_each_step(tmp_path: Path) -> None:
    frames = StepView.of(_overlapping(tmp_path))
    assert class_time(frames)["time_ns"].sum() == frames.once(device_time).parts["busy_ns"].sum() == 60 * US


def test_work_that_takes_no_time_has_none_in_any_class(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.kernel("softmax_warp_forward", 10 * US, 0, correlation=None)
    frames = StepView.of(convert([kineto.write(tmp_path / "nothing.json")], Options()))
    assert class_time(frames).is_empty()
    assert window_parts(frames)["duration_ns"].sum() == 0
