"""At level ML a layer's time is of its own kernels: what its parent launched before it is waited for in the parent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from unittest import mock

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_MS = 1_000_000
_BLOCK = ("--workload", "tests.runners.workload:block_with_attention", "--steps", "2", "--warmup", "2")

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed")


def test_attention_between_two_projections_is_the_time_of_the_block(tmp_path: Path) -> None:
    """Linear 2 ms, attention 2 x 25 ms, Linear 2 ms, sum 0.1 ms; the rest are calls and operators on the host."""
    from tests.runners.async_device_runs import analysed, collected  # noqa: PLC0415 (imports torch)

    durations_ns = {"aten::addmm": 2 * _MS, "aten::bmm": 25 * _MS}
    collected(tmp_path, ["M", "ML", "MLG"], *_BLOCK, durations_ns=durations_ns)
    table = analysed(tmp_path, "A02")
    latencies_ns = dict(table.select("layer_name", "latency_ns").rows())
    hosts_part_ns = 100_000
    assert latencies_ns["Linear_0"] == latencies_ns["Linear_1"]
    assert 2 * _MS < latencies_ns["Linear_1"] < 2 * _MS + hosts_part_ns
    assert 50.1 * _MS < latencies_ns["Block_0"] < 50.1 * _MS + hosts_part_ns
    assert 0.1 * _MS < latencies_ns["ReLU_0"] < 0.1 * _MS + hosts_part_ns


def test_layers_at_ml_take_what_their_kernels_take_serialised(tmp_path: Path) -> None:
    from tests.runners.async_device_runs import analysed, collected  # noqa: PLC0415

    durations_ns = {"aten::addmm": 2 * _MS, "aten::bmm": 25 * _MS}
    collected(tmp_path / "ml", ["ML"], *_BLOCK, durations_ns=durations_ns)
    collected(tmp_path / "mlg", ["MLG-serialised"], *_BLOCK, durations_ns=durations_ns)
    ml, serialised = (
        dict(analysed(tmp_path / name, "A02").select("layer_name", "latency_ns").rows()) for name in ("ml", "mlg")
    )
    assert ml == pytest.approx(serialised, abs=50_000)


def test_the_real_profiler_has_the_wait_before_a_module_in_its_parents_row(tmp_path: Path) -> None:
    import torch  # noqa: PLC0415

    from xsp_runners.torch_levels import waiting_layers  # noqa: PLC0415

    def wait() -> None:
        with torch.profiler.record_function("wait"):
            pass

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    device = mock.patch.multiple(torch.cuda, synchronize=wait, is_current_stream_capturing=bool)
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True)
    with device, waiting_layers(torch), profiler:
        model(torch.ones(2, 4))
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    assert _rows(tmp_path / "trace.json") == [
        ("wait", ""),
        ("nn.Module: Sequential_0", ""),
        ("wait", "nn.Module: Sequential_0"),
        ("nn.Module: Linear_0", "nn.Module: Sequential_0"),
        ("wait", "nn.Module: Linear_0"),
        ("wait", "nn.Module: Sequential_0"),
        ("nn.Module: ReLU_0", "nn.Module: Sequential_0"),
        ("wait", "nn.Module: ReLU_0"),
        ("wait", "nn.Module: Sequential_0"),
    ]
    assert torch.nn.Module.__call__.__code__ is torch.nn.Module._wrapped_call_impl.__code__


def _rows(path: Path) -> list[tuple[str, str]]:
    """Rows of modules and waits in order, each with the module's around it."""
    events = [each for each in json.loads(path.read_text())["traceEvents"] if each["ph"] == "X"]
    shown = [each for each in events if each["name"] == "wait" or each["name"].startswith("nn.Module")]
    rows = []
    around: list[tuple[float, str]] = []
    for each in sorted(shown, key=lambda event: (event["ts"], -event["dur"])):
        around = [(end, name) for end, name in around if end > each["ts"]]
        rows.append((each["name"], around[-1][1] if around else ""))
        if each["name"] != "wait":
            around.append((each["ts"] + each["dur"], each["name"]))
    return rows


def test_a_program_may_capture_a_graph_in_its_steps(tmp_path: Path) -> None:
    from tests.runners.async_device_runs import collected  # noqa: PLC0415

    collected(tmp_path, ["ML"], "--workload", "tests.runners.workload:graphed", "--steps", "1", "--warmup", "1")
