"""Samples of the GPUs' state: joined by Unix time and device to the runs beside which they were taken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_run
from xsp_model import Trace, XspError

if TYPE_CHECKING:
    from pathlib import Path

_EPOCH_NS = 1_795_132_800_000_000_000
_HEADER = {"format": "xsp nvml samples", "version": 1, "devices": [{"device": 0, "name": "Made-up GPU"}]}


def _samples(folder: Path, *samples: dict[str, object], end: bool = True) -> Path:
    path = folder / "nvml.jsonl"
    lines = [_HEADER, *samples, *([{"end": True, "samples": len(samples)}] if end else [])]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def _powers(*powers: float, device: int = 0, every_ns: int = 1_000_000) -> list[dict[str, object]]:
    return [{"time_ns": _EPOCH_NS + n * every_ns, "device": device, "power_w": p} for n, p in enumerate(powers)]


def _trace(folder: Path, *, device: int | None = 0) -> Path:
    """A step from 2.5 to 4.5 ms after the epoch, with a kernel of 1 ms."""
    trace = KinetoTrace(baseTimeNanoseconds=_EPOCH_NS)
    trace.step(1, 2_500_000, 2_000_000)
    trace.operator("aten::mm", 2_510_000, 50_000)
    if device is not None:
        trace.launch("gemm", 2_520_000, 3_000_000, 1_000_000, device_id=device)
    path = folder / "trace.json"
    path.write_bytes(trace.to_bytes())
    return path


def _counters(trace: Trace, counter: str = "power_w") -> list[tuple[int, int, float]]:
    """Time after the epoch, device and value."""
    epoch = trace.frame("runs")["epoch_ns"][0] - _EPOCH_NS
    rows = trace.frame("counters").filter(pl.col("counter").cast(pl.String) == counter).sort("time_ns")
    return list(rows.select(pl.col("time_ns") + epoch, "device_id", "value").iter_rows())


def _ledger(trace: Trace) -> dict[str, int]:
    return dict(trace.frame("ledger").select(pl.col("kind").cast(pl.String), "count").iter_rows())


def test_samples_of_the_runs_time_and_one_on_each_side_join_it(tmp_path: Path) -> None:
    files = [_trace(tmp_path), _samples(tmp_path, *_powers(10, 20, 30, 40, 50, 60, 70))]
    trace = convert(files, Options())
    assert trace.table("runs").num_rows == 1
    assert _counters(trace) == [(2_000_000, 0, 30), (3_000_000, 0, 40), (4_000_000, 0, 50), (5_000_000, 0, 60)]
    assert _ledger(trace)["nvml_joined"] == 2


def test_energy_of_a_step_is_power_times_time(tmp_path: Path) -> None:
    # 2.5 to 4.5 ms at a power that rises evenly from 35 to 55 W: 2 ms at 45 W.
    trace = convert([_trace(tmp_path), _samples(tmp_path, *_powers(10, 20, 30, 40, 50, 60, 70))], Options())
    model = run(find("B14"), StepView.of(trace)).table.row(0, named=True)
    assert model["energy_j"] == pytest.approx(0.002 * 45)
    assert model["covered_share"] == 1


def test_a_shift_of_all_times_changes_nothing(tmp_path: Path) -> None:
    files = [_trace(tmp_path), _samples(tmp_path, *_powers(10, 20, 30, 40, 50, 60, 70))]
    before = convert(files, Options()).frame("counters")
    later = KinetoTrace(baseTimeNanoseconds=_EPOCH_NS)
    later.step(1, 1_002_500_000, 2_000_000)
    later.operator("aten::mm", 1_002_510_000, 50_000)
    later.launch("gemm", 1_002_520_000, 1_003_000_000, 1_000_000)
    files[0].write_bytes(later.to_bytes())
    shifted = [
        {**s, "time_ns": _EPOCH_NS + 1_000_000_000 + n * 1_000_000} for n, s in enumerate(_powers(*range(10, 80, 10)))
    ]
    _samples(tmp_path, *shifted)
    assert convert(files, Options()).frame("counters").equals(before)


def test_gpus_that_the_run_did_not_use_are_left_out_and_counted(tmp_path: Path) -> None:
    both = [*_powers(10, 20, 30, 40, 50), *_powers(1, 2, 3, 4, 5, device=1)]
    trace = convert([_trace(tmp_path, device=1), _samples(tmp_path, *both)], Options())
    assert {device for _, device, _ in _counters(trace)} == {1}
    assert _ledger(trace)["gpu_not_used"] == 1


def test_of_a_run_without_device_work_every_gpu_is_taken(tmp_path: Path) -> None:
    both = [*_powers(10, 20, 30, 40, 50), *_powers(1, 2, 3, 4, 5, device=1)]
    trace = convert([_trace(tmp_path, device=None), _samples(tmp_path, *both)], Options())
    assert {device for _, device, _ in _counters(trace)} == {0, 1}
    assert "gpu_not_used" not in _ledger(trace)


def test_energy_counts_from_the_first_sample_and_reasons_are_series(tmp_path: Path) -> None:
    rows = _powers(10, 20, 30)
    for n, row in enumerate(rows):
        row |= {"energy_j": 5000 + n, "throttle": ["gpu_idle", "sw_power_cap"] if n == 1 else []}
    trace = convert([_samples(tmp_path, *rows)], Options())
    assert [value for _, _, value in _counters(trace, "energy_j")] == [0, 1, 2]
    assert [value for _, _, value in _counters(trace, "throttle_sw_power_cap")] == [0, 1, 0]
    assert _counters(trace, "throttle_gpu_idle") == []


def test_lines_that_are_no_samples_are_counted(tmp_path: Path) -> None:
    path = _samples(tmp_path, *_powers(10, 20), {"time_ns": -5, "device": 0}, {"device": 0}, end=False)
    path.write_text(path.read_text() + "not JSON\n")
    assert _ledger(convert([path], Options())) == {"bad_line": 3, "no_end": 1}


def test_samples_of_another_time_are_refused(tmp_path: Path) -> None:
    late = [{**s, "time_ns": _EPOCH_NS + 10**12} for s in _powers(10)]
    with pytest.raises(XspError, match="were not taken while these lasted"):
        convert([_trace(tmp_path), _samples(tmp_path, *late)], Options())


def test_a_file_that_ends_inside_a_line_is_refused(tmp_path: Path) -> None:
    path = _samples(tmp_path, *_powers(10, 20), end=False)
    path.write_text(path.read_text()[:-5])
    with pytest.raises(XspError, match="cut off: its last line is no whole sample"):
        convert([path], Options())


def test_a_run_that_does_not_know_its_time_is_refused(tmp_path: Path, fixtures_dir: Path) -> None:
    counted = fixtures_dir / "ncu_csv" / "raw_page" / "ncu.csv"
    with pytest.raises(XspError, match="cannot be placed: no file given with them says at which Unix time"):
        convert([counted, _samples(tmp_path, *_powers(10))], Options())


def test_run_json_lists_the_samples(tmp_path: Path) -> None:
    _trace(tmp_path)
    _samples(tmp_path, *_powers(10, 20, 30, 40, 50))
    files = [{"path": "trace.json", "format": "torch_profiler"}, {"path": "nvml.jsonl", "format": "nvml_samples"}]
    facts = {"schema_version": 1, "level": "MLG", "model": {"name": "m"}, "framework": {"name": "pytorch"}}
    (tmp_path / "run.json").write_text(
        json.dumps({**facts, "batch_size": 1, "device": {"name": "Made-up GPU"}, "steps": 1, "files": files})
    )
    assert len(_counters(read_run(tmp_path / "run.json", Options()))) == 3


def test_a_run_without_a_profiler_may_have_samples_alone(tmp_path: Path) -> None:
    _samples(tmp_path, *_powers(10, 20, 30))
    facts = {"schema_version": 1, "level": "M", "model": {"name": "m"}, "framework": {"name": "pytorch"}}
    files = [{"path": "nvml.jsonl", "format": "nvml_samples"}]
    described = {**facts, "batch_size": 1, "device": {"name": "Made-up GPU"}, "steps": 1, "files": files}
    (tmp_path / "run.json").write_text(json.dumps({**described, "step_durations_ns": [2_000_000]}))
    trace = read_run(tmp_path / "run.json", Options())
    assert [value for _, _, value in _counters(trace)] == [10, 20, 30]
    assert trace.table("step_times").num_rows == 1


def test_lines_that_nest_too_deep_are_no_samples(tmp_path: Path) -> None:
    path = _samples(tmp_path, *_powers(100.0, 110.0))
    head, rest = path.read_bytes().split(b"\n", maxsplit=1)
    path.write_bytes(head + b'\n{"time_ns": ' + b"[" * 100_000 + b"\n" + rest)
    assert len(_counters(convert([path], Options()))) == 2
