"""The CUPTI runner against a stand-in for the package, its dumps read by XSP; field names against the real package."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.runners.fake_cupti import ActivityKind, FakeCupti, Result
from xsp_analyze.merge.merge import merge
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_run_set
from xsp_ingest.staging.cupti import KINDS
from xsp_runners import cupti as runner
from xsp_runners.cupti import record
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets.level_process import PlannedRun
from xsp_runners.sets.plan import finish
from xsp_runners.tools import cupti_activities
from xsp_runners.tools.cupti_activities import FIELDS, DumpWriter, field_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xsp_model import Trace

_REPO = Path(__file__).resolve().parents[2]
_GEMM = "_Z4gemmPKfS0_Pf"


def _activity(kind: ActivityKind, **fields: object) -> SimpleNamespace:
    return SimpleNamespace(kind=int(kind), **fields)


def _launch(start: int, correlation: int, *, thread: int | None = None) -> list[SimpleNamespace]:
    """A runtime call that launches a kernel 50 us later, which runs for 20 us, and its driver call within."""
    ids = {"process_id": os.getpid(), "thread_id": thread or threading.get_native_id(), "correlation_id": correlation}
    location = {"device_id": 0, "context_id": 1, "stream_id": 7, "correlation_id": correlation}
    sizes = {f"{what}_{axis}": n for what, n in (("grid", 64), ("block", 256)) for axis in "xyz"}
    kernel = {"name": _GEMM, "registers_per_thread": 32, "static_shared_memory": 0, "dynamic_shared_memory": 1024}
    graph = {"graph_id": 0, "graph_node_id": 0}
    times = {"start": start + 50_000, "end": start + 70_000}
    return [
        _activity(ActivityKind.RUNTIME, start=start, end=start + 5_000, cbid=211, return_value=0, **ids),
        _activity(ActivityKind.DRIVER, start=start + 1_000, end=start + 4_000, cbid=307, return_value=0, **ids),
        _activity(ActivityKind.CONCURRENT_KERNEL, **times, **location, **sizes, **kernel, **graph),
    ]


def _others(at: int) -> list[SimpleNamespace]:
    location = {"device_id": 0, "context_id": 1, "stream_id": 7}
    graph = {"graph_id": 0, "graph_node_id": 0}
    copied = {"bytes": 4096, "copy_kind": 1, "src_kind": 1, "dst_kind": 3}
    device = {"compute_capability_major": 9, "compute_capability_minor": 0, "num_multiprocessors": 132}
    rates = {"core_clock_rate": 1_980_000, "global_memory_bandwidth": 4_800_000_000, "global_memory_size": 1 << 37}
    return [
        _activity(ActivityKind.MEMCPY, start=at, end=at + 500, correlation_id=8, **copied, **location, **graph),
        _activity(
            ActivityKind.MEMSET,
            start=at + 600,
            end=at + 700,
            correlation_id=9,
            bytes=64,
            memory_kind=3,
            **location,
            **graph,
        ),
        _activity(ActivityKind.OVERHEAD, start=at, end=at + 100, overhead_kind=131072),
        _activity(ActivityKind.DEVICE, id=0, name="Made-up GPU", **device, **rates),
        SimpleNamespace(kind=46),  # MODULE or the like: not asked for, and not written
    ]


def _trace(folder: Path) -> Trace:
    return convert([next(iter(folder.glob("cupti.*")))], Options())


def _rows(trace: Trace, level: str) -> list[dict[str, Any]]:
    spans = trace.frame("spans").with_columns(pl.col("name", "level", "kind").cast(pl.String))
    return spans.filter(pl.col("level") == level).sort("start_ns").to_dicts()


@contextmanager
def _without_pyarrow() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        yield


def _recorded(out: Path, cupti: FakeCupti) -> None:
    """A step of two layers, the second of which launches a kernel."""
    with record(out) as recorder, recorder.range("step", "model"):
        with recorder.range("Embedding_0"):
            cupti.stream += _others(time.time_ns())
        with recorder.range("Linear_0"):
            cupti.stream += _launch(time.time_ns(), 7)
            time.sleep(0.001)


@pytest.mark.parametrize("parquet", [True, False])
def test_a_recording_is_a_trace_with_layers_and_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, parquet: bool
) -> None:
    cupti = FakeCupti().install(monkeypatch)
    begun_ns = time.time_ns()
    with nullcontext() if parquet else _without_pyarrow():
        _recorded(tmp_path, cupti)
    assert [path.name for path in tmp_path.iterdir()] == ["cupti.parquet" if parquet else "cupti.jsonl"]

    trace = _trace(tmp_path)
    (step,) = _rows(trace, "model")
    layers = _rows(trace, "layer")
    assert (step["name"], [row["name"] for row in layers]) == ("step", ["Embedding_0", "Linear_0"])
    work = _rows(trace, "kernel")
    assert sorted((row["name"], row["kind"], row["duration_ns"]) for row in work if row["kind"] == "kernel") == [
        ("gemm(float const*, float const*, float*)", "kernel", 20_000)
    ]
    (gemm,) = [row for row in work if row["kind"] == "kernel"]
    assert gemm["layer_id"] == layers[1]["span_id"]
    assert [row["name"] for row in _rows(trace, "runtime")][:1] == ["cudaLaunchKernel_v7000"]
    run = trace.frame("runs").to_dicts()[0]
    assert begun_ns <= run["epoch_ns"] <= time.time_ns()
    device = trace.frame("devices").to_dicts()[0]
    assert (device["name"], device["multiprocessor_count"], device["compute_capability"]) == ("Made-up GPU", 132, "9.0")
    assert not [row for row in trace.frame("ledger").to_dicts() if row["kind"] in ("no_end", "unknown_record")]


def test_an_earlier_recording_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for suffix in ("jsonl", "parquet"):
        (tmp_path / f"cupti.{suffix}").write_text("of yesterday")
    FakeCupti(_launch(1_000, 7)).install(monkeypatch)
    with _without_pyarrow(), record(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [runner.NAME]


def test_every_kind_wanted_is_turned_on_and_off_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupti = FakeCupti(_launch(1_000, 7)).install(monkeypatch)
    with record(tmp_path):
        pass
    on = [what for how, what in cupti.log if how == "enable"]
    assert sorted(map(str, on)) == sorted(set(FIELDS) - {"GRAPH_TRACE"})
    assert [what for how, what in cupti.log if how == "disable"] == on
    assert ("thread ids", 1) in cupti.log
    assert cupti.log[-1] == ("unsubscribe", 77)


def test_graphs_as_a_whole_are_recorded_where_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupti = FakeCupti(_launch(1_000, 7)).install(monkeypatch)
    with record(tmp_path, graph="graph"):
        pass
    assert ("enable", "GRAPH_TRACE") in cupti.log


def _header(folder: Path) -> dict[str, Any]:
    header: dict[str, Any] = json.loads((folder / "cupti.jsonl").read_text().splitlines()[0])
    return header


def _since_boot() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def _unlike_any_other() -> int:
    return time.time_ns() - 10**18


@pytest.mark.parametrize(
    ("clock", "name", "host_times"),
    [
        (time.time_ns, "CLOCK_REALTIME", "program"),
        (_since_boot, "CLOCK_MONOTONIC_RAW", "program"),  # of CUPTI under WSL
        (_unlike_any_other, "CUPTI", "CUPTI"),
    ],
)
def test_ranges_are_on_the_clock_that_cupti_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Callable[[], int], name: str, host_times: str
) -> None:
    """CUPTI is asked for the time once or twice, not description it: no Python runs while it takes a time stamp."""
    cupti = FakeCupti(clock=clock).install(monkeypatch)
    begun_ns = time.time_ns()
    with _without_pyarrow(), record(tmp_path) as recorder, recorder.range("step", "model"):
        cupti.stream += _launch(clock(), 7)
        time.sleep(0.001)
    header = _header(tmp_path)
    assert (header["clock"], header["host_times"], header["refused"]) == (name, host_times, [])
    assert (header["epoch_ns"] == 0) == (name == "CLOCK_REALTIME")
    trace = _trace(tmp_path)
    (step,) = _rows(trace, "model")
    (launch, _) = _rows(trace, "runtime")
    assert step["start_ns"] <= launch["start_ns"] <= step["start_ns"] + step["duration_ns"]
    assert begun_ns - 2_000_000 <= trace.frame("runs")["epoch_ns"][0] + step["start_ns"] <= time.time_ns() + 2_000_000


def test_kinds_that_are_not_to_be_had_are_said_in_the_dump(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeCupti(_launch(1_000, 7), refused=(ActivityKind.OVERHEAD, ActivityKind.DRIVER)).install(monkeypatch)
    with _without_pyarrow(), record(tmp_path) as recorder:
        pass
    assert recorder.problem is None
    assert capsys.readouterr().err == ""
    assert _header(tmp_path)["refused"] == ["DRIVER (ERROR_NOT_SUPPORTED)", "OVERHEAD (ERROR_NOT_SUPPORTED)"]
    ledger = _trace(tmp_path).frame("ledger").filter(pl.col("kind").cast(pl.String) == "profiler_diagnostic")
    assert ledger["detail"].to_list() == [
        "CUPTI refused DRIVER (ERROR_NOT_SUPPORTED)",
        "CUPTI refused OVERHEAD (ERROR_NOT_SUPPORTED)",
    ]


def test_dropped_records_reach_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCupti(_launch(1_000, 7), dropped=12).install(monkeypatch)
    with record(tmp_path):
        pass
    dropped = _trace(tmp_path).frame("ledger").filter(pl.col("kind").cast(pl.String) == "dropped_records")
    assert dropped["count"].to_list() == [12]


_TAKEN = (
    "another user of CUPTI is in this process, which can have one only: run without nsys and ncu around it and without "
    "torch.profiler on the GPU in it"
)
_RANGES = """
import sys
from xsp_runners.tools.nvtx_ranges import nvtx_calls
calls = nvtx_calls()
step = calls.start("step")
calls.push("Linear_0")
calls.pop()
calls.end(step)
print("ran to its end")
sys.exit(0)
"""


def _status_of(program: Path, out: Path) -> int:
    try:
        return runner.main(["-o", str(out), "--", str(program)])
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize(
    ("cupti", "sentence"),
    [
        (FakeCupti(driver=False), "CUPTI cannot be used here: CUDA driver is not found (libcuda.so.1: cannot open sha"),
        (FakeCupti(taken=Result.ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED), _TAKEN),
        (FakeCupti(taken=Result.ERROR_MAX_LIMIT_REACHED), _TAKEN),
        (FakeCupti(taken=Result.ERROR_NOT_SUPPORTED), "CUPTI cannot be used here: ERROR_NOT_SUPPORTED"),
        (
            FakeCupti(failing=["activity_register_callbacks"]),
            "CUPTI hands over no records here: buffers (ERROR_NOT_SUPPORTED)",
        ),
        (
            FakeCupti(refused=(ActivityKind.CONCURRENT_KERNEL,)),
            "CUPTI records no kernels here: CONCURRENT_KERNEL (ERROR_NOT_SUPPORTED)",
        ),
        (FakeCupti(failing=["activity_enable"]), "CUPTI records no kernels here: CONCURRENT_KERNEL (ERROR_NOT_SUP"),
        (
            FakeCupti(failing=["activity_flush_all"]),
            "CUPTI could not hand over its last records: the last records (ERROR_NOT_SUPPORTED)",
        ),
        (FakeCupti(failing=["CallbackDomain"]), "the recording stopped: "),  # a package of another age
    ],
)
def test_a_program_runs_whatever_cupti_refuses_and_one_sentence_says_so_in_the_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cupti: FakeCupti,
    sentence: str,
) -> None:
    program = tmp_path / "program.py"
    program.write_text(_RANGES)
    cupti.install(monkeypatch)
    assert _status_of(program, tmp_path / "out") == 2
    printed = capsys.readouterr()
    assert printed.out == "ran to its end\n"
    (line,) = printed.err.splitlines()
    assert line.startswith(f"cupti: {sentence}")


@pytest.mark.parametrize(
    "call",
    [
        "set_thread_id_type",
        "activity_push_external_correlation_id",
        "activity_pop_external_correlation_id",
        "activity_disable",
        "activity_get_num_dropped_records",
        "unsubscribe",
    ],
)
def test_what_a_run_can_do_without_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], call: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(_RANGES)
    FakeCupti(_launch(time.time_ns(), 7), failing=[call]).install(monkeypatch)
    assert _status_of(program, tmp_path / "out") == 0
    assert capsys.readouterr() == ("ran to its end\n", "")
    trace = _trace(tmp_path / "out")
    assert [row["name"] for row in _rows(trace, "layer")] == ["Linear_0"]
    assert len(_rows(trace, "kernel")) == 1


def test_without_the_package_the_program_runs_and_what_fits_torch_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(_RANGES)
    monkeypatch.setitem(sys.modules, "cupti", None)
    monkeypatch.setattr(cupti_activities, "torch_cuda", lambda: (13, 0))
    monkeypatch.setattr(cupti_activities, "installed_version", lambda: None)
    assert _status_of(program, tmp_path / "out") == 2
    advice = "pip install 'cupti-python==13.0.*', as torch here is built for CUDA 13.0"
    assert capsys.readouterr() == ("ran to its end\n", f"cupti: cupti-python is not installed: {advice}\n")
    assert not (tmp_path / "out").exists()
    assert runner.main(["-o", str(tmp_path / "out"), "--", "nowhere.py"]) == 2
    assert runner.main(["-o", str(tmp_path / "out")]) == 2


@pytest.mark.parametrize(
    ("cuda", "advice"),
    [
        ((12, 6), "'cupti-python==12.6.*'"),
        ((12, 9), "'cupti-python==12.8.*'"),  # there is none for 12.9
        ((13, 0), "'cupti-python==13.0.*'"),
        ((13, 4), "'cupti-python==13.4.*'"),
        ((13, 6), "'cupti-python==13.6.*'"),  # newer than what is known here
        ((11, 8), "cupti-python"),
        (None, "cupti-python"),
    ],
)
def test_the_release_that_fits_a_cuda(cuda: tuple[int, int] | None, advice: str) -> None:
    assert cupti_activities.requirement(cuda) == advice


def test_a_release_that_does_not_fit_torch_is_named_where_cupti_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = tmp_path / "packages" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("raise SystemExit('imported')")
    (torch / "version.py").write_text("__version__ = '2.11.0'\ncuda: Optional[str] = '13.0'\n")
    monkeypatch.syspath_prepend(str(torch.parent))
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(cupti_activities, "installed_version", lambda: "13.4.0")
    FakeCupti(taken=Result.ERROR_NOT_SUPPORTED, driver=False).install(monkeypatch)
    with record(tmp_path / "out"):
        pass
    assert capsys.readouterr().err.endswith(
        "; pip install 'cupti-python==13.0.*', as torch here is built for CUDA 13.0 (here is 13.4.0)\n"
    )


def test_devices_are_waited_for_before_the_last_records_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupti = FakeCupti(_launch(1_000, 7)).install(monkeypatch)
    monkeypatch.setattr(cupti_activities, "wait_for_devices", lambda: cupti.log.append(("wait", None)))
    with record(tmp_path):
        pass
    assert [how for how, _ in cupti.log if how not in ("enable", "thread ids")][:3] == ["wait", "flush", "disable"]


def test_a_disk_that_is_full_stops_the_recording_not_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeCupti().install(monkeypatch)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with record(tmp_path) as recorder:
        monkeypatch.setattr(DumpWriter, "add", full)
        with recorder.range("step", "model"):
            pass
        with recorder.range("step", "model"):
            pass
    assert capsys.readouterr().err == "cupti: the recording stopped: [Errno 28] No space left on device\n"


def test_what_other_threads_launch_is_of_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As autograd does in a backward pass: a step is a range of the process."""
    cupti = FakeCupti().install(monkeypatch)
    with record(tmp_path) as recorder:
        for number in range(2):
            step = recorder.start("step")
            with recorder.range("Linear_0"):
                cupti.stream += _launch(time.time_ns(), 10 + number)
                time.sleep(0.0001)
            cupti.stream += _launch(time.time_ns(), 20 + number, thread=threading.get_native_id() + 1)
            time.sleep(0.0001)
            recorder.end(step)
    trace = _trace(tmp_path)
    assert [row["name"] for row in _rows(trace, "model")] == ["step", "step"]
    work = [row for row in _rows(trace, "kernel") if row["kind"] == "kernel"]
    assert [(row["step"], row["layer_id"] is None) for row in work] == [(0, False), (0, True), (1, False), (1, True)]


