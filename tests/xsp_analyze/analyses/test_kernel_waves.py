"""B26: waves and occupancy of kernels, worked out by hand; and against Kineto's and Nsight Compute's own figures."""

from __future__ import annotations

import gzip
import json
import math
import os
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.hand import Hand, total
from tests.helpers.launched import Launched
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import Trace, XspError

if TYPE_CHECKING:
    from pathlib import Path


def _table(trace: Trace, steps: str = "all") -> pl.DataFrame:
    return run(find("B26"), StepView.of(trace, steps)).table


def _only(launched: Hand) -> dict[str, Any]:
    (row,) = _table(launched.build()).to_dicts()
    return row


def test_a_last_wave_that_is_mostly_empty_costs_time() -> None:
    # With 64 registers 4 blocks of 256 threads fit, 320 on 80 multiprocessors: 400 blocks are one wave and 80 more.
    launched = Launched()
    launched.kernel("gemm", 1000, (20, 10, 2), registers=64)
    row = _only(launched)
    assert (row["grid"], row["block"], row["blocks"]) == ([20, 10, 2], [256, 1, 1], 400)
    assert (row["resident_blocks"], row["theoretical_occupancy"], row["limited_by"]) == (4, 0.5, "registers")
    assert (row["waves"], row["full_waves"], row["last_wave_empty_share"]) == (1.25, 1, 0.75)
    assert row["tail_ns"] == pytest.approx(1000 * 0.75 / 2)  # two waves are taken for the work of 1.25
    assert (row["blocks_per_multiprocessor"], row["unused_ns"]) == (5.0, 0.0)


def test_full_waves_have_no_tail() -> None:
    launched = Launched()
    launched.kernel("add", 1000, (1920, 1, 1))
    row = _only(launched)
    assert (row["waves"], row["full_waves"], row["last_wave_empty_share"], row["tail_ns"]) == (3.0, 3, 0.0, 0.0)
    assert row["limited_by"] == "warps, registers"


def test_launches_whose_grids_are_unknown_along_any_axis_are_one_row() -> None:
    launched = Launched()
    launched.kernel("gemm", 1000, (20, 10, 2), registers=64)
    for grid in ((None, 10, 2), (20, None, 2), (None, None, None)):
        launched.kernel("gemm", 200, grid, registers=64)
    rows = _table(launched.build())
    assert rows.select("grid", "blocks", "count").rows() == [([20, 10, 2], 400, 1), (None, None, 3)]


def test_a_grid_smaller_than_the_device_leaves_multiprocessors_without_a_block() -> None:
    launched = Launched()
    launched.kernel("small", 1000, (20, 1, 1))
    row = _only(launched)
    assert (row["waves"], row["full_waves"], row["limited_by"]) == (20 / 640, 0, "grid")
    assert (row["tail_ns"], row["unused_ns"]) == (0.0, 750.0)


def test_one_wave_that_is_not_full_uses_every_multiprocessor() -> None:
    launched = Launched()
    launched.kernel("middling", 1000, (100, 1, 1))
    row = _only(launched)
    assert (row["waves"], row["limited_by"], row["tail_ns"], row["unused_ns"]) == (100 / 640, "grid", 0.0, 0.0)


def test_rows_are_of_one_configuration_and_add_up() -> None:
    launched = Launched()
    for duration, grid, registers in ((100, 640, 32), (300, 640, 32), (50, 320, 32), (70, 640, 64), (20, 640, 32)):
        launched.kernel("gemm" if duration != 20 else "add", duration, (grid, 1, 1), registers=registers)
    launched.work("copy", 600, 10, kind="memcpy")
    table = _table(launched.build())
    assert table.select("kernel_name", "count", "duration_ns").rows() == [
        ("gemm", 2, 400),
        ("gemm", 1, 70),
        ("gemm", 1, 50),
        ("add", 1, 20),
    ]
    assert total(table["duration_ns"]) == 540


def test_what_is_not_recorded_is_unknown() -> None:
    launched = Launched()
    launched.kernel("no registers", 30, (100, 1, 1), registers=None)
    launched.kernel("no shared memory", 20, (100, 1, 1), shared=None)
    launched.kernel("no grid", 10, None)
    launched.work("nothing", 100, 5)
    rows = {row["kernel_name"]: row for row in _table(launched.build()).to_dicts()}
    unknown = ("resident_blocks", "theoretical_occupancy", "limited_by", "waves", "full_waves", "tail_ns")
    for name in ("no registers", "no shared memory", "nothing"):
        assert [rows[name][column] for column in unknown] == [None] * 6
    assert (rows["no registers"]["blocks_per_multiprocessor"], rows["no registers"]["unused_ns"]) == (1.25, 0.0)
    assert (rows["no grid"]["theoretical_occupancy"], rows["no grid"]["limited_by"]) == (1.0, None)
    assert (rows["no grid"]["blocks"], rows["no grid"]["waves"], rows["no grid"]["unused_ns"]) == (None, None, None)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ({"name": None, "multiprocessor_count": None, "compute_capability": None}, (None, None)),
        ({"name": "Tesla V100-SXM2-16GB", "multiprocessor_count": None, "compute_capability": None}, (80, 1.0)),
        ({"name": "Some GPU", "multiprocessor_count": 40, "compute_capability": "7.0"}, (40, 1.0)),
        ({"name": "AMD Instinct MI300X", "multiprocessor_count": 304, "compute_capability": "9.4"}, (304, 1.0)),
        # an MI100 calls itself 9.0 as well, and so does an H100
        ({"name": "AMD Instinct MI100", "multiprocessor_count": 120, "compute_capability": "9.0"}, (120, None)),
        ({"name": "AMD Radeon Graphics", "multiprocessor_count": 104, "compute_capability": "9.0"}, (104, 1.0)),
    ],
)
def test_devices_are_known_by_their_file_or_by_name(device: dict[str, object], expected: tuple[int, float]) -> None:
    launched = Launched(**device)
    launched.kernel("add", 100, (4, 1, 1))
    row = _only(launched)
    assert (row["multiprocessor_count"], row["theoretical_occupancy"]) == expected


