"""A leveled set small enough to work out every answer on paper, from raw files to tables.

Three layers, five steps. Every duration varies over steps by VARIED in some order, of which the trimmed mean drops the
least and the most: what is left of it is 0, so that each answer is the number stated below. In ns:

                      M       ML      MLG, serialised   MLG, asynchronous
    step              70 000  76 000  86 000            60 000
    Linear_0                  30 000  34 000            gemm 10 000 and gemm 6 000, same grid
    Linear_1                  20 000  22 000            gemm 8 000, same name and grid
    ReLU_0                    15 000  19 000            relu 4 000, copy 2 000

In the asynchronous run Linear_1 and ReLU_0 overlap on one thread: the launches of Linear_1's gemm and of relu started
inside both, and only the serialised run tells whose they are. Its kernels take 500 longer, which no answer shows.

Counters, in three runs of their own; the device does 1e12 flop/s and moves 5e10 byte/s (ridge: 20 flop/byte):

               fadd     fmul     ffma       = flop     read     written  occupancy
    gemm       0        0        2 000 000  4 000 000  100 000  50 000   50 %
    gemm       100 000  300 000  800 000    2 000 000  60 000   40 000   25 %
    gemm       0        0        1 600 000  3 200 000  20 000   20 000   80 %
    relu       40 000   0        0          40 000     80 000   80 000   90 %
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.run_sets import DRAM, FLOPS, OCCUPANCY, merged, write_counters, write_run
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

VARIED = ((0, 90, -30, 10, -10), (90, -10, 0, -30, 10), (-30, 10, 90, -10, 0))
"""What each of five steps adds; the trimmed mean of each row is 0 (the mean is 12)."""

_STEPS = range(5)
_EVERY_NS = 200_000
_MODEL: dict[str, Any] = {
    "batch_size": 4,
    "device": {"name": "GPU on paper", "peaks": {"fp32_flop_per_s": 1e12, "dram_byte_per_s": 5e10}},
}


def _durations(base: int, varied: int = 0) -> list[int]:
    return [base + extra for extra in VARIED[varied]]


def _layer_run() -> KinetoTrace:
    trace = KinetoTrace()
    for s in _STEPS:
        t, (a, b, c) = s * _EVERY_NS, (row[s] for row in VARIED)
        trace.step(s + 1, t, 76_000 + a)
        for name, at, length in (
            ("Linear_0", 1_000, 30_000 + a),
            ("Linear_1", 32_000, 20_000 + b),
            ("ReLU_0", 53_000, 15_000 + c),
        ):
            trace.module(name, t + at, length)
            trace.operator("aten::relu" if name == "ReLU_0" else "aten::linear", t + at + 500, length - 1_000)
        trace.memory(t + 2_000, 4_096, allocated=4_096, reserved=1 << 20)
        trace.memory(t + 33_000, 2_048, allocated=6_144, reserved=1 << 20)
        trace.memory(t + 75_000, -6_144, allocated=0, reserved=1 << 20)
    return trace


def _serialised_run() -> KinetoTrace:
    trace = KinetoTrace()
    for s in _STEPS:
        t, (a, b, c) = s * _EVERY_NS, (row[s] for row in VARIED)
        trace.step(s + 1, t, 86_000 + a)
        trace.module("Linear_0", t + 1_000, 34_000 + b)
        trace.launch("gemm", t + 2_000, t + 7_500, 10_500, grid=(4, 1, 1))
        trace.launch("gemm", t + 19_000, t + 24_500, 6_500, grid=(4, 1, 1))
        trace.module("Linear_1", t + 36_000, 22_000 + c)
        trace.launch("gemm", t + 37_000, t + 43_000, 8_500, grid=(4, 1, 1))
        trace.module("ReLU_0", t + 59_000, 19_000 + a)
        trace.launch("relu", t + 60_000, t + 65_500, 4_500, grid=(2, 1, 1))
        trace.copy("HtoD", t + 70_200, t + 75_300, 2_500, size=1_000)
    return trace


def _asynchronous_run() -> KinetoTrace:
    trace = KinetoTrace()
    for s in _STEPS:
        t, (a, b, c) = s * _EVERY_NS, (row[s] for row in VARIED)
        trace.step(s + 1, t, 60_000 + a)
        trace.module("Linear_0", t + 1_000, 13_000)
        trace.launch("gemm", t + 2_000, t + 7_500, 10_000 + a, grid=(4, 1, 1))
        trace.launch("gemm", t + 8_000, t + 18_000, 6_000 + b, grid=(4, 1, 1))
        trace.module("Linear_1", t + 15_000, 13_000)
        trace.operator("aten::linear", t + 15_500, 3_000)
        trace.module("ReLU_0", t + 20_000, 20_000)
        trace.launch("gemm", t + 21_000, t + 26_500, 8_000 + c, grid=(4, 1, 1))
        trace.launch("relu", t + 27_000, t + 35_000, 4_000 + a, grid=(2, 1, 1))
        trace.copy("HtoD", t + 33_000, t + 40_000, 2_000 + b, size=1_000)
    return trace


def _counters(folder: Path) -> None:
    kernels = (("gemm", 4), ("gemm", 4), ("gemm", 4), ("relu", 2))
    flops = ((0, 0, 2_000_000), (100_000, 300_000, 800_000), (0, 0, 1_600_000), (40_000, 0, 0))
    moved = ((100_000, 50_000), (60_000, 40_000), (20_000, 20_000), (80_000, 80_000))
    occupancy = ((50.0,), (25.0,), (80.0,), (90.0,))
    for name, counters, columns, values in (
        ("flop", ["flop_count_sp"], FLOPS, flops),
        ("dram", ["dram_read_bytes", "dram_write_bytes"], DRAM, moved),
        ("occupancy", ["achieved_occupancy"], OCCUPANCY, occupancy),
    ):
        rows = [(*kernel, row) for kernel, row in zip(kernels, values, strict=True)]
        write_counters(folder / f"MLG-{name}", counters, columns, rows, **_MODEL)


@pytest.fixture(name="view", scope="module")
def fixture_view(tmp_path_factory: pytest.TempPathFactory) -> StepView:
    folder = tmp_path_factory.mktemp("set")
    write_run(folder / "M", "M", step_durations_ns=_durations(70_000), **_MODEL)
    write_run(folder / "ML", "ML", _layer_run(), serialized=True, **_MODEL)
    write_run(folder / "MLG", "MLG", _asynchronous_run(), serialized=False, **_MODEL)
    write_run(folder / "MLG-serialised", "MLG", _serialised_run(), serialized=True, **_MODEL)
    _counters(folder)
    return StepView.of(merged(folder))


_FLOP = ("flop_count", "dram_read_bytes", "dram_write_bytes", "achieved_occupancy")
_DERIVED = ("arithmetic_intensity", "flop_per_s", "memory_bound")
_NO = (None,) * 7


def _equals(view: StepView, identifier: str, columns: tuple[str, ...], expected: Sequence[tuple[object, ...]]) -> None:
    rows = run(find(identifier), view).table.select(columns).rows()
    assert len(rows) == len(expected)
    for row, answer in zip(rows, expected, strict=True):
        for name, ours, value in zip(columns, row, answer, strict=True):
            assert ours == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value), name


@pytest.mark.slow
def test_model_information(view: StepView) -> None:
    columns = ("batch_size", "latency_ns", "median_ns", "latency_per_input_ns", "throughput_per_s", "durations")
    expected = (4, 70_000.0, 70_000.0, 17_500.0, 4 / 70e-6, [70_000, 70_090, 69_970, 70_010, 69_990])
    _equals(view, "A01", columns, [expected])


def test_layer_information(view: StepView) -> None:
    columns = ("layer_index", "layer_name", "layer_type", "latency_ns", "model_share", "allocated_bytes")
    expected = [
        (0, "Linear_0", "Linear", 30_000.0, 30 / 70, 4_096.0),
        (1, "Linear_1", "Linear", 20_000.0, 20 / 70, 2_048.0),
        (2, "ReLU_0", "ReLU", 15_000.0, 15 / 70, None),
    ]
    _equals(view, "A02", columns, expected)
    _equals(view, "A04", ("layer_index", "allocated_bytes"), [(0, 4_096.0), (1, 2_048.0), (2, None)])


def test_layer_latency_and_its_spread(view: StepView) -> None:
    columns = ("layer_index", "latency_ns", "min_ns", "q1_ns", "median_ns", "q3_ns", "max_ns")
    expected = [
        (n, base, base - 30, base - 10, base, base + 10, base + 90)
        for n, base in enumerate((30_000.0, 20_000.0, 15_000.0))
    ]
    _equals(view, "A03", columns, expected)


def test_layers_by_type(view: StepView) -> None:
    _equals(view, "A05", ("layer_type", "count", "share"), [("Linear", 2, 2 / 3), ("ReLU", 1, 1 / 3)])
    expected = [("Linear", 50_000.0, 50 / 65), ("ReLU", 15_000.0, 15 / 65)]
    _equals(view, "A06", ("layer_type", "latency_ns", "share"), expected)
    _equals(view, "A07", ("layer_type", "allocated_bytes", "share"), [("Linear", 6_144.0, 1.0), ("ReLU", None, None)])


def test_kernel_information(view: StepView) -> None:
    columns = ("layer_index", "layer_name", "kernel_name", "kind", "grid", "block", "duration_ns", *_FLOP, *_DERIVED)
    gemm, block = ("gemm", "kernel", [4, 1, 1]), [128, 1, 1]
    expected = [
        (0, "Linear_0", *gemm, block, 10_000.0, 4e6, 1e5, 5e4, 0.50, 4e6 / 150_000, 4e11, False),
        (0, "Linear_0", *gemm, block, 6_000.0, 2e6, 6e4, 4e4, 0.25, 20.0, 2e6 / 6e-6, False),
        (1, "Linear_1", *gemm, block, 8_000.0, 3.2e6, 2e4, 2e4, 0.80, 80.0, 4e11, False),
        (2, "ReLU_0", "relu", "kernel", [2, 1, 1], block, 4_000.0, 4e4, 8e4, 8e4, 0.90, 0.25, 1e10, True),
        (2, "ReLU_0", "Memcpy HtoD (Pinned -> Device)", "memcpy", None, None, 2_000.0, *_NO),
    ]
    _equals(view, "A08", columns, expected)


def test_kernel_roofline(view: StepView) -> None:
    columns = ("execution", "precision", "ideal_intensity", "roof_flop_per_s", "roof_share", "bound", "roof")
    compute = ("compute", "fp32 peak of GPU on paper (given by the user)")
    memory = ("memory", "DRAM bandwidth of GPU on paper (given by the user)")
    expected = [
        (0, "fp32", 20.0, 1e12, 0.4, *compute),
        (1, "fp32", 20.0, 1e12, 1 / 3, *compute),  # on the ridge
        (2, "fp32", 20.0, 1e12, 0.4, *compute),
        (3, "fp32", 20.0, 0.25 * 5e10, 0.8, *memory),
    ]
    _equals(view, "A09", columns, expected)
    throughput = [(4e6, 4e6 / 150_000, 4e11), (2e6, 20.0, 2e6 / 6e-6), (3.2e6, 80.0, 4e11), (4e4, 0.25, 1e10)]
    _equals(view, "A09", ("flop_count", "arithmetic_intensity", "flop_per_s"), throughput)


_BY_LAYER = [
    # flop, read, written, occupancy weighted by duration; intensity, throughput, memory bound
    (6e6, 160e3, 90e3, (0.50 * 10 + 0.25 * 6) / 16, 24.0, 6e6 / 16e-6, False),
    (3.2e6, 20e3, 20e3, 0.80, 80.0, 4e11, False),
    (4e4, 80e3, 80e3, 0.90, 0.25, 1e10, True),
]
_GEMM_OCCUPANCY = (0.50 * 10 + 0.25 * 6 + 0.80 * 8) / 24


def test_kernels_by_name(view: StepView) -> None:
    columns = ("kernel_name", "kind", "count", "duration_ns", "model_share", *_FLOP, *_DERIVED)
    gemm = (9.2e6, 180e3, 110e3, _GEMM_OCCUPANCY, 9.2e6 / 290e3, 9.2e6 / 24e-6, False)
    expected = [
        ("gemm", "kernel", 3.0, 24_000.0, 24 / 70, *gemm),
        ("relu", "kernel", 1.0, 4_000.0, 4 / 70, *_BY_LAYER[2]),
        ("Memcpy HtoD (Pinned -> Device)", "memcpy", 1.0, 2_000.0, 2 / 70, *_NO),
    ]
    _equals(view, "A10", columns, expected)


def test_kernels_by_layer(view: StepView) -> None:
    columns = ("layer_index", "layer_latency_ns", "kernel_count", "kernel_duration_ns", "non_kernel_ns")
    expected = [
        (0, 30_000.0, 2.0, 16_000.0, 14_000.0, *_BY_LAYER[0]),
        (1, 20_000.0, 1.0, 8_000.0, 12_000.0, *_BY_LAYER[1]),
        (2, 15_000.0, 2.0, 6_000.0, 9_000.0, *_BY_LAYER[2]),
    ]
    _equals(view, "A11", (*columns, *_FLOP, *_DERIVED), expected)
    _equals(view, "A12", ("layer_index", *_FLOP), [(n, *row[:4]) for n, row in enumerate(_BY_LAYER)])
    shares = [(16 / 30, 14 / 30), (0.4, 0.6), (0.4, 0.6)]
    _equals(view, "A13", ("kernel_share", "non_kernel_share"), shares)


def test_layer_roofline(view: StepView) -> None:
    columns = ("layer_index", "precision", "arithmetic_intensity", "flop_per_s", "roof_share", "bound")
    expected = [
        (0, "fp32", 24.0, 3.75e11, 0.375, "compute"),
        (1, "fp32", 80.0, 4e11, 0.4, "compute"),
        (2, "fp32", 0.25, 1e10, 0.8, "memory"),
    ]
    _equals(view, "A14", columns, expected)


def test_kernels_by_model(view: StepView) -> None:
    columns = ("batch_size", "model_latency_ns", "kernel_count", "kernel_duration_ns", "gpu_share", *_FLOP, *_DERIVED)
    occupancy = (_GEMM_OCCUPANCY * 24 + 0.90 * 4) / 28
    counters = (9.24e6, 260e3, 190e3, occupancy, 9.24e6 / 450e3, 9.24e6 / 28e-6, False)
    _equals(view, "A15", columns, [(4, 70_000.0, 5.0, 30_000.0, 30 / 70, *counters)])
    _equals(view, "A15", ("precision", "roof_share", "bound"), [("fp32", 0.33, "compute")])


def test_profiling_overhead(view: StepView) -> None:
    columns = ("level", "scope", "baseline_ns", "measured_ns", "overhead_ns")
    expected = [
        ("layer", "model", 70_000.0, 76_000.0, 6_000.0),
        ("kernel", "model", 76_000.0, 86_000.0, 10_000.0),
        ("kernel", "Linear_0", 30_000.0, 34_000.0, 4_000.0),
        ("kernel", "Linear_1", 20_000.0, 22_000.0, 2_000.0),
        ("kernel", "ReLU_0", 15_000.0, 19_000.0, 4_000.0),
        ("total", "model", 70_000.0, 86_000.0, 16_000.0),
    ]
    _equals(view, "B02", columns, expected)


def test_the_ledger_says_that_parents_were_resolved_and_finds_nothing_insane(view: StepView) -> None:
    ledger = {row["kind"]: row for row in run(find("B01"), view).table.to_dicts()}
    assert ledger["parent_resolved"]["count"] == 10
    assert "5 of them another one" in ledger["parent_resolved"]["detail"]
    assert ledger["layer"]["share"] == 1.0
    assert not [kind for kind in ledger if kind.startswith("sanity_")]
    assert ledger["match_layers"]["severity"] == ledger["match_kernels"]["severity"] == "info"