@pytest.mark.parametrize(("deepest", "kernels", "status"), [("kernel", 0, 2), ("kernel", 1, 0), ("operator", 0, 0)])
def test_a_run_on_a_gpu_without_a_kernel_is_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deepest: str, kernels: int, status: int
) -> None:
    program, description = tmp_path / "program.py", tmp_path / "level.json"
    program.write_text(
        f'import pathlib; pathlib.Path({str(description)!r}).write_text(\'{{"deepest_level": "{deepest}"}}\')'
    )
    FakeCupti([each for number in range(kernels) for each in _launch(1_000, number)]).install(monkeypatch)
    assert _status_of(program, tmp_path) == status
    run = PlannedRun("MLG", tmp_path, ("python",), {}, tool="cupti")
    with pytest.raises(RunnerError, match="CUPTI recorded no kernel of the GPU") if status else nullcontext():
        finish(run, status)


def test_a_level_process_whose_recording_failed_fails_with_that_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    description = tmp_path / "out" / "level.json"
    program.write_text(f'import pathlib; pathlib.Path({str(description)!r}).write_text(\'{{"level": "MLG"}}\')')
    description.parent.mkdir()
    FakeCupti(taken=Result.ERROR_NOT_SUPPORTED).install(monkeypatch)
    status = _status_of(program, description.parent)
    run = PlannedRun("MLG", description.parent, ("python",), {}, tool="cupti")
    with pytest.raises(RunnerError, match=r"^CUPTI cannot be used here: ERROR_NOT_SUPPORTED$"):
        finish(run, status)
    assert capsys.readouterr().err == "cupti: CUPTI cannot be used here: ERROR_NOT_SUPPORTED\n"


