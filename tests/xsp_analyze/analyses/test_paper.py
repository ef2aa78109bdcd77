"""A trace whose answers are worked out on paper; see `hand.paper_run` for what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.hand import Hand, paper_run, paper_trace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames import coverage
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from xsp_model import Trace


def rows(trace: Trace, identifier: str, steps: str | None, *columns: str) -> list[tuple[object, ...]]:
    return run(find(identifier), StepView.of(trace, steps)).table.select(columns).rows()


def test_kernels_by_name_over_the_whole_trace_are_exact_sums() -> None:
    # gemm: 100 + 30 + 50 + 120 + 30 + 70; shares are of the whole trace, which lasts 2200.
    table = run(find("A10"), StepView.of(paper_trace(), "all")).table
    assert table.select("kernel_name", "kind", "count", "duration_ns").rows() == [
        ("gemm", "kernel", 6, 400),
        ("gemm_bw", "kernel", 2, 120),
        ("add", "kernel", 2, 40),
        ("copy", "memcpy", 2, 20),
        ("replay", "kernel", 2, 10),
        ("early", "kernel", 1, 7),
    ]
    assert table.schema["duration_ns"] == pl.Int64
    assert table["model_share"].to_list()[:2] == [400 / 2200, 120 / 2200]


def test_kernels_by_name_of_a_mean_step_are_sums_of_means() -> None:
    # gemm: (100 + 120) / 2 + 30 + (50 + 70) / 2. replay: each of 2 ran in 1 step of 2, so 5 / 2 of it per step.
    # early is in no step. Step 1 begins when `early` ends at 9 and ends with its range at 1000: 991. Step 2
    # takes from the end of step 1's last work at 890 to the end of its own at 1925: 1035. Their mean is 1013.
    table = run(find("A10"), StepView.of(paper_trace())).table
    assert table.select("kernel_name", "count", "duration_ns").rows() == [
        ("gemm", 3.0, 200.0),
        ("gemm_bw", 1.0, 60.0),
        ("add", 1.0, 20.0),
        ("copy", 1.0, 10.0),
        ("replay", 1.0, 5.0),
    ]
    assert table["model_share"][0] == 200 / 1013


def test_kernels_by_name_of_each_step_have_the_step_as_first_key() -> None:
    table = run(find("A10"), StepView.of(paper_trace(), "each")).table
    assert table.columns[0] == "step"
    gemm = table.filter(pl.col("kernel_name") == "gemm")
    assert gemm.select("step", "count", "duration_ns", "model_share").rows() == [
        (1, 3, 180, 180 / 991),
        (2, 3, 220, 220 / 1035),
    ]


def test_kernels_by_name_of_one_step_are_that_steps() -> None:
    answer = rows(paper_trace(), "A10", "2", "kernel_name", "duration_ns")
    assert answer == [("gemm", 220), ("gemm_bw", 60), ("add", 20), ("copy", 10), ("replay", 10)]


def test_kernels_by_layer_hold_backward_work_and_show_replays_in_a_row_of_their_own() -> None:
    # Every forward kernel ends within its layer's call, so latency is host time. Linear_0: 100 + 30 + 60 and
    # 120 + 30 + 60; its two calls took 200 each.
    columns = ("layer_index", "layer_name", "layer_latency_ns", "kernel_count", "kernel_duration_ns", "non_kernel_ns")
    assert rows(paper_trace(), "A11", "all", *columns) == [
        (0, "Linear_0", 400, 6, 400, 0),
        (1, "Linear_1", 400, 2, 120, 280),
        (2, "Block_0", 340, 2, 40, 300),
        (None, "graph replay", None, 2, 10, None),
    ]
    assert rows(paper_trace(), "A11", None, *columns) == [
        (0, "Linear_0", 200.0, 3.0, 200.0, 0.0),
        (1, "Linear_1", 200.0, 1.0, 60.0, 140.0),
        (2, "Block_0", 170.0, 1.0, 20.0, 150.0),
        (None, "graph replay", None, 1.0, 5.0, None),
    ]


def test_kernels_by_layer_have_no_replay_row_without_replays() -> None:
    assert [row[0] for row in rows(paper_trace(), "A11", "1", "layer_name")] == ["Linear_0", "Linear_1", "Block_0"]


def test_gpu_share_by_layer_is_normalised() -> None:
    answer = rows(paper_trace(), "A13", None, "layer_name", "kernel_share", "non_kernel_share")
    assert answer == [("Linear_0", 1.0, 0.0), ("Linear_1", 0.3, 0.7), ("Block_0", 20 / 170, 1 - 20 / 170)]


def test_kernels_by_model_divide_device_time_by_model_latency() -> None:
    columns = ("batch_size", "model_latency_ns", "kernel_count", "kernel_duration_ns", "gpu_share")
    assert rows(paper_trace(), "A15", "all", *columns) == [(8, 2200, 15, 597, 597 / 2200)]
    assert rows(paper_trace(), "A15", None, *columns) == [(8, 1013.0, 7.0, 295.0, 295 / 1013)]
    assert rows(paper_trace(), "A15", "each", "step", "kernel_duration_ns") == [(1, 270), (2, 320)]


def test_model_information() -> None:
    columns = ("batch_size", "latency_ns", "latency_per_input_ns", "throughput_per_s", "durations", "is_optimal")
    assert rows(paper_trace(), "A01", None, *columns) == [(8, 1013.0, 1013 / 8, 8e9 / 1013, [991, 1035], None)]


def test_layer_information_and_its_shares() -> None:
    columns = ("layer_index", "layer_name", "latency_ns", "model_share", "allocated_bytes", "path")
    assert rows(paper_trace(), "A02", None, *columns) == [
        (0, "Linear_0", 200.0, 200 / 1013, 64.0, "Net_0.Linear_0"),
        (1, "Linear_1", 200.0, 200 / 1013, 32.0, "Net_0.Block_0.Linear_1"),
        (2, "Block_0", 170.0, 170 / 1013, None, "Net_0.Block_0"),
    ]


def test_layer_latency_shows_its_spread_over_steps() -> None:
    answer = rows(paper_trace(), "A03", None, "layer_name", "latency_ns", "min_ns", "median_ns", "max_ns")
    assert answer[0] == ("Linear_0", 200.0, 200.0, 200.0, 200.0)
    assert rows(paper_trace(), "A03", "all", "latency_ns", "min_ns")[0] == (400, None)


def test_layers_by_type() -> None:
    assert rows(paper_trace(), "A05", None, "layer_type", "count", "share") == [
        ("Linear", 2, 2 / 3),
        ("Block", 1, 1 / 3),
    ]
    answer = rows(paper_trace(), "A06", None, "layer_type", "latency_ns", "share")
    assert answer == [("Linear", 400.0, 400 / 570), ("Block", 170.0, 170 / 570)]
    answer = rows(paper_trace(), "A07", None, "layer_type", "allocated_bytes", "share")
    assert answer == [("Linear", 96.0, 1.0), ("Block", None, None)]
    assert rows(paper_trace(), "A04", "all", "allocated_bytes") == [(128,), (64,), (None,)]


def test_kernel_information_lists_aligned_executions_by_layer_and_launch() -> None:
    columns = ("layer_index", "kernel_name", "kind", "grid", "phase", "count", "duration_ns")
    assert rows(paper_trace(), "A08", None, *columns) == [
        (0, "gemm", "kernel", [4, 1, 1], "forward", 1.0, 110.0),
        (0, "gemm", "kernel", [4, 1, 1], "forward", 1.0, 30.0),
        (0, "gemm_bw", "kernel", [4, 1, 1], "backward", 1.0, 60.0),
        (1, "gemm", "kernel", [8, 1, 1], "forward", 1.0, 60.0),
        (2, "add", "kernel", [1, 1, 1], "forward", 1.0, 20.0),
        (None, "copy", "memcpy", None, None, 1.0, 10.0),
        (None, "replay", "kernel", [2, 1, 1], None, 0.5, 2.5),
        (None, "replay", "kernel", [2, 1, 1], None, 0.5, 2.5),
    ]
    assert len(rows(paper_trace(), "A08", "all", "execution")) == 15


def test_ledger_says_where_each_nanosecond_went() -> None:
    answer = rows(paper_trace(), "B01", "all", "kind", "count", "duration_ns", "share")
    assert answer[:4] == [
        ("layer", 10, 560, 560 / 597),
        ("model_only", 2, 20, 20 / 597),
        ("graph_replay", 2, 10, 10 / 597),
        ("orphan_before_window", 1, 7, 7 / 597),
    ]


def test_ledger_of_a_mean_step_says_what_is_left_out() -> None:
    answer = rows(paper_trace(), "B01", None, "kind", "count", "duration_ns")
    assert answer[:5] == [
        ("layer", 5.0, 280.0),
        ("model_only", 1.0, 10.0),
        ("graph_replay", 1.0, 5.0),
        ("outside_steps", 1.0, 7.0),
        ("not_in_every_step", 2.0, 5.0),
    ]
    assert answer[5][0] == "no_counters"


def test_ledger_of_each_step_gives_the_places_per_step() -> None:
    answer = rows(paper_trace(), "B01", "each", "step", "kind", "duration_ns", "share")
    assert answer[:3] == [(1, "layer", 260, 260 / 270), (1, "model_only", 10, 10 / 270), (2, "layer", 300, 300 / 320)]


def test_module_tree_gives_forward_by_call_and_backward_by_twin() -> None:
    # Forward of Net_0: gemm 180 + 220, add 20 + 20. Backward of Linear_0 was launched outside of every module.
    columns = ("module_path", "phase", "count", "host_ns", "device_sum_ns", "self_device_sum_ns", "activity_count")
    assert rows(paper_trace(), "B06", "all", *columns) == [
        ("Net_0", "forward", 2, 1580, 440, 0, 8),
        ("Net_0", "backward", 2, None, 120, 0, 2),
        ("Net_0.Linear_0", "forward", 2, 400, 280, 280, 4),
        ("Net_0.Linear_0", "backward", 2, None, 120, 120, 2),
        ("Net_0.Block_0", "forward", 2, 740, 160, 40, 4),
        ("Net_0.Block_0.Linear_1", "forward", 2, 400, 120, 120, 2),
    ]
    mean = rows(paper_trace(), "B06", None, *columns)
    assert mean[0] == ("Net_0", "forward", 1.0, 790.0, 220.0, 0.0, 4.0)
    assert mean[1] == ("Net_0", "backward", 1.0, None, 60.0, 0.0, 1.0)


def test_two_ranks_are_summed_and_their_latency_averaged() -> None:
    # The second rank has one step of 900, in which Linear_0 takes 100 and its gemm 40.
    hand = Hand()
    hand.run(0, batch_size=8)
    hand.run(1, batch_size=8)
    paper_run(hand, 0)
    hand.step(1, 0, 900, run_id=1)
    linear = hand.module("Net_0.Linear_0", 20, 100, 0, run_id=1, step=1)
    hand.work("gemm", 40, 40, launch=30, parent=linear, layer=linear, grid=4, run_id=1, step=1, phase="forward")
    trace = hand.build()
    mean = rows(trace, "A10", None, "kernel_name", "count", "duration_ns", "model_share")
    assert mean[0] == ("gemm", 4.0, 240.0, 240 / (1013 + 900))
    assert rows(trace, "A15", None, "model_latency_ns", "gpu_share") == [((1013 + 900) / 2, (295 + 40) / (1013 + 900))]
    answer = rows(trace, "A11", None, "layer_latency_ns", "kernel_duration_ns")
    assert answer[0] == (200.0 + 100.0, 200.0 + 40.0)


def test_provenance_says_what_the_numbers_rest_on() -> None:
    provenance = coverage.provenance(StepView.of(paper_trace()))
    assert provenance["steps"] == "mean"
    assert provenance["step_count"] == 2
    assert provenance["layer_latency_basis"] == "host"
    assert provenance["layer_latency_basis_observed"] is True
    assert provenance["levels"] == ["model", "layer", "runtime", "kernel"]
    assert provenance["sources"] == [{"file": "paper.json", "sha256": None, "format": None, "profiler": None}]


@pytest.mark.parametrize("steps", ["all", None, "each", "1"])
def test_every_column_declares_what_the_table_holds(steps: str | None) -> None:
    result = run(find("A08"), StepView.of(paper_trace(), steps))
    assert [(c.name, c.dtype) for c in result.columns] == list(result.table.schema.items())
