"""Chrome export against the documented trace event format, and back through our own reader of such files.

Perfetto's trace_processor is a program that its Python package downloads when first used; tests must not need a
network, so the format's rules are checked instead.
"""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl

from fixtures.make.catalog import CASES
from tests.helpers.exported import small, with_texts, written
from tests.helpers.fixture_cases import SOUND, FixtureCase, every, trace_of
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import TraceBuilder
from xsp_model.limits import override_limits
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace

_FULL_CPU = "torch_profiler/transformer_train_gpu_synthetic"


def _events(trace: Trace, folder: Path) -> list[dict[str, Any]]:
    document = json.loads(written(trace, "chrome", folder).read_bytes(), parse_float=Decimal)
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def _check(events: Sequence[dict[str, Any]]) -> None:
    """What the format asks of every event and of pairs of them."""
    for event in events:
        assert event["ph"] in {"X", "B", "b", "e", "M", "s", "f", "C"}
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["ts"], Decimal | int)
        assert event["ph"] != "X" or event["dur"] >= 0
        assert event["ph"] == "M" or event["ph"] == "C" or isinstance(event["cat"], str)
        assert event["ph"] != "f" or event["bp"] == "e"
    for tail, head in (("s", "f"), ("b", "e")):
        ends = {ph: Counter((e["cat"], e["id"]) for e in events if e["ph"] == ph) for ph in (tail, head)}
        assert ends[tail] == ends[head]
        assert set(ends[tail].values()) <= {1}
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in {"X", "B", "s", "f"}} <= named
    assert {e["pid"] for e in events} == {e["pid"] for e in events if e["name"] == "process_name"}


@every(SOUND)
def test_every_fixture_keeps_the_format(case: FixtureCase, tmp_path: Path) -> None:
    events = _events(trace_of(case), tmp_path)
    _check(events)
    assert sum(e["ph"] in {"X", "B", "b"} for e in events) == trace_of(case).row_count


@every(SOUND)
def test_times_are_exact(case: FixtureCase, tmp_path: Path) -> None:
    times = sorted(
        (int(e["ts"] * 1000), int(e["dur"] * 1000)) for e in _events(trace_of(case), tmp_path) if e["ph"] == "X"
    )
    away = trace_of(case).frame("ranges")
    crossing = away.filter((pl.col("style") == "StartEnd") | pl.col("end_thread_id").is_not_null())
    spans = trace_of(case).frame("spans").join(crossing, on="span_id", how="anti").drop_nulls("duration_ns")
    assert times == sorted(spans.select("start_ns", "duration_ns").rows())