_PROGRAM = """
import sys
from xsp_runners.tools.nvtx_ranges import nvtx_calls
calls = nvtx_calls()
for _ in range(2):
    step = calls.start("step")
    calls.push("Linear_0")
    calls.pop()
    calls.end(step)
print(sys.argv[1:])
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize("status", [0, 3])
def test_a_program_marks_its_steps_and_layers_without_nvtx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    FakeCupti(_launch(time.time_ns(), 7)).install(monkeypatch)
    with pytest.raises(SystemExit) as ended:
        runner.main(["-o", str(tmp_path / "out"), "--", str(program), str(status), "--option"])
    assert ended.value.code == status
    assert capsys.readouterr().out == f"['{status}', '--option']\n"
    trace = _trace(tmp_path / "out")
    assert [row["name"] for row in _rows(trace, "model")] == ["step", "step"]
    assert [row["name"] for row in _rows(trace, "layer")] == ["Linear_0", "Linear_0"]


def test_ranges_of_threads_do_not_mix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCupti(_launch(1_000, 7)).install(monkeypatch)
    with _without_pyarrow(), record(tmp_path) as recorder:
        recorder.push("outer")
        other = threading.Thread(target=recorder.range("there")(int))
        other.start()
        other.join()
        recorder.push("inner")
        recorder.pop()
        recorder.pop()
    rows = [json.loads(line) for line in (tmp_path / "cupti.jsonl").read_text().splitlines()]
    ranges = [row for row in rows if row.get("kind") == "FRAMEWORK_OPERATOR"]
    assert [row["name"] for row in ranges] == ["there", "inner", "outer"]
    assert ranges[0]["threadId"] != ranges[1]["threadId"] == ranges[2]["threadId"]
    assert len({row["externalId"] for row in ranges}) == 3


def test_a_recording_that_is_stopped_leaves_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a process that was killed: records without the closing one."""
    cupti = FakeCupti(_launch(1_000, 7)).install(monkeypatch)
    with _without_pyarrow(), record(tmp_path):
        cupti.activity_flush_all(1)
    path = tmp_path / "cupti.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    trace = _trace(tmp_path)
    assert len(_rows(trace, "kernel")) == 1
    assert "no_end" in trace.frame("ledger")["kind"].cast(pl.String).to_list()


