"""Samples of the machine: joined by Unix time to the runs beside which they were taken, and what B37 makes of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import Trace, XspError

if TYPE_CHECKING:
    from pathlib import Path

_EPOCH_NS = 1_795_132_800_000_000_000
_S = 1_000_000_000
_HEADER = {"format": "xsp system samples", "version": 1, "memory_bytes": 1000, "network_byte_per_s": 100}


def _line(seconds: float, **values: object) -> dict[str, object]:
    return {"time_ns": _EPOCH_NS + round(seconds * _S), **values}


def _samples(folder: Path, *samples: dict[str, object], header: dict[str, Any] = _HEADER, end: bool = True) -> Path:
    path = folder / "system.jsonl"
    lines = [header, *samples, *([{"end": True, "samples": len(samples)}] if end else [])]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def _trace(folder: Path) -> Path:
    """A step from 1 to 3 s after the epoch, with a kernel of 1 s."""
    trace = KinetoTrace(baseTimeNanoseconds=_EPOCH_NS)
    trace.step(1, _S, 2 * _S)
    trace.operator("aten::mm", _S + 10, 50_000)
    trace.launch("gemm", _S + 20, _S + 1000, _S, device_id=0)
    path = folder / "trace.json"
    path.write_bytes(trace.to_bytes())
    return path


def _shares(trace: Trace) -> dict[str, dict[str, Any]]:
    return {row["resource"]: row for row in run(find("B37"), StepView.of(trace)).table.to_dicts()}


def test_shares_are_means_by_time_over_the_steps(tmp_path: Path) -> None:
    samples = [
        _line(0, memory_used_bytes=100, network_receive_bytes=0, disk_read_bytes=0),
        _line(2, memory_used_bytes=300, network_receive_bytes=20, disk_read_bytes=0, cpu_utilization=0.2, disk_busy=1),
        _line(4, memory_used_bytes=700, network_receive_bytes=120, disk_read_bytes=8, cpu_utilization=0.6, disk_busy=0),
    ]
    shares = _shares(convert([_trace(tmp_path), _samples(tmp_path, *samples)], Options()))
    # The step: half of it is of the interval before the sample at 2 s, half of the one before 4 s.
    cpu = shares["cpu"]
    assert (cpu["utilisation_share"], cpu["min_share"], cpu["max_share"]) == (pytest.approx(0.4), 0.2, 0.6)
    assert cpu["covered_share"] == 1
    assert shares["busiest disk"]["utilisation_share"] == pytest.approx(0.5)
    assert shares["network, received"]["mean_byte_per_s"] == pytest.approx((10 + 50) / 2)
    assert shares["network, receiving"]["utilisation_share"] == pytest.approx(0.3)  # of 100 bytes a second
    assert shares["disks, read"]["mean_byte_per_s"] == pytest.approx(2)  # 0, then 4
    assert shares["memory"]["utilisation_share"] == pytest.approx(0.2)  # 100 of 1000, then 300
    assert shares["gpu"]["utilisation_share"] == pytest.approx(0.5, rel=1e-3)
    assert shares["gpu"]["basis"] == "kernels recorded"


def test_a_network_of_unknown_speed_has_no_share(tmp_path: Path) -> None:
    samples = [_line(t, network_receive_bytes=10 * t) for t in (0, 2, 4)]
    header = {"format": "xsp system samples", "version": 1}
    shares = _shares(convert([_trace(tmp_path), _samples(tmp_path, *samples, header=header)], Options()))
    assert set(shares) == {"network, received", "gpu"}
    assert shares["network, received"]["utilisation_share"] is None


def test_what_samples_do_not_cover_is_said(tmp_path: Path) -> None:
    samples = [_line(t, cpu_utilization=0.5) for t in (2, 4)]
    shares = _shares(convert([_trace(tmp_path), _samples(tmp_path, *samples)], Options()))
    assert shares["cpu"]["covered_share"] == pytest.approx(0.5)  # from 2 to 3 s of the step's 1 to 3


def test_samples_of_the_runs_time_are_counted(tmp_path: Path) -> None:
    samples = [_line(t, cpu_utilization=0.5) for t in (0, 1, 2, 3, 4, 5)]
    trace = convert([_trace(tmp_path), _samples(tmp_path, *samples)], Options())
    ledger = dict(trace.frame("ledger").select(pl.col("kind").cast(pl.String), "count").iter_rows())
    assert ledger["system_joined"] == 3


def test_alone_the_file_is_a_run_without_spans(tmp_path: Path) -> None:
    trace = convert([_samples(tmp_path, _line(0), _line(1, cpu_utilization=0.25))], Options())
    assert (trace.row_count, trace.frame("runs")["profiler"].to_list()) == (0, ["/proc"])


@pytest.mark.parametrize(
    ("header", "message"),
    [({**_HEADER, "version": 2}, "version 2"), (_HEADER, "no samples of the machine")],
)
def test_a_later_version_and_an_empty_file_are_refused(tmp_path: Path, header: dict[str, Any], message: str) -> None:
    with pytest.raises(XspError, match=message):
        convert([_samples(tmp_path, header=header)], Options())


def test_lines_that_are_no_samples_are_counted(tmp_path: Path) -> None:
    samples = [_line(0, cpu_utilization=0.5), _line(1, cpu_utilization=7), _line(2, cpu_utilization=0.5)]
    trace = convert([_trace(tmp_path), _samples(tmp_path, *samples)], Options())
    ledger = dict(trace.frame("ledger").select(pl.col("kind").cast(pl.String), "count").iter_rows())
    assert ledger["bad_line"] == 1