def test_tracks_flows_and_arguments(tmp_path: Path) -> None:
    events = _events(small(tmp_path), tmp_path)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {(100, 100): "thread 100", (100, 200): "thread 200", (0, 7): "stream 7"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {100: "process 100", 0: 'device 0 (Device "0")'}
    (gemm,) = (e for e in events if e["name"] == "gemm<float>")
    assert (gemm["cat"], gemm["pid"], gemm["tid"], gemm["ts"], gemm["dur"]) == (
        *("kernel", 0, 7),
        *(Decimal("150.003"), Decimal("70.007")),
    )
    assert gemm["args"]["grid"] == [4, 2, 1]
    assert (gemm["args"]["layer"], gemm["args"]["phase"], gemm["args"]["step"]) == ("Linear_0", "forward", 1)
    tails = {(e["cat"], e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "s"}
    assert tails == {
        ("ac2g", 100, 100, Decimal("40.000")),
        ("ac2g", 100, 200, Decimal("310.000")),
        ("ac2g", 100, 100, Decimal("1100.000")),
        ("fwdbwd", 100, 100, Decimal("30.000")),
    }
    assert {e["args"]["byte"] for e in events if e["ph"] == "C"} == {4096, 8192}


def _innermost(events: Sequence[dict[str, Any]], at: dict[str, Any]) -> dict[str, Any]:
    """The slice that a viewer binds the end of an arrow to: of its track the one around its time that began last."""
    track, time = (at["pid"], at["tid"]), at["ts"]
    slices = (e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == track)
    around = [e for e in slices if e["ts"] <= time <= e["ts"] + e["dur"]]
    return max(around, key=lambda e: (e["ts"], -e["dur"]))


def test_arrows_of_launches_bind_to_the_call_and_to_its_work(tmp_path: Path) -> None:
    (case,) = (c for c in SOUND if c.name == "torch_profiler/transformer_train_a100_synthetic")
    events = _events(trace_of(case), tmp_path)
    tails, heads = ({e["id"]: e for e in events if e["ph"] == ph and e["cat"] == "ac2g"} for ph in "sf")
    launched = (
        trace_of(case).frame("spans").filter(pl.col("attribution").is_not_null(), pl.col("parent_id").is_not_null())
    )
    assert len(tails) == launched.height > 100
    for number, tail in list(tails.items())[:200]:
        call, work = _innermost(events, tail), _innermost(events, heads[number])
        assert call["cat"] in {"cuda_runtime", "cuda_driver"}
        assert work["cat"] in {"kernel", "gpu_memcpy", "gpu_memset"}
        assert call["args"]["correlation"] == work["args"]["correlation"]
        assert tail["ts"] <= heads[number]["ts"]
        assert heads[number]["bp"] == "e"


def test_processes_and_devices_of_several_ranks_do_not_mix(tmp_path: Path) -> None:
    (case,) = (c for c in SOUND if c.name == "torch_profiler/two_ranks")
    events = _events(trace_of(case), tmp_path)
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert len(set(names)) == len(names)
    assert {name.split(":")[0] for name in names} == {"rank 0", "rank 1"}


def test_what_was_never_closed_begins_only(tmp_path: Path) -> None:
    trace = small(tmp_path)
    builder = TraceBuilder()
    for name in TABLES:
        frame = trace.frame(name)
        if name == "spans":
            is_linear = pl.col("name").cast(pl.String) == "aten::linear"
            frame = frame.with_columns(pl.when(~is_linear).then(pl.col("duration_ns")).alias("duration_ns"))
        builder.add(name, frame)
    (event,) = (e for e in _events(builder.build(), tmp_path) if e["name"] == "aten::linear")
    assert event["ph"] == "B"
    assert "dur" not in event


def test_a_torch_trace_reads_back_through_its_own_reader(tmp_path: Path) -> None:
    (case,) = (c for c in SOUND if c.name == _FULL_CPU)
    trace = trace_of(case)
    after = convert([written(trace, "chrome", tmp_path)], Options(), format_name="torch_profiler")
    columns = ["name", "level", "kind", "start_ns", "duration_ns", "step", "phase", "attribution", "parent_id"]
    on_device = pl.col("level") == "kernel"
    before, again = (with_texts(t.frame("spans")).filter(on_device).select(columns[:-1]) for t in (trace, after))
    assert again.equals(before)
    assert _by_layer(after) == _by_layer(trace)


def _by_layer(trace: Trace) -> dict[str, int]:
    names = trace.frame("layers").select(pl.col("span_id").alias("layer_id"), pl.col("layer_name").cast(pl.String))
    work = trace.frame("spans").join(names, on="layer_id").filter(pl.col("attribution").is_not_null())
    return dict(work.group_by("layer_name").agg(pl.col("duration_ns").sum()).rows())


def test_names_and_arguments_of_any_kind_are_escaped(tmp_path: Path) -> None:
    (case,) = (c for c in CASES if c.path == "torch_profiler/odd_names")
    path = tmp_path / "odd.json"
    path.write_bytes(case.files()["trace.json"])
    trace = convert([path], Options())
    names = Counter(e["name"] for e in _events(trace, tmp_path) if e["ph"] == "X" and e["cat"] == "kernel")
    kernels = with_texts(trace.frame("spans")).filter(pl.col("kind") == "kernel")
    assert names == Counter(kernels["name"])


def test_pieces_do_not_show(tmp_path: Path) -> None:
    trace = small(tmp_path)
    at_once = {target: written(trace, target, tmp_path).read_bytes() for target in ("chrome", "jaeger")}
    with override_limits(exported_piece_spans=3):
        assert {target: written(trace, target, tmp_path).read_bytes() for target in at_once} == at_once