_PACKAGE = """
from tests.runners.fake_cupti import FakeCupti
fake = FakeCupti()
globals().update({name: getattr(fake, name) for name in dir(fake) if not name.startswith("_")})
"""


def _with_fake_package(folder: Path) -> dict[str, str]:
    """The environment of a process that finds the stand-in when it imports cupti."""
    package = folder / "packages" / "cupti"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "cupti.py").write_text(_PACKAGE)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(package.parent), str(_REPO)])}


_ENDLESS = """
import sys, time
from xsp_runners.tools.nvtx_ranges import nvtx_calls
calls = nvtx_calls()
for number in range(2500):
    calls.end(calls.start("step"))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_is_ended_leaves_a_file_that_can_be_read(tmp_path: Path, number: signal.Signals) -> None:
    environment = _with_fake_package(tmp_path)
    (tmp_path / "program.py").write_text(_ENDLESS)
    command = [sys.executable, str(_REPO / "runners" / "cupti.py"), "-o", str(tmp_path / "out")]
    process = subprocess.Popen(
        [*command, "--", str(tmp_path / "program.py")], env=environment, stdout=subprocess.PIPE, cwd=_REPO
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    assert process.wait(timeout=300) == (143 if number == signal.SIGTERM else -number)
    process.stdout.close()
    trace = _trace(tmp_path / "out")
    assert len(_rows(trace, "model")) == (2500 if number == signal.SIGTERM else 2000)  # a thousand lines at once
    assert ("no_end" in trace.frame("ledger")["kind"].cast(pl.String).to_list()) == (number == signal.SIGKILL)


def test_the_command_of_a_level_process_is_wrapped() -> None:
    command = runner.wrapped_command(["python3", "runners/torch_levels.py", "--level", "MLG"], Path("out"))
    assert command[0] == "python3"
    assert Path(command[1]).name == "cupti.py"
    assert command[2:] == [*("--graph", "node", "--out", "out", "--", "runners/torch_levels.py", "--level", "MLG")]


def test_what_is_written_is_what_xsp_reads() -> None:
    for kind, fields in FIELDS.items():
        assert set(fields) <= set(KINDS[kind])
        assert set(KINDS[kind]) - set(fields) <= {"processId", "name"}  # CUPTI has no process of device work


_CLASSES = {
    "CONCURRENT_KERNEL": "ActivityKernel9",
    "MEMCPY": "ActivityMemcpy5",
    "MEMCPY2": "ActivityMemcpyPtoP4",
    "MEMSET": "ActivityMemset4",
    "GRAPH_TRACE": "ActivityGraphTrace2",
    "RUNTIME": "ActivityAPI",
    "DRIVER": "ActivityAPI",
    "SYNCHRONIZATION": "ActivitySynchronization",
    "EXTERNAL_CORRELATION": "ActivityExternalCorrelation",
    "OVERHEAD": "ActivityOverhead3",
    "DEVICE": "ActivityDevice5",
}
_PROBE = """
import json, sys
from cupti import cupti
sys.path.insert(0, sys.argv[1])
from xsp_runners.tools.cupti_activities import FIELDS, record_of
found = {}
for kind, name in json.loads(sys.argv[2]).items():
    activity = getattr(cupti, name)()
    for field, value in (("correlation_id", 7), ("start", 1000), ("grid_x", 64), ("bytes", 4096)):
        if hasattr(activity, field):
            setattr(activity, field, value)
    found[kind] = record_of(kind, activity)
