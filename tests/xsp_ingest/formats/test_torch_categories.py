"""Every category of a Kineto file is read, or counted in the ledger; hardware counters are read as time series."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.linked import converted, ledger_counts
from tests.helpers.synth import PROCESS, KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.formats.torch_profiler import scan_plain
from xsp_ingest.formats.torch_profiler.compiled import scanner as compiled
from xsp_ingest.formats.torch_profiler.shape import shape
from xsp_ingest.formats.torch_profiler.streamed import documents
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_DRAM, _BYTES = "dram__throughput.avg.pct_of_peak_sustained_elapsed", "dram__bytes_read.sum"


def sound() -> KinetoTrace:
    kineto = KinetoTrace()
    kineto.operator("aten::linear", 1_000, 50_000)
    return kineto


def left_out(trace: Trace) -> list[tuple[str, str, int]]:
    """The ledger's rows on categories."""
    rows = trace.frame("ledger").filter(pl.col("kind").is_in(["unknown_category", "events_left_out"]))
    return sorted(rows.select("kind", "detail", "count").rows())


@pytest.mark.parametrize("phase", ["X", "C", "i", "I", "R", "b", "n", "e", "s", "t", "f", "O", "v", ""])
def test_an_invented_category_is_counted_whatever_its_phase(phase: str, tmp_path: Path) -> None:
    kineto = sound()
    for at in range(3):
        kineto.raw(ph=phase, cat="invented", name="x", pid=1, tid=1, ts=at, dur=1, id=at)
    of_phase = "" if phase == "X" else f" (ph {phase})"
    detail = f"events{of_phase} of the unknown category 'invented' were not read"
    assert left_out(converted(kineto, tmp_path)) == [("unknown_category", detail, 3)]


def test_arrows_that_are_not_kept_are_counted_by_category(tmp_path: Path) -> None:
    kineto = sound()
    kineto.launch("gemm", 2_000, 60_000, 500)  # with its arrow: two events
    for category in ("async_cpu_to_gpu", "async"):
        kineto.raw(ph="s", cat=category, name="x", pid=1, tid=1, ts=1, id=7)
    why = "they restate which call launched what"
    assert left_out(converted(kineto, tmp_path)) == [
        ("events_left_out", f"`ac2g` events were not read: {why}", 2),
        ("events_left_out", f"`async_cpu_to_gpu` events were not read: {why}", 1),
        ("events_left_out", f"`async` events were not read: {why}", 1),
    ]


def test_every_scanner_counts_the_same_arrows(tmp_path: Path) -> None:
    kineto = sound()
    for n in range(5):
        kineto.launch("gemm", 2_000 + 10_000 * n, 60_000 + 1_000 * n, 500)
    path = kineto.write(tmp_path / "trace.json")
    counts = {"ac2g": 10}
    assert dict(scan_plain.scan(path).unread_flows) == counts
    assert [dict(d.unread_flows) for d in compiled.documents(path, 1 << 10)][-1] == counts
    assert [dict(d.unread_flows) for d in documents(path, 1 << 10)][-1] == counts


def test_what_is_read_and_the_window_s_own_marks_are_not_counted(tmp_path: Path) -> None:
    kineto = sound()
    kineto.backward_flow(1_000, 30_000, backward_thread=100)
    kineto.memory(2_000, 64, allocated=64, reserved=128)
    kineto.raw(ph="M", name="process_name", pid=1, tid=0, args={"name": "python"})
    kineto.raw(ph="i", s="g", name="Record Window End", pid="", tid="", ts=90_000)
    kineto.raw(ph="i", s="g", name="Iteration Start: PyTorch Profiler", pid="Traces", tid="Trace", ts=0)
    assert left_out(converted(kineto, tmp_path)) == []


def test_blocks_keep_their_address_and_the_operator_that_ran(tmp_path: Path) -> None:
    kineto = sound()
    kineto.operator("aten::empty", 1_500, 2_000)
    kineto.memory(2_000, 64, allocated=64, reserved=128)
    kineto.memory(70_000, -64, allocated=0, reserved=128)
    trace = converted(kineto, tmp_path)
    first, second = trace.frame("allocations").to_dicts()
    names = trace.frame("spans")["name"].cast(str).to_list()
    assert names[first["owner_id"]] == "aten::empty"
    assert (first["bytes"], second["bytes"], second["allocated_bytes"], second["reserved_bytes"]) == (64, -64, 0, 128)
    assert first["address"] == second["address"] == 140_000_000_000_000


def test_memory_without_a_category_is_read_as_torch_1_9_wrote_it(tmp_path: Path) -> None:
    kineto = sound()
    args = {"Device Type": 1, "Device Id": 0, "Bytes": 512}
    kineto.module("Linear_0", 900, 60_000)
    kineto.raw(ph="i", s="t", name="[memory]", pid=100, tid=100, ts=2_000, args=args)
    trace = converted(kineto, tmp_path)
    assert trace.frame("layers")["allocated_bytes"].to_list() == [512]
    assert left_out(trace) == []


