"""Delays that AI-PEP measures: the net's and its operators' are runs of their own, and two files are an A/B."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from xsp_analyze.catalog import find
from xsp_analyze.compare.comparison import compare
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import Trace, XspError

if TYPE_CHECKING:
    from pathlib import Path


def _line(kind: str, value: object, unit: str = "ms", metric: str = "latency", observer: str = "Caffe2") -> str:
    entry = {"type": kind, "metric": metric, "unit": unit, "value": str(value)}
    return f"I0101 net_observer.cc:1] {observer}Observer {json.dumps(entry)}\n"


def _log(path: Path, *lines: str) -> Trace:
    path.write_text("".join(lines))
    return convert([path], Options())


def _measured(path: Path, convolution_ms: float) -> Trace:
    net = [_line("NET", 2 + convolution_ms + n / 100) for n in range(6)]
    operators = [
        line
        for n in range(6)
        for line in (_line("ID_0_Conv_c", convolution_ms + n / 100), _line("ID_1_FC_f", 1 + n / 100))
    ]
    return _log(path, *net, *operators)


def _ledger(trace: Trace) -> dict[str, int]:
    rows = trace.frame("ledger").select(pl.col("kind").cast(pl.String), "count")
    return dict(rows.group_by("kind").agg(pl.col("count").sum()).iter_rows())


def test_model_latency_is_the_nets_and_no_sum_of_operators(tmp_path: Path) -> None:
    trace = _measured(tmp_path / "a.log", 3.0)
    frames = StepView.of(trace)
    assert trace.frame("runs")["role"].to_list() == ["model", "layers"]
    assert run(find("A01"), frames).table["median_ns"][0] == pytest.approx(5_025_000)
    layers = run(find("A02"), frames).table
    assert layers.select("layer_name", "layer_type").rows() == [("0_Conv_c", "Conv"), ("1_FC_f", "FC")]
    assert layers["latency_ns"].to_list() == pytest.approx([3_025_000, 1_025_000])


def test_two_files_are_an_a_b_of_net_and_operators(tmp_path: Path) -> None:
    sides = [[StepView.of(_measured(tmp_path / f"{ms}.log", ms))] for ms in (3.0, 4.0)]
    comparison = compare(*sides)
    assert comparison.latency.ratio == pytest.approx(6.025 / 5.025)
    changes = {row.name: row.difference_ns for row in comparison.level("layer")}
    assert changes == {"0_Conv_c": pytest.approx(1_000_000), "1_FC_f": pytest.approx(0)}


def test_a_report_is_read_as_its_lines_are(tmp_path: Path) -> None:
    entry = {"type": "NET", "metric": "latency", "unit": "us", "values": [1000, 2000.5]}
    report = {"data": {"NET latency": entry}, "meta": {"net_name": "squeezenet", "framework": "caffe2"}}
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    trace = convert([path], Options())
    assert trace.frame("spans")["duration_ns"].to_list() == [1_000_000, 2_000_500]
    assert trace.frame("runs").select("model", "framework", "role").row(0) == ("squeezenet", "caffe2", None)


def test_what_is_no_delay_is_counted(tmp_path: Path) -> None:
    lines = [
        _line("NET", 1, observer="PyTorch"),
        _line("NET", 5e6, unit="flop", metric="flops"),
        _line("NET", "much"),
        _line("NET", -1),
        _line("odd", 1),
        _line("NET", 1, unit="fortnight"),
        'Caffe2Observer {"NET": {"latency": {"value": "1", "unit": "ms"}}}\n',
        'Caffe2Observer {"type": "NET", }\n',
    ]
    ledger = _ledger(_log(tmp_path / "a.log", *lines))
    assert (ledger["bad_line"], ledger["summary_left_out"]) == (6, 1)


def test_a_log_without_a_delay_is_refused(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="no delay of a net"):
        _log(tmp_path / "a.log", _line("NET", 1, metric="flops"))