kinds = {name: int(cupti.ActivityKind[name]) for name in FIELDS}
words = [hasattr(cupti, word) for word in json.loads(sys.argv[3])]
words.append(int(cupti.ExternalCorrelationKind.CUSTOM0) == 3)
print(json.dumps([found, kinds, words]))
"""
_CALLS = [
    name for name in vars(FakeCupti) if name.startswith(("activity_", "get_", "set_", "subscribe", "unsubscribe"))
]


@pytest.fixture(scope="module")
def cupti_python() -> str:
    """A Python with cupti-python, as $XSP_CUPTI_PYTHON names it."""
    python = os.environ.get("XSP_CUPTI_PYTHON")
    if not python:
        pytest.skip("no Python with cupti-python: set XSP_CUPTI_PYTHON")
    return python


def test_the_fields_are_those_of_the_real_package(cupti_python: str) -> None:
    names = ["cuptiError", "Result", "CallbackDomain", "ExternalCorrelationKind", "ActivityThreadIdType", *_CALLS]
    done = subprocess.run(
        [cupti_python, "-c", _PROBE, str(_REPO), json.dumps(_CLASSES), json.dumps(names)],
        capture_output=True,
        check=True,
        text=True,
    )
    fields, kinds, calls = json.loads(done.stdout)
    for kind, written in fields.items():
        missing = {field for field in FIELDS[kind] if field not in written}
        assert missing == set(), f"{kind}: {[field_of(field) for field in missing]}"
    assert (fields["RUNTIME"]["correlationId"], fields["CONCURRENT_KERNEL"]["gridX"]) == (7, 64)
    assert kinds == {kind.name: int(kind) for kind in ActivityKind}
    assert all(calls)


def test_a_program_runs_although_the_real_package_finds_no_driver(cupti_python: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('started')")
    command = [cupti_python, str(_REPO / "runners" / "cupti.py"), "-o", str(tmp_path / "out"), "--", str(program)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    if done.returncode == 0:
        pytest.skip("there is a driver here")
    assert (done.returncode, done.stdout) == (2, "started\n")
    assert done.stderr.startswith("cupti: CUPTI cannot be used here: ")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.torch
def test_a_level_process_under_cupti_has_the_layers_of_torch_profiler(tmp_path: Path) -> None:
    """On the CPU: what CUPTI would record is left out, what the level process marks is there."""
    pytest.importorskip("torch", reason="needs torch")
    environment = _with_fake_package(tmp_path)
    size = ["--batch-size", "4", "--steps", "3", "--warmup", "2", "--device", "cpu", "--threads", "1"]
    command = [sys.executable, "-m", "xsp_runners.collect", "--workload", "zoo:mlp", *size, "--kernels", "cupti"]
    done = subprocess.run(
        [*command, "--levels", "ML,MLG", "--out", str(tmp_path / "set")],
        env=environment, cwd=_REPO, capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    merged = merge(read_run_set(tmp_path / "set", Options()))
    (matched,) = merged.frame("ledger").filter(pl.col("kind").cast(pl.String) == "match_layers").to_dicts()
    assert "match at 1.000" in matched["detail"]
    assert [row["name"] for row in _rows(merged, "model") if row["run_id"] == 1] == ["step"] * 3
