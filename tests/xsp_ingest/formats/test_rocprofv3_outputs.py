"""rocprofv3's database and Perfetto trace say of a run what its JSON says; its counters become metrics of kernels."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.synth_pftrace import Perfetto, pftrace
from tests.helpers.synth_rocpd import GUID, rocpd
from tests.helpers.synth_rocprof import PROCESS, RocprofRun
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.rocprofv3 import ROCPROFV3
from xsp_ingest.ingester import Options, claimants_of
from xsp_ingest.registry import all_ingesters
from xsp_model import XspError, integrity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from xsp_model import Trace

__all__: list[str] = []

_TABLES = ("spans", "kernels", "copies", "ranges", "layers", "metrics", "devices")


def _trace(folder: Path, files: Mapping[str, bytes]) -> Trace:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    trace = convert([folder], Options())
    assert list(integrity.broken_rules(trace)) == []
    return trace


def _run() -> RocprofRun:
    run = RocprofRun()
    run.call(500, 90_000, "fc", 1, "MARKER_CORE_RANGE_API")
    run.launch(1_000, "_Z3addPKfS0_Pf.kd", 2, (20_000, 30_000), gpu=1)
    run.copy(10_000, "HOST_TO_DEVICE", 3, (16_000, 18_000))
    run.call(50_000, 60_000, "ncclAllReduce", 4, "RCCL_API")
    run.launch(70_000, "gemm", 5, (75_000, 85_000))
    run.copy(86_000, "DEVICE_TO_HOST", 6, (87_000, 88_000))
    return run


def _rows(trace: Trace, table: str) -> list[dict[str, Any]]:
    frame = trace.frame(table)
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String)).drop("run_id", strict=False).rows(named=True)


def _same(one: Trace, other: Trace, *, tables: tuple[str, ...] = _TABLES) -> None:
    for table in tables:
        assert _rows(one, table) == _rows(other, table), table


@pytest.mark.parametrize("by_tracks", [False, True])
def test_the_database_says_what_the_json_says(tmp_path: Path, *, by_tracks: bool) -> None:
    run = _run()
    run.count(1, FETCH_SIZE=3.0, SQ_WAVES=[1.0, 2.0])
    database = _trace(tmp_path / "a", {"7_results.db": rocpd(run, by_tracks=by_tracks)})
    _same(_trace(tmp_path / "b", {"7_results.json": run.json()}), database)
    assert [row["name"] for row in _rows(database, "spans") if row["level"] == "layer"] == ["fc"]


@pytest.mark.parametrize("older", [False, True])
def test_the_perfetto_trace_has_the_spans_of_csv_without_a_list_of_agents(tmp_path: Path, *, older: bool) -> None:
    run = _run()
    tables = {name: content for name, content in run.tables().items() if "agent_info" not in name}
    perfetto, csv = _trace(tmp_path / "a", {"x.pftrace": pftrace(run, older=older)}), _trace(tmp_path / "b", tables)
    for one, other in zip(_rows(perfetto, "spans"), _rows(csv, "spans"), strict=True):
        unsaid = {"thread_id": None} if one["level"] == "kernel" else {}
        assert one | unsaid == other
    kernels = perfetto.frame("kernels")
    assert kernels["shared_bytes"].to_list() == [1_024, 1_024]
    assert kernels["registers_per_thread"].to_list() == ([None] * 2 if older else [32, 32])
    assert kernels["grid_x"].to_list() == [None, None]  # a product of sizes is not a size
    devices = {(row["name"], row["device_id"]) for row in _rows(perfetto, "spans") if row["kind"] == "memcpy"}
    assert devices == {("[HIP memcpy Host-to-Device]", 1), ("[HIP memcpy Device-to-Host]", 1)}


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 1),
            st.sampled_from(["gemm", "_Z3addPKfS0_Pf.kd", "void f<int>(float*)"]),
            st.integers(1, 4_000),
        ),
        max_size=8,
    )
)
@settings(max_examples=5, deadline=None)
def test_all_outputs_of_a_run_are_one_trace(tmp_path_factory: pytest.TempPathFactory, what: list[Any]) -> None:
    run = RocprofRun()
    run.call(0, 1_000_000, "step 0", 1, "MARKER_CORE_API")
    for n, (kind, gpu, name, duration) in enumerate(what):
        at, correlation = 20_000 * (n + 1), 10 + n
        if kind == 0:
            run.copy(
                at, "DEVICE_TO_HOST" if gpu else "HOST_TO_DEVICE", correlation, (at + 6_000, at + 6_000 + duration)
            )
        elif kind == 1:
            run.call(at, at + duration, "ncclAllReduce", correlation, "RCCL_API")
        else:
            run.launch(at, name, correlation, (at + 6_000, at + 6_000 + duration), gpu)
            if kind == 3:
                run.count(len(run.kernels), FETCH_SIZE=duration / 4, SQ_INSTS_VALU_MFMA_MOPS_F16=[1.0, duration])
    folder = tmp_path_factory.mktemp("outputs")
    document = _trace(folder / "json", {"r.json": run.json()})
    _same(document, _trace(folder / "db", {"r.db": rocpd(run)}))
    _same(document, _trace(folder / "tracks", {"r.db": rocpd(run, by_tracks=True)}))
    csv = _trace(folder / "csv", run.tables())
    assert _of(csv) == _of(document)
    _same(document, csv, tables=("kernels", "ranges", "layers", "metrics"))
    perfetto = _trace(folder / "perfetto", {"r.pftrace": pftrace(run)})
    assert _of(perfetto, first_gpu=1) == _of(document)
    _same(document, perfetto, tables=("copies", "ranges", "layers", "metrics"))


def _of(trace: Trace, *, first_gpu: int = 0) -> list[tuple[object, ...]]:
    """What every output says of spans; a thread of device work is not in CSV."""
    columns = ("span_id", "parent_id", "name", "level", "kind", "start_ns", "duration_ns", "process_id", "attribution")
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    device = pl.col("device_id") - first_gpu
    return spans.select(*columns, "stream_id", "correlation_id", device).rows()


def test_files_of_one_run_in_several_outputs_are_read_once(tmp_path: Path) -> None:
    run = _run()
    files = {
        "7_results.json": run.json(),
        "7_results.db": rocpd(run),
        "7_results.pftrace": pftrace(run),
        **run.tables(),
    }
    trace = _trace(tmp_path, files)
    _same(trace, _trace(tmp_path / "one", {"7_results.json": run.json()}), tables=("spans",))
    ledger = {row["kind"]: (row["count"], row["detail"]) for row in _rows(trace, "ledger")}
    assert ledger["same_run_again"] == (len(files) - 1, "7_results.json was read")


def test_each_process_of_a_merged_database_is_a_run(tmp_path: Path) -> None:
    trace = _trace(tmp_path, {"merged.db": rocpd(_run(), guids=(GUID, GUID[::-1]))})
    spans = trace.frame("spans")
    assert trace.frame("runs").height == 2
    assert spans.group_by("run_id").len()["len"].to_list() == [10, 10]


def test_gpus_of_the_database_are_numbered_among_gpus(tmp_path: Path) -> None:
    devices = _trace(tmp_path, {"r.db": rocpd(_run())}).frame("devices")
    assert devices.select("device_id", "name", "multiprocessor_count", "clock_hz").rows() == [
        (n, "AMD Instinct MI300X (synthetic)", 304, 2_100_000_000) for n in range(2)
    ]


@pytest.mark.parametrize("by_tracks", [False, True])
def test_a_mark_without_duration_is_read(tmp_path: Path, *, by_tracks: bool) -> None:
    run = _run()
    run.call(65_000, 65_000, "here", 9, "MARKER_CORE_API")
    trace = _trace(tmp_path, {"r.db": rocpd(run, by_tracks=by_tracks)})
    marks = [row for row in _rows(trace, "spans") if row["name"] == "here"]
    assert [(row["start_ns"], row["duration_ns"], row["thread_id"]) for row in marks] == [
        (64_500, 0, PROCESS)
    ]  # the trace begins at 500


def test_counters_are_metrics_of_kernels_by_the_formulas_of_the_documentation(tmp_path: Path) -> None:
    run = _run()
    run.count(1, FETCH_SIZE=1.5, WRITE_SIZE=2.0, L2CacheHit=75.0)
    valu = {f"SQ_INSTS_VALU_{kind}_F32": value for kind, value in (("ADD", 1.0), ("MUL", [1.0, 1.0]), ("FMA", 3.0))}
    run.count(2, **valu, SQ_INSTS_VALU_MFMA_MOPS_F32=1.0, SQ_INSTS_VALU_MFMA_MOPS_BF16=[4.0, 6.0])
    expected = {
        ("add(float const*, float const*, float*)", "dram_read_bytes"): (1_536.0, "byte"),
        ("add(float const*, float const*, float*)", "dram_write_bytes"): (2_048.0, "byte"),
        ("add(float const*, float const*, float*)", "l2_hit_rate"): (0.75, "1"),
        ("gemm", "flop_count_sp"): (64 * (1 + 2 + 2 * 3) + 512.0, "flop"),
        ("gemm", "flop_count_tensor_bf16"): (5_120.0, "flop"),
    }
    for name, content in {"r.json": run.json(), "r.db": rocpd(run), "r.pftrace": pftrace(run)}.items():
        trace = _trace(tmp_path / name, {name: content})
        names = dict(trace.frame("spans").select("span_id", pl.col("name").cast(pl.String)).rows())
        metrics = {
            (names[row["span_id"]], row["metric"]): (row["value"], row["unit"])
            for row in _rows(trace, "metrics")
            if row["source"] == "rocprofv3, derived"
        }
        assert metrics == expected


def test_dispatches_that_were_only_counted_are_kernels(tmp_path: Path) -> None:
    run = _run()
    run.count(1, SQ_WAVES=2.0)
    run.count(2, SQ_WAVES=[3.0, 4.0])
    counted = _trace(tmp_path / "a", {"r.json": run.json(traced=False)})
    document = _trace(tmp_path / "b", {"r.json": run.json()})
    _same(document, counted)
    values = [(row["metric"], row["value"], row["source"]) for row in _rows(counted, "metrics")]
    assert values == [("SQ_WAVES", 2.0, "rocprofv3"), ("SQ_WAVES", 7.0, "rocprofv3")]
    table = run.tables()["7_counter_collection.csv"]
    alone = _trace(tmp_path / "c", {"7_counter_collection.csv": table})
    assert [row["duration_ns"] for row in _rows(alone, "spans")] == [10_000, 10_000]
    assert [row["value"] for row in _rows(alone, "metrics")] == [2.0, 7.0]


def test_counters_of_no_dispatch_are_counted(tmp_path: Path) -> None:
    run = _run()
    run.count(2, SQ_WAVES=[3.0, 4.0])
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(rocpd(run))
        connection.execute(f"UPDATE rocpd_pmc_event_{GUID} SET event_id = 900")  # noqa: S608
        connection.commit()
        content = connection.serialize()
    trace = _trace(tmp_path, {"r.db": content})
    assert trace.frame("metrics").is_empty()
    assert {row["kind"]: row["count"] for row in _rows(trace, "ledger")}["counters_of_no_kernel"] == 1


def test_the_files_are_known_by_their_content(tmp_path: Path) -> None:
    for name, content in {"a": rocpd(_run()), "b": pftrace(_run()), "c": gzip.compress(pftrace(_run()))}.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert [i.name for i in claimants_of(Probe(path), all_ingesters())] == ["rocprofv3"]


def test_perfetto_traces_of_other_tools_are_ranges_of_those(tmp_path: Path) -> None:
    other = Perfetto()
    other.begin(1)
    other.slice("rendering", "frame", 7, (1, 2), tid=3, corr_id=4)
    path = tmp_path / "t.pftrace"
    path.write_bytes(other.data)
    assert not ROCPROFV3.sniff(Probe(path))
    trace = convert([path], Options())
    assert trace.frame("spans")["name"].cast(str).to_list() == ["frame"]
    assert "unknown_tool" in trace.frame("ledger")["kind"].to_list()


def test_the_older_database_named_rocpd_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "trace.rpd"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE rocpd_api (id INTEGER, pid INTEGER, start INTEGER, end INTEGER)")
        connection.execute("CREATE TABLE rocpd_op (id INTEGER, gpuId INTEGER, start INTEGER, end INTEGER)")
    with pytest.raises(XspError, match="rocmProfileData"):
        convert([path], Options())


def test_slices_that_are_not_read_and_gaps_are_counted(tmp_path: Path) -> None:
    more = Perfetto(data=pftrace(_run()))
    more.slice("kfd_events", "migrate", 7, (1, 2))
    more.data += b"\x0a\x05\xd0\x02\x01\x50\x01"  # a packet of sequence 1 in front of which some were dropped
    trace = _trace(tmp_path, {"r.pftrace": more.data})
    ledger = {row["kind"]: row["count"] for row in _rows(trace, "ledger")}
    assert (ledger["records_not_read"], ledger["dropped_records"]) == (1, 1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (pftrace(_run())[:-7], "cut off"),
        (pftrace(_run()) + b"\xff\xff", "damaged: no packet at byte"),
        (pftrace(_run()) + b"\x0a\x03\x5a\x09\x01", "damaged: no sound packet at byte"),
        (rocpd(_run())[:-5_000], "damaged"),
        (rocpd(RocprofRun()), "holds no kernel"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "r"
    path.write_bytes(content)
    with pytest.raises(XspError, match=says):
        convert([path], Options(), format_name="rocprofv3")
