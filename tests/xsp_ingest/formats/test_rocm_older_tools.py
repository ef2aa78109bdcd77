"""rocmProfileData's database and JSON, and the first rocprof's JSON: device work, calls, and which issued which."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError, integrity

if TYPE_CHECKING:
    from pathlib import Path

_HOST = 4242


def _rows(path: Path) -> list[tuple[object, ...]]:
    trace = convert([path], Options())
    assert list(integrity.broken_rules(trace)) == []
    assert trace.frame("runs")["profiler"].cast(pl.String).to_list() == [_tool(path)]
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String)).sort("start_ns", "span_id")
    names = dict(spans.select("span_id", "name").iter_rows())
    columns = ("level", "kind", "name", "start_ns", "duration_ns", "process_id", "device_id", "stream_id")
    return [(*(row[column] for column in columns), names.get(row["parent_id"])) for row in spans.iter_rows(named=True)]


def _tool(path: Path) -> str:
    return "rocprof" if path.name == "results.json" else "rocmProfileData (RPD)"


def _events(*, decimals: bool) -> list[dict[str, Any]]:
    """A copy that its call waits for, a marker, two kernels of one launch, one of a call of under 2 us."""

    def event(lane: tuple[int, int], name: str, start: float, length: float, what: str) -> dict[str, Any]:
        times = {"ts": str(start), "dur": str(length)} if decimals else {"ts": str(int(start)), "dur": str(int(length))}
        return {"pid": str(lane[0]), "tid": str(lane[1]), "name": name, **times, "ph": "X", "args": {"desc": what}}

    def arrow(number: int, begin: float, end: float) -> list[dict[str, Any]]:
        both = {"cat": "api_op", "name": "api_op", "id": str(number)}
        first, last = (str(time if decimals else int(time)) for time in (begin, end))
        host = {"pid": str(_HOST), "tid": "7", **both, "ts": first, "ph": "s"}
        return [host, {"pid": "2", "tid": "0", **both, "ts": last, "ph": "f", "bp": "e"}]

    gpu, host = (2, 0), (_HOST, 7)
    return [
        {},
        {"name": "process_name", "ph": "M", "pid": "2", "args": {"name": "GPU2"}},
        {"name": "thread_name", "ph": "M", "pid": str(_HOST), "tid": "7", "args": {"name": "Hip 7"}},
        event(gpu, "CopyHostToDevice", 1010, 80, "CopyHostToDevice"),
        event(gpu, "gemm", 1150, 30, "KernelExecution"),
        event(gpu, "gemm", 1150, 20, "KernelExecution"),
        event(gpu, "FillBuffer", 1200, 5, "FillBuffer"),
        event(gpu, "fc", 1149, 32, "UserMarker frame: 2 ops"),
        event(host, "hipMemcpy", 1000, 100, "size=0x10"),
        event(host, "fc", 1105, 40, "fc"),
        event(host, "hipGraphLaunch", 1110, 25, "stream=0x0"),
        event(host, "hipFree", 1150, 30.5, "ptr=0x10"),
        event(host, "hipMemsetAsync", 1181, 1.5, "ptr=0x20"),
        event(host, "OpTable::writeRows", 1300, 9, "count=4"),
        *arrow(1, 1010, 1010),
        *arrow(2, 1133, 1150),
        *arrow(3, 1133, 1150),
        *arrow(4, 1180.5, 1200),
        {"pid": "2", "name": "Idle", "ph": "C", "ts": 1001, "args": {"idle": 0}},
    ]


def _expected() -> list[tuple[object, ...]]:
    at, on = (_HOST, None, None), (_HOST, 2, 0)
    return [
        ("runtime", "call", "hipMemcpy", 0, 100_000, *at, None),
        ("kernel", "memcpy", "[HIP memcpy Host-to-Device]", 10_000, 80_000, *on, "hipMemcpy"),
        ("layer", "range", "fc", 105_000, 40_000, *at, None),
        ("runtime", "call", "hipGraphLaunch", 110_000, 25_000, *at, "fc"),
        ("runtime", "call", "hipFree", 150_000, 30_500, *at, None),
        ("kernel", "kernel", "gemm", 150_000, 30_000, *on, "hipGraphLaunch"),
        ("kernel", "kernel", "gemm", 150_000, 20_000, *on, "hipGraphLaunch"),
        ("runtime", "call", "hipMemsetAsync", 181_000, 1_500, *at, None),
        ("kernel", "kernel", "FillBuffer", 200_000, 5_000, *on, "hipMemsetAsync"),
        ("library", "call", "OpTable::writeRows", 300_000, 9_000, *at, None),
    ]


@pytest.mark.parametrize("as_object", [False, True])
def test_rpd_json_holds_work_of_the_device_and_what_issued_it(tmp_path: Path, *, as_object: bool) -> None:
    lines = "[ {}\n" + "".join(f",{json.dumps(event)}\n" for event in _events(decimals=True)[1:]) + "]"
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": ' + lines + "}" if as_object else lines, encoding="utf-8")
    assert sorted(_rows(path), key=str) == sorted(_expected(), key=str)
    assert {"events_left_out": 1}.items() <= dict(
        convert([path], Options()).frame("ledger").select(pl.col("kind").cast(pl.String), "count").iter_rows()
    ).items()


def test_times_in_whole_microseconds_find_their_calls(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(_events(decimals=False)).encode()))
    by_work = {row[2]: row[-1] for row in _rows(path) if row[0] == "kernel"}
    assert by_work == {
        "[HIP memcpy Host-to-Device]": "hipMemcpy", "gemm": "hipGraphLaunch", "FillBuffer": "hipMemsetAsync",
    }  # fmt: skip


def _database(path: Path) -> None:
    texts = ["", "hipMemcpy", "UserMarker", "hipGraphLaunch", "hipFree", "hipMemsetAsync", "OpTable::writeRows",
             "CopyHostToDevice", "KernelExecution", "FillBuffer", "gemm", "fc"]  # fmt: skip
    number = {text: n for n, text in enumerate(texts, start=1)}
    calls = [("hipMemcpy", 1_000_000, 1_100_000), ("UserMarker", 1_105_000, 1_145_000),
             ("hipGraphLaunch", 1_110_000, 1_135_000), ("hipFree", 1_150_000, 1_180_500),
             ("hipMemsetAsync", 1_181_000, 1_182_500), ("OpTable::writeRows", 1_300_000, 1_309_000)]  # fmt: skip
    work = [("CopyHostToDevice", "", 1_010_000, 1_090_000, 1), ("KernelExecution", "gemm", 1_150_000, 1_180_000, 3),
            ("KernelExecution", "gemm", 1_150_000, 1_170_000, 3),
            ("FillBuffer", "", 1_200_000, 1_205_000, 5)]  # fmt: skip
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE rocpd_string (id integer PRIMARY KEY, string varchar(4096));"
            "CREATE TABLE rocpd_api (id integer PRIMARY KEY, pid integer, tid integer, start integer, end integer,"
            " apiName_id integer, args_id integer);"
            "CREATE TABLE rocpd_op (id integer PRIMARY KEY, gpuId integer, queueId integer, start integer, end integer,"
            " description_id integer, opType_id integer);"
            "CREATE TABLE rocpd_copyapi (api_ptr_id integer PRIMARY KEY, size integer);"
            "CREATE TABLE rocpd_api_ops (id integer PRIMARY KEY, api_id integer, op_id integer);"
        )
        connection.executemany("INSERT INTO rocpd_string VALUES (?, ?)", [(n, text) for text, n in number.items()])
        for n, (name, start, end) in enumerate(calls, start=1):
            says = number["fc"] if name == "UserMarker" else number[""]
            connection.execute(
                "INSERT INTO rocpd_api VALUES (?, ?, 7, ?, ?, ?, ?)", (n, _HOST, start, end, number[name], says)
            )
        for n, (kind, name, start, end, call) in enumerate(work, start=1):
            row = (n, start, end, number[name], number[kind])
            connection.execute("INSERT INTO rocpd_op VALUES (?, 2, 0, ?, ?, ?, ?)", row)
            connection.execute("INSERT INTO rocpd_api_ops VALUES (?, ?, ?)", (n, call, n))
        connection.execute("INSERT INTO rocpd_copyapi VALUES (1, 65536)")
        connection.commit()


def test_rpd_s_database_says_what_its_json_says(tmp_path: Path) -> None:
    path = tmp_path / "trace.rpd"
    _database(path)
    assert sorted(_rows(path), key=str) == sorted(_expected(), key=str)
    assert convert([path], Options()).frame("copies")["bytes"].to_list() == [65_536]


def test_a_compressed_database_says_to_decompress_it(tmp_path: Path) -> None:
    plain, path = tmp_path / "plain.rpd", tmp_path / "trace.rpd.gz"
    _database(plain)
    path.write_bytes(gzip.compress(plain.read_bytes()))
    with pytest.raises(XspError, match=r"compressed with gzip[^\n]*gunzip"):
        convert([path], Options())


def test_the_first_rocprof_s_copies_and_kernels_are_device_work(tmp_path: Path) -> None:
    def event(lane: int, thread: int, name: str, begin: int, end: int, **where: str) -> dict[str, Any]:
        times = {"ts": str(begin // 1000), "dur": str((end - begin) // 1000)}
        args = {"BeginNs": str(begin), "EndNs": str(end), "pid": "19", "tid": "19", **where}
        return {"ph": "X", "name": name, "pid": str(lane), "tid": str(thread), **times, "args": args}

    def arrow(number: int, begin: int, end: int, lane: int, thread: int) -> list[dict[str, Any]]:
        both = {"cat": "DataFlow", "id": number, "name": "dep"}
        return [
            {"ts": begin, "ph": "s", **both, "pid": 2, "tid": 19},
            {"ts": end, "ph": "t", **both, "pid": lane, "tid": thread},
        ]

    processes = {2: "CPU HIP API", 1: "COPY", 6: "GPU0", 10: "GPU4"}
    events = [
        *({"args": {"name": name}, "ph": "M", "pid": n, "name": "process_name"} for n, name in processes.items()),
        event(1, 0, "CopyHostToDevice", 5_000_251, 9_000_698, **{"dev-id": "4", "stream-id": "0"}),
        event(2, 19, "hipMemcpy", 1_000_486, 9_500_175),
        event(2, 19, "hipLaunchKernel", 9_600_309, 9_700_161),
        event(2, 19, "hipDeviceSynchronize", 9_701_000, 9_901_000),
        event(10, 1, "vector_add(float*, int)", 9_710_840, 9_890_451, **{"dev-id": "4", "stream-id": "1"}),
        *arrow(0, 5_250, 5_000, 1, 0),
        *arrow(1, 9_650, 9_710, 10, 1),
    ]
    path = tmp_path / "results.json"
    lines = "".join(f"\n,{json.dumps(one)}" for one in events)
    path.write_text(f'{{ "traceEvents":[{{}}{lines}\n],\n"otherData": {{"CMD": "a"}}\n}}', encoding="utf-8")
    assert _rows(path) == [
        ("runtime", "call", "hipMemcpy", 0, 8_499_689, 19, None, None, None),
        ("kernel", "memcpy", "[HIP memcpy Host-to-Device]", 3_999_765, 4_000_447, 19, 4, 0, "hipMemcpy"),
        ("runtime", "call", "hipLaunchKernel", 8_599_823, 99_852, 19, None, None, None),
        ("runtime", "call", "hipDeviceSynchronize", 8_700_514, 200_000, 19, None, None, None),
        ("kernel", "kernel", "vector_add(float*, int)", 8_710_354, 179_611, 19, 4, 1, "hipLaunchKernel"),
    ]


_VALUE: st.SearchStrategy[object] = st.sampled_from(
    [None, True, -5, "7", 1e300, "GPU2", "X", "M", "s", "f", "api_op", "hipA", [], {"name": "GPU1"}, {"BeginNs": "4"}]
)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.dictionaries(st.sampled_from(("ph", "pid", "tid", "name", "ts", "dur", "args", "id")), _VALUE), max_size=6
    )
)
def test_events_of_any_value_are_read_or_refused(tmp_path: Path, events: list[dict[str, object]]) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([*_events(decimals=True), *events]), encoding="utf-8")
    try:
        trace = convert([path], Options())
    except XspError:
        return
    assert list(integrity.broken_rules(trace)) == []


_HIP_ROWS = [
    (1_000, 2_000, 7, 8, "hipMemcpy", "( dst(0x1) src(0x2) sizeBytes(4096) kind(1))", 1),
    (3_000, 3_500, 7, 8, "hipLaunchKernel", "( kernel(k))", 2),
    (900_000, 950_000, 7, 9, "hipMemcpy", "( sizeBytes(64) kind(2))", 3),
]
_WORK_ROWS = {
    "COPY": [
        (1_200, 1_900, 2, 0, "CopyHostToDevice", 7, 8, 5, 1),
        (700_000, 705_000, 2, 0, "CopyDeviceToHost", 7, 9, 5, 3),  # 200 us before its call
    ],
    "OPS": [(4_000, 9_000, 2, 1, "_Z3addPf [clone .kd]", 7, 8, 6, 2)],
}


def _rocprof(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        times = '"BeginNs" INTEGER, "EndNs" INTEGER'
        connection.execute(
            f'CREATE TABLE HIP ({times}, pid INTEGER, tid INTEGER, Name TEXT, args TEXT, "Index" INTEGER)'
        )
        connection.executemany("INSERT INTO HIP VALUES (?, ?, ?, ?, ?, ?, ?)", _HIP_ROWS)
        for table, rows in _WORK_ROWS.items():
            where = '"dev-id" INTEGER, "queue-id" INTEGER, Name TEXT, pid INTEGER, tid INTEGER, "stream-id" INTEGER'
            connection.execute(f'CREATE TABLE {table} ({times}, {where}, "Index" INTEGER)')
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)  # noqa: S608
        connection.commit()
    return path


def test_rocprofs_database_ties_work_to_its_call_by_number(tmp_path: Path) -> None:
    path = _rocprof(tmp_path / "results.db")
    trace = convert([path], Options())
    assert list(integrity.broken_rules(trace)) == []
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    names = dict(spans.select("span_id", "name").iter_rows())
    work = spans.filter(pl.col("level") == "kernel").select(
        "name", "duration_ns", "device_id", "stream_id", "parent_id"
    )
    assert [(*row[:4], names.get(row[4])) for row in work.iter_rows()] == [
        ("[HIP memcpy Host-to-Device]", 700, 2, 5, "hipMemcpy"),
        ("add(float*)", 5_000, 2, 6, "hipLaunchKernel"),
        ("[HIP memcpy Device-to-Host]", 5_000, 2, 5, None),
    ]
    assert trace.frame("copies")["bytes"].to_list() == [4096, 64]
    ledger = dict(trace.frame("ledger").select(pl.col("kind").cast(pl.String), "count").iter_rows())
    assert ledger["start_before_launch"] == 1


_OLD = """\
"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","wgr","lds","scr","vgpr","sgpr","fbar","sig","obj","SQ_WAVES","DispatchNs","BeginNs","EndNs","CompleteNs","DurationNs"
0,"_Z3addPf [clone .kd]",1,0,0,70,70,65536,256,64,0,8,24,0,0x0,0x7f00,1024,1000,1500,2500,3000,1000
1,"relu(float*, int) [clone .kd]",1,0,1,70,70,65536,256,0,0,12,24,0,0x0,0x7f00,512,3000,3500,3900,4000,400
"""
_SECOND = """\
Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,SQ_WAVES
0,1,0,70,70,65536,256,64,0,8,0,24,64,"_Z3addPf.kd",1500,2500,0,1024
1,1,0,70,70,65536,256,0,0,12,0,24,64,"relu(float*, int) [clone .kd]",3500,3900,0,512
"""


@pytest.mark.parametrize("text", [_OLD, _SECOND], ids=["rocprof", "rocprofv2"])
def test_csv_of_dispatches_is_kernels_with_their_counters(text: str, tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text(text)
    trace = convert([path], Options())
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    columns = ("name", "start_ns", "duration_ns", "process_id", "device_id")
    assert spans.select(columns).rows() == [("add(float*)", 0, 1_000, 70, 1), ("relu(float*, int)", 2_000, 400, 70, 1)]
    assert trace.frame("kernels").select("registers_per_thread", "shared_bytes").rows() == [(8, 64), (12, 0)]
    assert trace.frame("metrics").select("metric", "value").rows() == [("SQ_WAVES", 1024.0), ("SQ_WAVES", 512.0)]


def test_of_rocprofs_files_of_one_run_the_database_is_read(tmp_path: Path) -> None:
    _rocprof(tmp_path / "results.db")
    (tmp_path / "results.csv").write_text(_OLD)
    trace = convert([tmp_path], Options())
    assert trace.frame("runs").height == 1
    assert trace.frame("copies").height == 2


@pytest.mark.parametrize("damage", [b"BeginNs", b'"EndNs"', b"1500", b"\n0,"])
def test_damaged_csv_of_dispatches_is_read_or_refused_in_a_sentence(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_bytes(_OLD.encode().replace(damage, b"\xff"))
    with suppress(XspError):
        assert list(integrity.broken_rules(convert([path], Options()))) == []
