"""PyTorch's records of memory: snapshots as JSON and exported timelines, as counters; pickles are never opened."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError, integrity

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

__all__: list[str] = []


def _trace(folder: Path, content: object) -> Trace:
    path = folder / "memory"
    path.write_text(json.dumps(content), encoding="utf-8")
    trace = convert([path], Options())
    assert list(integrity.broken_rules(trace)) == []
    return trace


def _counters(trace: Trace) -> list[tuple[Any, ...]]:
    return trace.frame("counters").select("counter", "device_id", "time_ns", "value").rows()


def _entry(action: str, size: object, time_us: object) -> dict[str, object]:
    return {"action": action, "size": size, "time_us": time_us, "addr": 1, "stream": 0, "frames": []}


def test_a_snapshot_is_counted_back_from_its_end(tmp_path: Path) -> None:
    entries = [
        _entry("segment_alloc", 4_096, 1_000),
        _entry("alloc", 100, 1_001),
        _entry("free_requested", 30, 1_002),
        _entry("free_completed", 30, 1_003),
    ]
    segments = [{"device": 1, "total_size": 8_192, "active_size": 570, "blocks": []}]
    trace = _trace(tmp_path, {"segments": segments, "device_traces": [[], entries]})
    assert _counters(trace) == [
        ("allocated_bytes", 1, 0, 500.0),
        ("allocated_bytes", 1, 1_000, 600.0),
        ("allocated_bytes", 1, 3_000, 570.0),
        ("reserved_bytes", 1, 0, 8_192.0),
        ("reserved_bytes", 1, 1_000, 8_192.0),
        ("reserved_bytes", 1, 3_000, 8_192.0),
    ]
    assert trace.frame("runs").select("epoch_ns", "level_captured").rows() == [(1_000_000, "M")]


def test_a_snapshot_keeps_addresses_the_users_lines_and_the_largest_free_block(tmp_path: Path) -> None:
    frames = [
        {"filename": "/x/torch/nn/modules/linear.py", "line": 3, "name": "forward"},
        {"filename": "/home/somebody/net.py", "line": 12, "name": "forward"},
        {"filename": "??", "line": 0, "name": "clone(at::Tensor)"},
    ]
    entries = [
        _entry("alloc", 100, 1_001) | {"addr": 4_096, "frames": frames},
        _entry("alloc", 50, 1_002) | {"addr": 0, "frames": None},
        _entry("free_completed", 100, 1_003) | {"addr": 4_096},
    ]
    blocks = [
        {"size": 50, "state": "active_allocated"},
        {"size": 30, "state": "inactive"},
        {"size": 70, "state": "inactive"},
    ]
    segments = [{"device": 0, "total_size": 150, "active_size": 50, "blocks": blocks}]
    trace = _trace(tmp_path, {"segments": segments, "device_traces": [entries]})
    columns = ("time_ns", "bytes", "address", "allocated_bytes", "source_lines")
    assert trace.frame("allocations").select(columns).rows() == [
        (0, 100, 4_096, 100, "net.py:12 forward"),
        (1_000, 50, None, 150, None),
        (2_000, -100, 4_096, 50, None),
    ]
    assert ("largest_free_block_bytes", 0, 2_000, 70.0) in _counters(trace)


def test_segments_of_devices_that_64_bits_do_not_number_are_no_devices(tmp_path: Path) -> None:
    segments = [
        {"device": 2**64 - 1, "total_size": 150, "active_size": 50, "blocks": [{"size": 9, "state": "inactive"}]}
    ]
    trace = _trace(tmp_path, {"segments": segments, "device_traces": [[_entry("alloc", 100, 1_001)]]})
    assert {device for _, device, _, _ in _counters(trace)} == {0}


def test_a_timeline_keeps_its_categories(tmp_path: Path) -> None:
    # 512 bytes of weights are there before; 64 become an activation in the moment in which they come.
    events = [[-1, 1, 512, 0], [2_000, 2, 64, 3], [2_000, 3, -64, 3], [2_000, 3, 64, 4], [5_000, 4, -64, 4]]
    expected = [(0, 512, "weights"), (0, 64, "activations"), (3_000, -64, "activations")]
    raw = _trace(tmp_path, events).frame("allocations")
    assert raw.select("time_ns", "bytes", pl.col("category").cast(pl.String)).rows() == expected
    begun = 1_795_177_998_539_478
    sizes = [[0, 512, 0, 0, 0, 64, 0, 0, 0], [0, 512, 0, 0, 0, 0, 0, 0, 0]]
    summed = _trace(tmp_path, [[begun, begun + 3], sizes]).frame("allocations")
    assert summed.select("time_ns", "bytes", pl.col("category").cast(pl.String)).rows() == expected


def test_a_moment_without_sizes_takes_no_room(tmp_path: Path) -> None:
    begun = 1_795_177_998_539_478
    sizes = [[0, 512, 0, 0, 0, 64, 0, 0, 0], [], [0, 256, 0, 0, 0, 64, 0, 0, 0]]
    rows = _trace(tmp_path, [[begun, begun + 1, begun + 2], sizes]).frame("allocations")
    assert rows["bytes"].to_list() == [512, 64, -256]


def test_raw_events_start_from_what_was_in_use_before(tmp_path: Path) -> None:
    events = [[-1, 1, 512, 0], [2_000, 2, 64, 3], [2_000, 3, -64, 3], [2_000, 3, 64, 4], [5_000, 4, -512, 0]]
    assert _counters(_trace(tmp_path, events)) == [
        ("allocated_bytes", None, 0, 576.0),
        ("allocated_bytes", None, 3_000, 64.0),
    ]


def test_sizes_are_summed_over_categories(tmp_path: Path) -> None:
    begun = 1_795_177_998_539_478
    timeline = [[begun, begun + 5], [[0, 10, 20], [0, 10, 0]]]
    assert _counters(_trace(tmp_path, timeline)) == [
        ("allocated_bytes", None, 0, 30.0),
        ("allocated_bytes", None, 5_000, 10.0),
    ]


def test_an_allocation_that_failed_is_told(tmp_path: Path) -> None:
    entries = [_entry("alloc", 8, 5), _entry("oom", 99, 6), _entry("alloc", -1, 7), _entry("alloc", 8, "soon")]
    trace = _trace(tmp_path, {"segments": [], "device_traces": [[*entries, _entry("alloc", 2**63, 8)]]})
    assert trace.frame("ledger").select("kind", "count").rows() == [("out_of_memory", 1), ("unusable_memory_event", 3)]


class _Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("1/0",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_recognised_and_never_opened(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "dump_snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": _Trap(), "device_traces": []}, protocol=protocol))
    with pytest.raises(XspError, match=r"a pickle, which XSP never opens.* json\.dump"):
        convert([path], Options())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"segments": [', "cut off"),
        ('{"segments": [], "device_traces": [[', "cut off"),
        ('{"segments": [7]}', "not as its tool writes it"),
        ('{"segments": []}', "no history with times"),
        ("[[-1, 1, 512, 0]]", "holds no events"),
        ("[[-1, 1, 512, 0], [2", "cut off"),
        ("[[-1, 1, 512, 0], [2, 1, 5]]", "holds no events"),
        ("[[-1, 1, 512, 0], " + "[" * 90_000, "nested"),
        ('{"segments": [], "x": ' + "[" * 90_000, "nested"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "memory"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(XspError) as refused:
        convert([path], Options())
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.torch
def test_a_timeline_has_the_times_of_the_trace_it_was_taken_with(fixtures_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = fixtures_dir / "make" / "torch_traces_program.py"
    subprocess.run([sys.executable, "-W", "ignore", str(program), "memory", str(tmp_path)], check=True, timeout=300)
    both = convert([tmp_path / "trace.json", tmp_path / "timeline.raw.json.gz"], Options()).frame("counters")
    by_run = [both.filter(pl.col("run_id") == run, pl.col("counter") == "allocated_bytes") for run in range(2)]
    assert by_run[1].height > 20
    assert set(by_run[1]["time_ns"]) <= set(by_run[0]["time_ns"])  # to the ns, on one clock
    sizes = convert([tmp_path / "timeline.json"], Options()).frame("counters")
    assert sizes["value"][-1] == by_run[1]["value"][-1]
