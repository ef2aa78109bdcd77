"""OTLP export: what the encoding asks of spans, and the way back, exact to the nanosecond."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.exported import small, with_texts, written
from tests.helpers.fixture_cases import SOUND, FixtureCase, trace_of
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_SAME = ("spans", "layers", "operators", "ranges", "kernels", "copies", "metrics", "devices")
_OF_RUN = (
    "run_id",
    "rank",
    "profiler",
    "framework",
    "model",
    "batch_size",
    "layer_source",
    "epoch_ns",
    "clock_origin_ns",
)
_NOT_IN_IT = ("memory_snapshot", "nvml_samples", "compiled_code", "torch_trace_log")  # no spans; a compiler's notes
_ONE_OF_EACH = {c.name.split("/")[0]: c for c in SOUND if not c.name.startswith(_NOT_IN_IT)}


def _assert_same(trace: Trace, folder: Path) -> None:
    after = convert([written(trace, "otlp", folder)], Options())
    for name in _SAME:
        assert with_texts(after.frame(name)).equals(with_texts(trace.frame(name))), name
    assert after.frame("runs").select(_OF_RUN).equals(trace.frame("runs").select(_OF_RUN))
    assert after.frame("runs")["format"].unique().to_list() == ["otlp"]


def test_a_trace_comes_back_as_it_was(tmp_path: Path) -> None:
    _assert_same(small(tmp_path), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", _ONE_OF_EACH.values(), ids=lambda case: case.name)
def test_a_trace_of_any_format_comes_back_as_it_was(case: FixtureCase, tmp_path: Path) -> None:
    _assert_same(trace_of(case), tmp_path)


def _spans(trace: Trace, folder: Path) -> list[dict[str, Any]]:
    document = json.loads(written(trace, "otlp", folder).read_bytes())
    (resource,) = document["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    spans: list[dict[str, Any]] = scope["spans"]
    return spans


def test_ids_times_and_kinds_are_as_the_encoding_has_them(tmp_path: Path) -> None:
    trace = small(tmp_path)
    spans = _spans(trace, tmp_path)
    epoch = trace.frame("runs")["epoch_ns"][0]
    by_id = {span["spanId"]: span for span in spans}
    assert len(by_id) == trace.row_count
    assert {len(span["traceId"]) for span in spans} == {32}
    assert {len(span["spanId"]) for span in spans} == {16}
    (gemm,) = (span for span in spans if span["name"] == "gemm<float>")
    assert gemm["startTimeUnixNano"] == str(epoch + 150_003)
    assert gemm["endTimeUnixNano"] == str(epoch + 220_010)
    assert by_id[gemm["parentSpanId"]]["name"] == "cudaLaunchKernel"
    assert Counter(span["kind"] for span in spans) == {1: len(spans) - 7, 4: 3, 5: 4}  # one kernel has no launch
    values = {pair["key"]: pair["value"] for pair in gemm["attributes"]}
    assert values["grid_x"] == {"intValue": "4"}
    assert values["level"] == {"stringValue": "kernel"}
