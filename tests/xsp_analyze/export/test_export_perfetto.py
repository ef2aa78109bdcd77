"""Perfetto export, decoded by protobuf from the schema's field numbers, and walked by our own reader of such files.

Perfetto's trace_processor is a program that its Python package downloads when first used; tests must not need a
network. What it does with slices (events of a track in order of time; an end closes what began last) is done here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from fixtures.make.catalog import CASES
from tests.helpers.exported import small, with_texts, written
from tests.helpers.fixture_cases import SOUND, FixtureCase, trace_of
from xsp_analyze.trace.timed_runs import without_captures
from xsp_ingest.convert import convert
from xsp_ingest.files.protobuf import Messages
from xsp_ingest.formats.rocprofv3.perfetto import Slices
from xsp_ingest.ingester import Options
from xsp_model import TraceBuilder
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from xsp_model import Trace

_SCHEMA = Messages(
    "xsp.test.perfetto",
    {
        "Trace": {"packet": (1, "Packet*")},
        "Packet": {
            "clocks": (6, "Snapshot"),
            "timestamp": (8, "uint64"),
            "sequence": (10, "uint64"),
            "event": (11, "Event"),
            "interned": (12, "Interned"),
            "flags": (13, "uint64"),
            "track": (60, "Track"),
        },
        "Snapshot": {"clocks": (1, "Clock*"), "primary": (2, "int32")},
        "Clock": {"id": (1, "uint64"), "timestamp": (2, "uint64")},
        "Event": {
            "categories": (3, "uint64*"),
            "annotations": (4, "Annotation*"),
            "type": (9, "int32"),
            "name": (10, "uint64"),
            "track": (11, "uint64"),
            "value": (44, "double"),
            "tails": (47, "fixed64*"),
            "heads": (48, "fixed64*"),
        },
        "Annotation": {
            "key": (1, "uint64"),
            "bool": (2, "bool?"),
            "int": (4, "int64?"),
            "double": (5, "double?"),
            "plain": (6, "string?"),
            "text": (17, "uint64?"),
        },
        "Interned": {"categories": (1, "Text*"), "names": (2, "Text*"), "keys": (3, "Text*"), "texts": (29, "Text*")},
        "Text": {"iid": (1, "uint64"), "text": (2, "string")},
        "Track": {
            "uuid": (1, "uint64"),
            "name": (2, "string"),
            "process": (3, "Process"),
            "thread": (4, "Thread"),
            "parent": (5, "uint64"),
            "counter": (8, "Counter"),
        },
        "Process": {"pid": (1, "int32"), "name": (6, "string")},
        "Thread": {"pid": (1, "int32"), "tid": (2, "int64"), "name": (5, "string")},
        "Counter": {"unit": (6, "string")},
    },
)
_BEGIN, _END, _COUNTER = 1, 2, 4
_ONE_OF_EACH_FORMAT = list({case.name.split("/")[0]: case for case in SOUND}.values())


@dataclass
class _Slice:
    """A slice as a reader of the format sees it."""

    track: str
    category: str
    name: str
    start_ns: int
    details: dict[str, Any]
    tails: list[int]
    heads: list[int]
    duration_ns: int | None = None

    @property
    def is_derived(self) -> bool:
        return self.category.endswith("of device work")


@dataclass
class _Decoded:
    tracks: dict[int, Any] = field(default_factory=dict)
    slices: list[_Slice] = field(default_factory=list)
    counts: list[tuple[str, str, int, float]] = field(default_factory=list)
    clocks: dict[int, int] = field(default_factory=dict)

    @property
    def own(self) -> list[_Slice]:
        return [one for one in self.slices if not one.is_derived]


def _decoded(data: bytes) -> _Decoded:
    """What the trace holds; fails on events of tracks and on numbers of texts that nothing said before."""
    read, tables = _Decoded(), defaultdict[str, dict[int, str]](dict)
    events = []
    for packet in _SCHEMA.of("Trace").FromString(data).packet:
        assert packet.sequence == 1
        read.clocks.update((clock.id, clock.timestamp) for clock in packet.clocks.clocks)
        for table in ("categories", "names", "keys", "texts"):
            for one in getattr(packet.interned, table):
                assert tables[table].setdefault(one.iid, one.text) == one.text
        if packet.HasField("track"):
            assert packet.track.uuid not in read.tracks
            assert packet.track.parent in {0, *read.tracks}
            read.tracks[packet.track.uuid] = packet.track
        if packet.HasField("event"):
            assert packet.event.track in read.tracks
            events.append((packet.timestamp, packet.event, _begun(packet, read, tables)))
    _replay(events, read)
    return read


def _begun(packet: Any, read: _Decoded, tables: Mapping[str, dict[int, str]]) -> _Slice | None:  # noqa: ANN401
    event = packet.event
    if event.type != _BEGIN:
        return None
    details = {tables["keys"][a.key]: _value(a, tables["texts"]) for a in event.annotations}
    (category,) = (tables["categories"][iid] for iid in event.categories)
    track, name = read.tracks[event.track].name, tables["names"][event.name]
    return _Slice(track, category, name, packet.timestamp, details, list(event.tails), list(event.heads))


def _value(annotation: Any, texts: Mapping[int, str]) -> object:  # noqa: ANN401
    kind = annotation.WhichOneof("value")
    return texts[annotation.text] if kind == "text" else getattr(annotation, kind)


def _replay(events: list[tuple[int, Any, _Slice | None]], read: _Decoded) -> None:
    running: dict[int, list[_Slice]] = defaultdict(list)
    for time, event, begun in sorted(events, key=lambda one: one[0]):
        if begun is not None:
            running[event.track].append(begun)
            read.slices.append(begun)
        elif event.type == _END:
            last = running[event.track].pop()
            last.duration_ns = time - last.start_ns
        else:
            assert event.type == _COUNTER
            track = read.tracks[event.track]
            read.counts.append((track.name, track.counter.unit, time, event.value))


def _read(trace: Trace, folder: Path) -> _Decoded:
    return _decoded(written(trace, "perfetto", folder).read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("case", _ONE_OF_EACH_FORMAT, ids=lambda case: case.name)
def test_every_span_of_any_format_is_a_slice_of_its_exact_times(case: FixtureCase, tmp_path: Path) -> None:
    trace = trace_of(case)
    read = _read(trace, tmp_path)
    spans = without_captures(trace, trace.scan("spans")).select("span_id", "start_ns", "duration_ns").collect()
    shift = max(0, -min([*spans["start_ns"], *trace.frame("counters")["time_ns"], 0]))
    assert sorted((one.details["span"], one.start_ns - shift, one.duration_ns) for one in read.own) == spans.rows()
    tails, heads = (Counter(flow for one in read.slices for flow in getattr(one, end)) for end in ("tails", "heads"))
    assert tails == heads
    assert set(tails.values()) <= {1}
    assert len(read.counts) == trace.frame("counters").height


def test_tracks_arrows_and_what_is_known(tmp_path: Path) -> None:
    read = _read(small(tmp_path), tmp_path)
    names = {uuid: track.name for uuid, track in read.tracks.items()}
    tree = {(names.get(track.parent, ""), track.name) for track in read.tracks.values()}
    assert tree == {
        *(("", "process 100"), ("", "thread 100"), ("", "thread 200"), ("", 'device 0 (Device "0")')),
        *(('device 0 (Device "0")', f"stream 7{what}") for what in ("", ", layers", ", operators")),
        *(('device 0 (Device "0")', name) for name in ("allocated_bytes", "reserved_bytes")),
    }
    assert {(t.thread.pid, t.thread.tid) for t in read.tracks.values() if t.thread.pid} == {(100, 100), (100, 200)}
    (gemm,) = (one for one in read.own if one.name == "gemm<float>")
    assert (gemm.track, gemm.category, gemm.start_ns, gemm.duration_ns) == ("stream 7", "kernel", 150_003, 70_007)
    assert (gemm.details["layer"], gemm.details["step"], gemm.details["grid"]) == ("Linear_0", 1, "[4, 2, 1]")
    tail = {flow: one for one in read.own for flow in one.tails}
    arrows = {(tail[flow].name, tail[flow].start_ns, one.name) for one in read.own for flow in one.heads}
    backward = "autograd::engine::evaluate_function: AddmmBackward0"
    assert arrows == {
        ("cudaLaunchKernel", 40_000, "gemm<float>"),
        ("cudaLaunchKernel", 310_000, "gemm_backward"),
        ("cudaMemcpyAsync", 1_100_000, "Memcpy HtoD (Pinned -> Device)"),
        ("aten::linear", 30_000, backward),
    }
    assert read.counts == [
        ("allocated_bytes", "byte", 35_000, 4096.0),
        ("reserved_bytes", "byte", 35_000, 8192.0),
    ]


def test_layers_and_operators_stand_over_their_work_on_the_device(tmp_path: Path) -> None:
    read = _read(small(tmp_path), tmp_path)
    backward = "autograd::engine::evaluate_function: AddmmBackward0"
    stretches = {
        (s.track, s.name, s.start_ns, s.duration_ns, s.details["device sum ns"]) for s in read.slices if s.is_derived
    }
    assert stretches == {
        ("stream 7, layers", "Linear_0", 150_003, 450_000 - 150_003, 120_007),  # both of its kernels in a row
        ("stream 7, operators", "aten::linear", 150_003, 70_007, 70_007),
        ("stream 7, operators", backward, 400_000, 50_000, 50_000),
    }


def test_time_0_is_the_unix_time_of_the_traces_start(tmp_path: Path) -> None:
    trace = small(tmp_path)
    assert _read(trace, tmp_path).clocks == {6: 0, 1: trace.frame("runs")["epoch_ns"][0]}


def _with_spans(trace: Trace, change: pl.Expr) -> Trace:
    builder = TraceBuilder()
    for name in TABLES:
        frame = trace.frame(name)
        builder.add(name, frame.with_columns(change) if name == "spans" else frame)
    return builder.build()


def test_what_does_not_nest_goes_to_a_further_track(tmp_path: Path) -> None:
    of_linear = pl.col("name").cast(pl.String) == "aten::linear"
    longer = pl.when(of_linear).then(pl.lit(150_000)).otherwise(pl.col("duration_ns")).alias("duration_ns")
    read = _read(_with_spans(small(tmp_path), longer), tmp_path)
    (linear,) = (one for one in read.own if one.name == "aten::linear")
    assert (linear.track, linear.duration_ns) == ("thread 100 (2)", 150_000)
    (module,) = (one for one in read.own if one.name == "nn.Module: Linear_0")
    assert (module.track, module.duration_ns) == ("thread 100", 100_000)


def test_what_was_never_closed_has_no_end_and_takes_none_from_others(tmp_path: Path) -> None:
    of_linear = pl.col("name").cast(pl.String) == "aten::linear"
    trace = _with_spans(small(tmp_path), pl.when(~of_linear).then(pl.col("duration_ns")).alias("duration_ns"))
    slices = {one.details["span"]: one.duration_ns for one in _read(trace, tmp_path).own}
    assert slices == dict(trace.frame("spans").select("span_id", "duration_ns").rows())
    assert list(slices.values()).count(None) == 1


def test_names_of_any_kind_come_through(tmp_path: Path) -> None:
    (case,) = (c for c in CASES if c.path == "torch_profiler/odd_names")
    path = tmp_path / "odd.json"
    path.write_bytes(case.files()["trace.json"])
    trace = convert([path], Options())
    kernels = with_texts(trace.frame("spans")).filter(pl.col("kind") == "kernel")
    assert Counter(s.name for s in _read(trace, tmp_path).own if s.category == "kernel") == Counter(kernels["name"])


def test_our_own_reader_of_perfettos_packets_walks_it(tmp_path: Path) -> None:
    path = written(small(tmp_path), "perfetto", tmp_path)
    slices = Slices(path)
    assert list(slices.of(path.read_bytes())) == []  # none is rocprofv3's
    assert (slices.other, slices.gaps, slices.process) == (len(_decoded(path.read_bytes()).slices), 0, 100)