def counting() -> KinetoTrace:
    """Two samples of a device and one of another, as CUPTI's sampling in Kineto writes them."""
    kineto = sound()
    for at, device, share, read in ((10_000, 0, 12.5, 4096), (20_500, 0, 50, 0), (10_000, 1, 7.25, 1e3)):
        args = {_DRAM: share, _BYTES: read}
        kineto.raw(ph="C", cat="hardware_counters", name="CUPTI PM Sampling", pid=device, tid=0, ts=at, args=args)
    return kineto


SAMPLES = [  # time 0 is the operator's start
    (_BYTES, 0, 9_000, 4096.0, "byte"),
    (_BYTES, 0, 19_500, 0.0, "byte"),
    (_BYTES, 1, 9_000, 1000.0, "byte"),
    (_DRAM, 0, 9_000, 0.125, "share"),
    (_DRAM, 0, 19_500, 0.5, "share"),
    (_DRAM, 1, 9_000, 0.0725, "share"),
]


def rows(trace: Trace) -> list[tuple[object, ...]]:
    """The table `counters`."""
    table = trace.frame("counters").with_columns(pl.col("counter", "unit").cast(pl.String))
    return table.select("counter", "device_id", "time_ns", "value", "unit").rows()


def test_hardware_counters_are_time_series(tmp_path: Path) -> None:
    trace = converted(counting(), tmp_path)
    assert rows(trace) == SAMPLES
    assert left_out(trace) == []


def test_hardware_counters_with_their_keys_in_another_order_too(tmp_path: Path) -> None:
    kineto = counting()
    kineto.events = [dict(reversed(event.items())) for event in kineto.events]
    assert rows(converted(kineto, tmp_path)) == SAMPLES


def test_samples_without_time_or_value_are_counted(tmp_path: Path) -> None:
    kineto = counting()
    sample = {"ph": "C", "cat": "hardware_counters", "name": "CUPTI PM Sampling", "pid": 0, "tid": 0}
    kineto.raw(**sample, args={_DRAM: 1.0})
    kineto.raw(**sample, ts=5, args={_DRAM: "much", _BYTES: None})
    kineto.raw(**sample, ts=5)
    trace = converted(kineto, tmp_path)
    assert rows(trace) == SAMPLES
    assert ledger_counts(trace)["gpu_metric_unusable"] == 4


def test_counters_of_another_category_are_counted(tmp_path: Path) -> None:
    kineto = sound()
    kineto.raw(ph="C", cat="temperature", name="x", pid=0, tid=0, ts=5, args={"celsius": 40})
    kineto.raw(ph="C", name="x", pid=0, tid=0, ts=5, args={"celsius": 40})
    assert left_out(converted(kineto, tmp_path)) == [
        ("unknown_category", "events (ph C) of the unknown category 'temperature' were not read", 1),
        ("unknown_category", "events (ph C) of the unknown category None were not read", 1),
    ]


def test_a_file_in_pieces_counts_as_one(tmp_path: Path) -> None:
    path = counting().write(tmp_path / "trace.json")
    raw = shape(documents(path, 2), path, Options())
    assert raw.tables["counters"].height == len(SAMPLES)


def test_a_counter_may_have_the_event_s_name_and_the_device_the_process_s(tmp_path: Path) -> None:
    kineto = sound()
    kineto.raw(ph="C", cat="hardware_counters", name=_DRAM, pid="GPU 3 Counters", ts=1_500, args={"": 10.0})
    counters = converted(kineto, tmp_path).frame("counters").filter(pl.col("device_id") == 3)
    assert counters.select(pl.col("counter").cast(pl.String), "value").rows() == [(_DRAM, 0.1)]


def test_overhead_is_read_and_explains_idle_time(tmp_path: Path) -> None:
    # Launched at 10 us, a kernel in [12, 20); the next is launched at 100, and begins at 101. Of the 81 us between them
    # code is loaded for 40, the profiler asks for a buffer for 15, 25 are the host's, 1 the launch's.
    kineto = KinetoTrace()
    kineto.launch("a", 10_000, 12_000, 8_000)
    kineto.raw(ph="X", cat="overhead", name="Lazy Function Loading", pid=-1, tid=0, ts=30_000, dur=40_000)
    kineto.raw(ph="X", cat="overhead", name="Activity Buffer Request", pid=-1, tid=0, ts=75_000, dur=15_000)
    kineto.launch("a", 100_000, 101_000, 8_000)
    trace = converted(kineto, tmp_path)
    assert not [row for row in left_out(trace) if "overhead" in row[1]]
    assert trace.frame("spans")["process_id"].unique().to_list() == [PROCESS]
    table = run(find("B03"), StepView.of(trace)).table
    causes = table.select("idle_initialisation_ns", "idle_profiler_ns", "idle_host_ns", "idle_launch_ns").row(0)
    assert causes == (40_000 + 2_000, 15_000, 25_000, 1_000)  # and 2 us before the first work
