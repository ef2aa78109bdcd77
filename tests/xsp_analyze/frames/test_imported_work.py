"""Work that the trace's metrics give: before our own models, and no counter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.work_metrics import two_operators, with_metrics, work_of
from xsp_analyze.frames.kernels.activities import are_known
from xsp_analyze.frames.operators.operator_calls import imported_work, metric_of
from xsp_analyze.needs import holds
from xsp_analyze.trace.step_view import StepView
from xsp_analyze.trace.trace_view import TraceView

if TYPE_CHECKING:
    from pathlib import Path


def test_work_that_is_given_goes_before_what_our_models_tell(tmp_path: Path) -> None:
    trace = with_metrics(two_operators(tmp_path), "aten::mm", {"modelled_flop": 10, "modelled_read_bytes": 3})
    assert work_of(trace) == [("aten::mm", 2, 20.0, None, 12_000, 1.0), ("my::op", 1, None, None, 2_000, 0.0)]


def test_an_operator_that_no_model_knows_counts_with_what_is_given_for_all_inside_it(tmp_path: Path) -> None:
    metrics = {"modelled_read_bytes": 100, "modelled_written_bytes": 20}
    assert work_of(with_metrics(two_operators(tmp_path), "my::op", metrics)) == [
        ("my::op", 1, None, 120.0, 10_000, 1.0),
        ("aten::mm", 1, 140.0, 4 * (10 + 35 + 14), 4_000, 1.0),
    ]


def test_a_precision_stands_in_the_name_of_the_metric_and_the_first_source_decides(tmp_path: Path) -> None:
    assert metric_of("flop", "bf16") == "modelled_flop_bf16"
    assert metric_of("flop") == "modelled_flop"
    trace = with_metrics(two_operators(tmp_path), "my::op", {"modelled_flop_bf16": 7, "modelled_bus_bytes": 5})
    trace = with_metrics(trace, "my::op", {"modelled_vector_flop": 9}, source="modelled by Z")
    rows = imported_work(trace).drop("span_id").rows(named=True)
    assert rows == [
        {
            "flop": 7.0,
            "vector_flop": None,
            "read_bytes": None,
            "written_bytes": None,
            "bus_bytes": 5.0,
            "precision": "bf16",
            "operator_class": None,
        }
    ]


def test_what_is_given_is_no_counter(tmp_path: Path) -> None:
    frames = StepView.of(with_metrics(two_operators(tmp_path), "my::op", {"modelled_flop": 7}))
    assert not holds(frames.of_trace, "metrics")
    assert not are_known(frames.of_trace.all_activities)
    trace = with_metrics(two_operators(tmp_path), "my::op", {"flop_count_sp": 7}, source="measured by a test")
    assert imported_work(trace).is_empty()
    assert holds(TraceView(trace), "metrics")
