"""CUPTI's counters in a Kineto trace: tied to kernels, else to launches, by order; counted where they do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.linked import ledger_counts
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from xsp_model import Trace

_SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def _counters(ffma: int) -> dict[str, object]:
    return {_SASS.format("fadd"): 1, _SASS.format("fmul"): 2, _SASS.format("ffma"): ffma}


def _range(trace: KinetoTrace, name: str, start_ns: int, args: Mapping[str, object]) -> None:
    trace.raw(ph="X", cat="cuda_profiler_range", name=name, pid=0, tid=0, ts=start_ns, dur=1000, args=dict(args))


def _converted(trace: KinetoTrace, folder: Path) -> Trace:
    return convert([trace.write(folder / "trace.json")], Options())


def _flops(trace: Trace) -> dict[str, float]:
    rows = trace.frame("metrics").filter(pl.col("metric") == "flop_count_sp")
    spans = trace.frame("spans").select("span_id", pl.format("{} at {}", "name", "start_ns").alias("span"))
    return dict(rows.join(spans, on="span_id").select("span", "value").iter_rows())


def test_without_kernels_the_counters_go_to_the_launches_in_order(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.operator("aten::mm", 0, 10_000)
    for number in range(2):
        trace.runtime("cudaLaunchKernel", 1000 + 2000 * number, 500, correlation=number + 1)
        trace.runtime("cudaStreamSynchronize", 1600 + 2000 * number, 100, correlation=number + 11)
    _range(trace, "second", 9000, _counters(20))
    _range(trace, "first", 8000, _counters(10))
    converted = _converted(trace, tmp_path)
    assert _flops(converted) == {"cudaLaunchKernel at 1000": 3 + 2 * 10, "cudaLaunchKernel at 3000": 3 + 2 * 20}
    sources = set(converted.frame("metrics")["source"].cast(pl.String))
    assert sources == {"CUPTI in Kineto", "CUPTI in Kineto, derived"}
    assert ledger_counts(converted)["profiler_ranges_tied"] == 2


def test_counters_on_launches_answer_for_kernels_and_layers(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.operator("aten::mm", 0, 4_000)
    trace.operator("aten::add", 5_000, 4_000)
    for number, start in enumerate((1000, 2000, 6000)):
        trace.runtime("cudaLaunchKernel", start, 500, correlation=number + 1)
        _range(trace, "__missing__", 8000 + start, _counters(10 * (number + 1)))
    view = StepView.of(_converted(trace, tmp_path))
    kernels = run(find("A08"), view).table.select("layer_name", "kernel_name", "count", "duration_ns", "flop_count")
    assert kernels.rows() == [
        ("aten::mm", "cudaLaunchKernel", 1, None, 23.0),
        ("aten::mm", "cudaLaunchKernel", 1, None, 43.0),
        ("aten::add", "cudaLaunchKernel", 1, None, 63.0),
    ]
    layers = run(find("A12"), view).table.select("layer_name", "flop_count", "work_basis").rows()
    assert layers == [("aten::mm", 66.0, "measured"), ("aten::add", 63.0, "measured")]
    with pytest.raises(XspError, match="needs the level kernel"):
        run(find("B03"), view)


def test_with_kernels_the_counters_go_to_them_in_the_order_of_their_launches(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.operator("aten::mm", 0, 10_000)
    trace.launch("late", 1000, 9000, 500)
    trace.launch("early", 2000, 5000, 500)
    _range(trace, "late", 20_000, _counters(10))
    _range(trace, "__missing__", 21_000, _counters(20))
    converted = _converted(trace, tmp_path)
    assert _flops(converted) == {"late at 9000": 23, "early at 5000": 43}
    assert "profiler_ranges_renamed" not in ledger_counts(converted)


def test_names_that_differ_from_their_kernels_are_counted(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.operator("aten::mm", 0, 10_000)
    trace.launch("gemm", 1000, 5000, 500)
    _range(trace, "relu", 20_000, _counters(1))
    assert ledger_counts(_converted(trace, tmp_path))["profiler_ranges_renamed"] == 1


def test_another_number_of_ranges_than_of_launches_ties_nothing(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.operator("aten::mm", 0, 10_000)
    trace.runtime("cudaLaunchKernel", 1000, 500, correlation=1)
    for number in range(3):
        _range(trace, "gemm", 8000 + number, _counters(10))
    converted = _converted(trace, tmp_path)
    assert converted.frame("metrics").is_empty()
    assert ledger_counts(converted)["profiler_ranges_unmatched"] == 3


def test_percentages_and_times_are_in_base_units(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.operator("aten::mm", 0, 10_000)
    trace.runtime("cudaLaunchKernel", 1000, 500, correlation=1)
    occupancy = "sm__warps_active.avg.pct_of_peak_sustained_active"
    _range(trace, "gemm", 8000, {occupancy: 25.5, "gpu__time_duration.sum": "1024", "odd": "words"})
    metrics = _converted(trace, tmp_path).frame("metrics").select(pl.col("metric").cast(pl.String), "value")
    assert dict(metrics.iter_rows()) == {"achieved_occupancy": 0.255, "replayed_duration_ns": 1024}


@pytest.mark.real
def test_77_ranges_are_joined_to_77_launches(real_dir: Path) -> None:
    converted = convert([real_dir / "kineto" / "simple_cupti_counters.json.gz"], Options())
    metrics = converted.frame("metrics")
    launches = converted.frame("spans").filter(pl.col("name") == "cudaLaunchKernel").sort("start_ns")
    assert launches.height == 77
    assert metrics["span_id"].unique().sort().to_list() == launches["span_id"].sort().to_list()
    assert metrics.height == 77 * (9 + 3), "nine counters each, and three sums of them"
    # The first range: no FP32 adds or multiplies, 38,731,776 multiply-adds; 4,866,048 FP16 multiply-adds.
    # The second: 24,780,800 multiplies and 9,119,334,400 multiply-adds.
    sums = {
        (row["span_id"], str(row["metric"])): row["value"]
        for row in metrics.filter(pl.col("metric").cast(pl.String).str.starts_with("flop")).to_dicts()
    }
    # The last but one, ampere_sgemm_32x32_sliced1x4_tn: 2,359,296 adds, 3,145,728 multiplies, 554,303,488 of both.
    first, second, gemm = (launches["span_id"][n] for n in (0, 1, 75))
    assert sums[first, "flop_count_sp"] == 2 * 38_731_776
    assert sums[first, "flop_count_hp"] == 2 * 4_866_048
    assert sums[second, "flop_count_sp"] == 24_780_800 + 2 * 9_119_334_400
    assert sums[gemm, "flop_count_sp"] == 2_359_296 + 3_145_728 + 2 * 554_303_488
    assert sums[first, "flop_count_dp"] == 0
    assert "events_left_out" not in {k for k in ledger_counts(converted) if "range" in k}
    (device,) = {row["name"] for row in converted.frame("devices").to_dicts()}
    assert device == "NVIDIA A100-PG509-200"
    assert set(converted.frame("devices")["fp32_flop_per_s"]) == {19.5e12}
