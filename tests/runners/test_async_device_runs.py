"""Run sets of the simulated GPU through the runners and through XSP: every figure is worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

if TYPE_CHECKING:
    from pathlib import Path

_MS = 1_000_000
_MLP = ("--workload", "zoo:mlp", "--steps", "2", "--warmup", "2", "--batch-size", "2")
_DURATIONS_NS = {"aten::addmm": 2 * _MS, "aten::mm": 3 * _MS}  # any other kernel takes 0.1 ms
_FORWARD_NS = 2 * (3 * 2 * _MS + 2 * _MS // 10)  # of two steps: three Linear, two ReLU

# Backward, the first Linear makes one product, for its weights, the others another one for their inputs.
_PRODUCTS_NS = 2 * 5 * 3 * _MS

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed")


def _by_phase(out: Path) -> dict[str, int]:
    """Device time of the kernels run in layers, by phase."""
    from tests.runners.async_device_runs import merged  # noqa: PLC0415 (imports torch)

    spans = merged(out).frame("spans").with_columns(pl.col("phase", "attribution", "level").cast(pl.String))
    kernels = spans.filter(pl.col("level") == "kernel", pl.col("attribution") == "layer")
    return dict(kernels.group_by("phase").agg(pl.col("duration_ns").sum()).rows())


def _products(out: Path) -> int:
    from tests.runners.async_device_runs import merged  # noqa: PLC0415

    spans = merged(out).frame("spans").with_columns(pl.col("name", "attribution").cast(pl.String))
    in_layers = spans.filter(pl.col("name") == "mm_kernel", pl.col("attribution") == "layer")
    return int(in_layers["duration_ns"].sum())


def test_a_set_of_all_levels_has_the_times_of_the_device(tmp_path: Path) -> None:
    from tests.runners.async_device_runs import analysed, collected  # noqa: PLC0415

    devices = collected(tmp_path, ["M", "ML", "MLG", "MLG-serialised"], *_MLP, durations_ns=_DURATIONS_NS)
    products = [[each.name for each in device.launches].count("addmm_kernel") for device in devices.values()]
    assert products == [3 * 4] * 4  # the same work at each level
    model = analysed(tmp_path, "A01").row(0, named=True)
    assert 6.2 * _MS < model["latency_ns"] < 6.4 * _MS
    assert _by_phase(tmp_path) == {"forward": 2 * _FORWARD_NS}  # asynchronous and serialised
    overhead = dict(analysed(tmp_path, "B02").filter(scope="model").select("level", "overhead_ns").rows())
    assert 0 < overhead["layer"] < 0.2 * _MS  # 12 waits
    assert 0 < overhead["total"] < 0.2 * _MS


def test_replays_of_a_graph_have_the_layers_of_their_capture(tmp_path: Path) -> None:
    from tests.runners.async_device_runs import analysed, collected  # noqa: PLC0415

    collected(tmp_path, ["M", "MLG"], *_MLP, "--execution", "cudagraph", durations_ns=_DURATIONS_NS)
    latencies_ns = dict(analysed(tmp_path, "A02").select("layer_name", "latency_ns").rows())
    assert latencies_ns == {
        **dict.fromkeys(("Linear_0", "Linear_1", "Linear_2"), 2.0 * _MS),
        **dict.fromkeys(("ReLU_0", "ReLU_1"), 0.1 * _MS),
    }


@pytest.mark.parametrize("execution", ["eager", "cudagraph"])
def test_a_training_step_has_its_backward_pass_in_its_layers(tmp_path: Path, execution: str) -> None:
    from tests.runners.async_device_runs import collected  # noqa: PLC0415

    options = ("--mode", "training", "--execution", execution)
    collected(tmp_path, ["M", "MLG"], *_MLP, *options, durations_ns=_DURATIONS_NS)
    others_ns = 2 * (3 + 2) * _MS // 10  # of two steps: the sum of each Linear's bias, and two ReLU
    assert _by_phase(tmp_path) == {"forward": _FORWARD_NS, "backward": _PRODUCTS_NS + others_ns}
    assert _products(tmp_path) == _PRODUCTS_NS


def test_a_graph_of_a_training_step_has_layers(tmp_path: Path) -> None:
    from tests.runners.async_device_runs import analysed, collected  # noqa: PLC0415

    options = ("--mode", "training", "--execution", "cudagraph")
    collected(tmp_path, ["M", "MLG"], *_MLP, *options, durations_ns=_DURATIONS_NS)
    latencies_ns = dict(analysed(tmp_path, "A02").select("layer_name", "latency_ns").rows())
    assert latencies_ns == {
        "Linear_0": 5.1 * _MS,  # 2, 3 for its weights, 0.1 for its bias
        "ReLU_0": 0.2 * _MS,
        "Linear_1": 8.1 * _MS,  # 3 more for its inputs
        "ReLU_1": 0.2 * _MS,
        "Linear_2": 8.1 * _MS,
    }


def test_backward_kernels_are_launched_by_a_thread_of_their_own(tmp_path: Path) -> None:
    from tests.runners.async_device_runs import collected  # noqa: PLC0415

    options = ("--mode", "training", "--recorder", "none", "--annotate", "nvtx")
    devices = collected(tmp_path, ["MLG"], *_MLP, *options, durations_ns=_DURATIONS_NS)
    products = [each for each in devices["MLG"].launches if each.name == "mm_kernel"]
    assert {each.thread for each in products} == {"backward"}
    recorded = [each for each in products if "step" in each.ranges]
    assert sum(each.duration_ns for each in recorded) == _PRODUCTS_NS  # of two steps; not of the warm-up
