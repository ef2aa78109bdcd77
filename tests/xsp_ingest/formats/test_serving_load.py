"""Results of clients that load serving engines: their forms, what fails in them, and hostile ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from tests.helpers.linked import ledger_counts
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import Trace, XspError

_CASES = Path(__file__).parents[3] / "fixtures/serving_load"
_FORMS = ("vllm_synthetic", "sglang_synthetic", "aiperf_synthetic", "genai_perf_synthetic")


def _figures(trace: Trace) -> dict[str, float]:
    span = trace.frame("spans").filter(pl.col("level").cast(pl.String) == "application")["span_id"][0]
    rows = trace.frame("metrics").filter(pl.col("span_id") == span).sort("source", descending=True)
    return dict(zip(rows["metric"].cast(pl.String), rows["value"], strict=True))


def _requests(trace: Trace) -> list[int]:
    return trace.frame("spans").filter(pl.col("kind").cast(pl.String) == "step")["duration_ns"].to_list()


@pytest.mark.parametrize("form", _FORMS)
def test_every_form_of_one_test_says_the_same(form: str) -> None:
    trace = convert([_CASES / form], Options())
    figures = _figures(trace)
    assert _requests(trace) == [n * 1_000_000 for n in (108, 140, 168, 99)] or form == "sglang_synthetic"
    assert sorted(_requests(trace)) == [n * 1_000_000 for n in (99, 108, 140, 168)]
    assert figures["latency_mean_ns"] == pytest.approx(128_750_000)
    assert figures["ttft_mean_ns"] == pytest.approx(81_250_000)
    assert figures["itl_mean_ns"] == pytest.approx(11_875_000)
    assert figures["query_count"] == 4
    assert "loadgen_percentile_differs" not in ledger_counts(trace)


def test_requests_start_when_they_were_sent() -> None:
    spans = convert([_CASES / "aiperf_synthetic"], Options()).frame("spans")
    steps = spans.filter(pl.col("kind").cast(pl.String) == "step")["start_ns"]
    assert (steps - steps[0]).to_list() == [0, 10_000_000, 20_000_000, 400_000_000]


def test_either_file_of_aiperf_is_read_alone(tmp_path: Path) -> None:
    for name, requests in (("profile_export_aiperf.json", 0), ("profile_export.jsonl", 4)):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(_CASES / "aiperf_synthetic" / name, folder)
        trace = convert([folder], Options())
        assert len(_requests(trace)) == requests
        assert _figures(trace)["ttft_mean_ns"] == pytest.approx(81_250_000)


def test_a_failed_request_has_no_latency_and_is_counted() -> None:
    assert ledger_counts(convert([_CASES / "vllm_synthetic"], Options()))["loadgen_error"] == 1


def test_lines_are_tests() -> None:
    assert convert([_CASES / "sglang_synthetic"], Options()).frame("runs").height == 2


def test_statistics_of_other_requests_are_warned_of(tmp_path: Path) -> None:
    result = json.loads((_CASES / "vllm_synthetic/result.json").read_text())
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result | {"mean_e2el_ms": 500.0}))
    assert ledger_counts(convert([path], Options()))["loadgen_percentile_differs"] == 1


_HEAD = {"total_input_tokens": 1, "request_throughput": 1.0}
_HOSTILE: dict[str, dict[str, object]] = {
    "texts": {"ttfts": ["a", {}], "latencies": [None, []], "mean_ttft_ms": "fast"},
    "negative": {"latencies": [-1.0], "ttfts": [-5], "mean_e2el_ms": None},
    "huge": {"latencies": [1e300, 1e15], "mean_ttft_ms": 1e400},
    "uneven": {"latencies": [0.1, 0.2], "ttfts": [0.1]},
    "no lists": {"latencies": {"a": 1}, "errors": 3, "itls": "x"},
}


@pytest.mark.parametrize("what", _HOSTILE)
def test_what_cannot_be_used_is_left_out_or_refused(what: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**_HEAD, "completed": 1, **_HOSTILE[what]}))
    trace = convert([path], Options())  # a rate alone is a result
    assert _requests(trace) == []
    assert _figures(trace)["completed_sample_per_s"] == 1.0


def test_a_result_without_any_answer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"total_input_tokens": 0, "request_throughput": 0.0, "ttfts": [0.0], "errors": ["no"]}))
    with pytest.raises(XspError, match="neither a latency nor a request"):
        convert([path], Options())


@pytest.mark.parametrize(
    "content",
    [b'{"total_input_tokens": 1, "request_throughput": 1.0', b'{"metadata": {"request_start_ns": 1}}\n{"metadata"'],
)
def test_a_file_that_is_cut_off_says_so(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(XspError, match="is cut off"):
        convert([path], Options())


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_of_results_is_a_run_each(indent: int | None, tmp_path: Path) -> None:
    result = json.loads(next((_CASES / "vllm_synthetic").glob("*.json")).read_text())
    path = tmp_path / "summary.json"
    path.write_text(json.dumps([result, result | {"request_rate": 8.0}], indent=indent))
    assert len(convert([path], Options()).frame("runs")) == 2


@pytest.mark.parametrize(("form", "kept"), [("sglang_synthetic", 1), ("aiperf_synthetic", 4)])
def test_a_last_line_without_an_end_costs_itself(form: str, kept: int, tmp_path: Path) -> None:
    lines = next((_CASES / form).glob("*.jsonl")).read_text().splitlines()
    lines = lines[:1] * 2 if form == "sglang_synthetic" else lines
    (tmp_path / "result.jsonl").write_text("\n".join([*lines[:-1], lines[-1][:200]]))
    trace = convert([tmp_path / "result.jsonl"], Options())
    assert ledger_counts(trace)["cut_off_json"] == 1
    counts = trace.frame("runs").height if form == "sglang_synthetic" else len(_requests(trace))
    assert counts == kept
