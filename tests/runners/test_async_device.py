"""The simulated GPU behaves as one: work is queued, waiting takes the work's time, graphs run what they captured."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from tests.runners.async_device import DEFAULT_STREAM, AsyncDevice

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MS = 1_000_000


def test_a_launch_returns_at_once_and_waiting_takes_the_kernels_time() -> None:
    device = AsyncDevice({"aten::mm": 5 * _MS})
    begun = device.clock.now_ns
    device.launch("aten::mm")
    device.launch("aten::mm")
    assert device.clock.now_ns - begun == 10_000  # two calls of 5 us
    device.synchronize()
    assert device.clock.now_ns - begun == 5_000 + 2_000 + 10 * _MS  # a call, what passes until the start, two kernels


def test_streams_run_side_by_side_unless_one_waits_for_the_other() -> None:
    device = AsyncDevice({"aten::mm": 5 * _MS})
    other = device.new_stream()
    device.launch("aten::mm")
    before = device.set_stream(other)
    device.launch("aten::mm")
    device.hold(other, device.end_ns(DEFAULT_STREAM) + 5 * _MS)
    device.launch("aten::mm")
    device.set_stream(before)
    first, beside, held = device.launches
    assert beside.start_ns < first.end_ns
    assert held.start_ns == first.end_ns + 5 * _MS


def test_a_captured_graph_runs_when_it_is_replayed_by_one_launch() -> None:
    device = AsyncDevice({"aten::mm": 5 * _MS})
    graph = device.new_graph()
    device.begin_capture(graph)
    device.launch("aten::mm")
    device.launch("aten::relu")
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        device.synchronize()
    device.end_capture()
    assert device.launches == []
    device.replay(graph)
    assert [(each.name, each.node, each.call) for each in device.launches] == [
        ("mm_kernel", 0, "cudaGraphLaunch"),
        ("relu_kernel", 1, "cudaGraphLaunch"),
    ]
    assert len({each.correlation for each in device.launches}) == 1


_RUNS = [
    ("M", "eager"),
    ("ML", "eager"),
    ("MLG", "eager"),
    ("MLG-serialised", "eager"),
    ("M", "cudagraph"),
    ("MLG", "cudagraph"),
]


@pytest.mark.torch
@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize(("level", "execution"), _RUNS)
def test_every_level_runs_through_the_branches_of_a_gpu(tmp_path: Path, level: str, execution: str, mode: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from tests.runners.async_device_torch import DEVICE_NAME, simulated  # noqa: PLC0415 (imports torch)
    from xsp_runners import torch_levels  # noqa: PLC0415

    options = ["--mode", mode, "--execution", execution, "--steps", "2", "--warmup", "2", "--batch-size", "2"]
    with simulated(AsyncDevice({"aten::addmm": 2 * _MS})) as device:
        status = torch_levels.main(["--level", level, "--workload", "zoo:mlp", *options, "--out", str(tmp_path)])
    assert status == 0
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["device"]["name"] == DEVICE_NAME
    first, second = facts["step_durations_ns"]
    assert first == second > 6 * _MS  # three Linear; nothing here depends on the machine
    kernels = [each for each in device.launches if each.name == "addmm_kernel"]
    assert len(kernels) >= 3 * 2 * 2


@pytest.mark.torch
def test_a_recording_has_the_rows_of_the_real_profiler(tmp_path: Path) -> None:
    """Of a training step on the CPU, by the real one: modules, annotations, backward nodes, and whose they are."""
    pytest.importorskip("torch", reason="torch is not installed")
    from tests.runners.async_device_torch import simulated  # noqa: PLC0415
    from xsp_runners import torch_levels  # noqa: PLC0415

    level = ["--level", "ML", "--workload", "zoo:mlp", "--mode", "training", "--steps", "1", "--warmup", "1"]
    assert torch_levels.main([*level, "--device", "cpu", "--out", str(tmp_path / "real")]) == 0
    with simulated():
        assert torch_levels.main([*level, "--out", str(tmp_path / "simulated")]) == 0
    rows = _rows(tmp_path / "simulated")
    assert rows == _rows(tmp_path / "real")
    assert len(rows) == 10 + 16 + 3  # steps, optimizer and modules; backward nodes; products


def _rows(run: Path) -> list[tuple[str, int | None]]:
    """Rows in order, operators' with their sequence numbers, counted from the least."""
    events = json.loads(gzip.decompress((run / "trace.json.gz").read_bytes()))["traceEvents"]
    shown = [each for each in events if each["ph"] == "X" and _is_shown(each)]
    numbers = [each["args"].get("Sequence number") for each in shown]
    first = min(number for number in numbers if number is not None)
    rows = sorted(zip(shown, numbers, strict=True), key=lambda row: (row[0]["ts"], -row[0]["dur"]))
    return [(each["name"], None if number is None else number - first) for each, number in rows]


def _is_shown(event: Mapping[str, str]) -> bool:
    name, category = event["name"], event["cat"]
    return category in {"python_function", "user_annotation"} or name.startswith("autograd::") or name == "aten::addmm"