def test_devices_that_are_alike_share_rows_and_others_are_named() -> None:
    launched = Launched()
    launched.device(1, name="Tesla V100-SXM2-16GB", multiprocessor_count=80, compute_capability="7.0")
    for device in (0, 1):
        launched.kernel("add", 100, (640, 1, 1), device_id=device)
    assert "device_name" not in _table(launched.build()).columns
    launched.device(2, name="NVIDIA A100-SXM4-80GB", multiprocessor_count=108, compute_capability="8.0")
    launched.kernel("add", 50, (640, 1, 1), device_id=2)
    assert _table(launched.build()).select("device_name", "count", "waves").rows() == [
        ("Tesla V100-SXM2-16GB", 2, 1.0),
        ("NVIDIA A100-SXM4-80GB", 1, 640 / 864),
    ]


def test_occupancy_by_counters_stands_beside_the_theoretical_one() -> None:
    launched = Launched()
    for duration, achieved in ((100, 0.4), (300, 0.8)):
        launched.metric(launched.kernel("add", duration, (640, 1, 1)), "achieved_occupancy", achieved)
    row = _only(launched)
    assert (row["theoretical_occupancy"], row["achieved_occupancy"]) == (1.0, pytest.approx(0.7))


def test_a_mean_step_has_what_a_step_has() -> None:
    launched = Launched()
    for number in (1, 2):
        launched.step(number, launched.at, 200)
        launched.kernel("gemm", 100 * number, (400, 1, 1), registers=64, step=number)
        launched.at = 200 * number
    trace = launched.build()
    (mean,) = _table(trace, "mean").to_dicts()
    assert (mean["count"], mean["duration_ns"], mean["tail_ns"]) == (1.0, 150.0, pytest.approx(150 * 0.375))
    assert _table(trace, "each").select("step", "duration_ns", "tail_ns").rows() == [(1, 100, 37.5), (2, 200, 75.0)]


def test_without_grids_there_is_no_answer() -> None:
    hand = Hand()
    hand.run()
    hand.work("add", 0, 10)
    with pytest.raises(XspError, match="needs the grids of kernels"):
        _table(hand.build())


_HELD_BY_DEFAULT = 48 * 1024  # above, Kineto's call of the occupancy calculator refuses


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("resnet50_train_torch19.v100", 0),
        ("resnet_train.rtx2080ti", 0),
        ("diff_test", 0),
        ("bert_small.h100", 9),
        ("nccl_training", 414),
    ],
)
def test_kineto_estimates_the_same_occupancy(name: str, refused: int, real_dir: Path) -> None:
    path = real_dir / f"kineto/{name}.json.gz"
    with gzip.open(path) as file:
        content = json.load(file)
    threads = content["deviceProperties"][0]["maxThreadsPerMultiprocessor"]
    ours = _by_configuration(_table(convert([path], Options())))
    zeros = 0
    for arguments in _kernel_arguments(content):
        row = ours[_configuration(arguments)]
        assert row["blocks_per_multiprocessor"] == pytest.approx(arguments["blocks per SM"], rel=1e-4)
        held = min(row["blocks_per_multiprocessor"], row["resident_blocks"]) * math.prod(arguments["block"])
        if arguments["est. achieved occupancy %"] == 0 and arguments["shared memory"] > _HELD_BY_DEFAULT:
            zeros += 1
            continue
        assert 100 * held / threads == pytest.approx(arguments["est. achieved occupancy %"], abs=0.51)
    assert zeros == refused


def _kernel_arguments(content: dict[str, Any]) -> list[dict[str, Any]]:
    events = [event for event in content["traceEvents"] if str(event.get("cat")).lower() == "kernel"]
    return [event["args"] for event in events if "est. achieved occupancy %" in event["args"]]


def _configuration(arguments: dict[str, Any]) -> tuple[object, ...]:
    return (*arguments["grid"], *arguments["block"], arguments["registers per thread"], arguments["shared memory"])


def _by_configuration(table: pl.DataFrame) -> dict[tuple[object, ...], dict[str, Any]]:
    rows = table.to_dicts()
    return {(*r["grid"], *r["block"], r["registers_per_thread"], r["shared_bytes"]): r for r in rows}


@pytest.mark.real
@pytest.mark.nsys
@pytest.mark.parametrize("name", ["mistic.a100.ncu2021_2", "mojo.gtx1660ti.ncu2022_4"])
def test_nsight_compute_counts_the_same_waves(name: str, real_dir: Path) -> None:
    if not os.environ.get("XSP_NCU"):
        pytest.skip("XSP_NCU names no ncu")
    trace = convert([real_dir / f"ncu/{name}.ncu-rep"], Options())
    metrics = trace.frame("metrics").with_columns(pl.col("metric").cast(pl.String))
    spans = trace.frame("kernels").select("span_id", pl.concat_list("grid_x", "grid_y", "grid_z").alias("grid"))
    names = {"theoretical_occupancy": "theoretical_occupancy", "launch__waves_per_multiprocessor": "waves"}
    measured = metrics.filter(pl.col("metric").is_in(list(names))).join(spans, on="span_id")
    ours = {tuple(row["grid"]): row for row in _table(trace).to_dicts()}
    assert measured.height == 8
    for row in measured.iter_rows(named=True):
        assert ours[tuple(row["grid"])][names[row["metric"]]] == pytest.approx(row["value"], abs=0.005)
