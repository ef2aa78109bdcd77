"""Our rules and recipes say what NVIDIA's own nsys 2023.4.4 says of the same files."""

from __future__ import annotations

import json
import random
import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.nsys_answers import differences
from tests.helpers.nsys_tool import analyze, recipe, run_rule
from tests.helpers.synth_nsys import PROCESS, NsightFile
from xsp_analyze.analyses.recipes.gpu_use import gaps_longer_than as gaps
from xsp_analyze.catalog import find
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.core import Analysis

pytestmark = pytest.mark.nsys

_REAL = ("cloverleaf.a100.nsys2024_5", "h100_fsdp_2gpu.nsys2026_2", "h100_mfu_before_2gpu.nsys2026_2")
_CALL_RULES = (
    find("cuda_memcpy_async"),
    find("cuda_memcpy_sync"),
    find("cuda_memset_sync"),
    find("cuda_api_sync"),
)
_USE_RULES = (find("gpu_gaps"), find("gpu_time_util"))
_PACES = (find("cuda_gpu_kern_pace"), find("nvtx_pace"), find("nvtx_gpu_proj_pace"))
_PACE_FILES = {
    "start": "start_ns",
    "end": "end_ns",
    "duration": "duration_ns",
    "delta": "delta_ns",
    "duration_accum": "duration_sum_ns",
    "delta_accum": "delta_sum_ns",
}
_SUMS = (find("nccl_sum"), find("nccl_gpu_proj_sum"), find("mpi_sum"))
_CALL_MAPS = (find("mpi_gpu_time_util_map"), find("ucx_gpu_time_util_map"))
_MAPS = (find("cuda_gpu_time_util_map"), find("nccl_gpu_time_util_map"))
_PERCENT = 100.0
_ROUNDED = 0.0500001  # half of the last digit that the recipes keep


def _made(seed: int) -> NsightFile:
    """Steps, layers and collectives of one process on two devices, with copies, memsets, waits and overhead."""
    choose = random.Random(seed)  # noqa: S311 (a test's dice)
    file = NsightFile()
    file.gpu(0)
    file.gpu(1)
    file.session(epoch_ns=10**18, duration_ns=40_000_000_000)
    file.domain(1, "NCCL")
    now = 1000
    for _ in range(60):
        begin = now
        for layer in choose.choices("abc", k=3):
            start = now
            now = _work(file, choose, now + choose.randint(1, 900), layer)
            if choose.random() < 0.5:
                file.range(start, now + choose.randint(0, 50), layer)
        collective = now + 10
        now = _work(file, choose, now + 20, "ncclDevKernel")
        file.range(collective, now + 5, choose.choice(("ncclAllReduce", "ncclSend")), domain=1, registered=True)
        file.call(now + 6, now + 30, choose.choice(("cudaDeviceSynchronize_v3020", "cudaStreamSynchronize_v3020")))
        file.range(begin, now + 40, "step", end_thread=choose.choice((None, None, 7)))
        if choose.random() < 0.1:
            file.overhead(now, now + choose.randint(1, 900_000_000))
        _messages(file, choose, now)
        now += choose.choice((100, 10_000, 700_000_000, 900_000_000))
    file.range(now, None, "step")
    # Real files have their kernels in order of start.
    file.rows["CUPTI_ACTIVITY_KIND_KERNEL"].sort(key=lambda row: int(str(row["start"])))
    return file


def _work(file: NsightFile, choose: random.Random, now: int, name: str) -> int:
    """A launch, or a copy or memset with its call, on either device; when the call ended."""
    device, kind = choose.choice((0, 1)), choose.choice(("kernel", "kernel", "copy", "fill"))
    end = now + choose.randint(2, 40)
    begun = end + choose.randint(1, 300)
    work = (begun, begun + choose.randint(1, 100_000))
    link = file.correlation()
    if kind == "kernel":
        file.call(now, end, correlation=link)
        file.kernel(*work, name, correlation=link, device=device)
    elif kind == "copy":
        file.call(now, end, choose.choice(("cudaMemcpyAsync_v3020", "cudaMemcpy_v3020")), correlation=link)
        size = choose.choice((8, 64_000, 64_001, 10**6))
        memory = choose.choice(((0, 2), (1, 2), (2, 0)))
        file.memcpy(*work, choose.choice((1, 2, 8)), size=size, correlation=link, device=device, memory=memory)
    else:
        file.call(now, end, choose.choice(("cudaMemset_v3020", "cudaMemsetAsync_v3020")), correlation=link)
        file.memset(*work, size=choose.choice((8, 10**6)), correlation=link)
        file.rows["CUPTI_ACTIVITY_KIND_MEMSET"][-1]["memKind"] = choose.choice((1, 2, 4))
    return end


def _messages(file: NsightFile, choose: random.Random, now: int) -> None:
    """Calls of MPI and UCX on two threads; some of a process that runs no kernels, some without duration."""
    for table, name in (
        ("MPI_P2P_EVENTS", "MPI_Send"),
        ("MPI_COLLECTIVES_EVENTS", "MPI_Allreduce"),
        ("MPI_START_WAIT_EVENTS", "MPI_Wait"),
        ("MPI_OTHER_EVENTS", "MPI_Comm_rank"),
        ("UCP_SUBMIT_EVENTS", "ucp_tag_send_nbx"),
        ("UCP_PROGRESS_EVENTS", "ucp_tag_send_nbx"),
        ("UCP_EVENTS", "ucp_worker_progress"),
    ):
        start = now + choose.randint(0, 200_000)
        length = choose.choice((0, 50, 150_000, 300_000_000))
        process = choose.choice((PROCESS, PROCESS, PROCESS + 1))
        file.event(table, start, start + length, name, thread=choose.choice((101, 102)), process=process)


@cache
def _view(path: Path) -> StepView:
    return StepView.of(convert([path], Options()))


@pytest.fixture(scope="module", params=[1, 2])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _made(request.param).write(tmp_path_factory.mktemp("made") / "made.sqlite")


@pytest.fixture(params=_REAL)
def real(request: pytest.FixtureRequest, real_dir: Path, tmp_path: Path) -> Path:
    # nsys writes beside its input.
    return Path(shutil.copy(real_dir / "nsys" / f"{request.param}.sqlite", tmp_path / "real.sqlite"))


def _equal_call_rule(rule: Analysis, path: Path) -> None:
    theirs = analyze(rule.id, path)
    ours = rule.function(_view(path)).collect()
    if theirs is None:
        assert ours.height == 0
    else:
        assert differences(rule, ours, theirs) == []


@pytest.mark.parametrize("rule", _CALL_RULES, ids=lambda r: r.id)
def test_rules_about_calls_on_made_files(rule: Analysis, made: Path) -> None:
    assert rule.function(_view(made)).collect().height > 0
    _equal_call_rule(rule, made)


@pytest.mark.real
@pytest.mark.parametrize("rule", _CALL_RULES, ids=lambda r: r.id)
def test_rules_about_calls_on_real_files(rule: Analysis, real: Path) -> None:
    _equal_call_rule(rule, real)


def _numbers(rows: list[list[str]]) -> list[list[float]]:
    return [[float(cell) for cell in row] for row in rows[1:]]


def _ours(rule: Analysis, table: pl.DataFrame) -> list[list[float]]:
    shares = pl.col("share").mul(_PERCENT).round(1) if "share" in table.columns else None
    table = table if shares is None else table.with_columns(shares)
    return [[float(cell) for cell in row] for row in table.select(c.name for c in rule.columns).rows()]


@pytest.mark.parametrize("rule", _USE_RULES, ids=lambda r: r.id)
def test_rules_about_use_on_made_files(rule: Analysis, made: Path) -> None:
    ours = rule.function(_view(made)).collect()
    assert ours.height > 0
    assert _ours(rule, ours) == _numbers(run_rule(rule.id, made))


@pytest.mark.real
@pytest.mark.parametrize("rule", _USE_RULES, ids=lambda r: r.id)
def test_rules_about_use_on_real_files(rule: Analysis, real: Path) -> None:
    ours = rule.function(_view(real)).collect()
    assert _ours(rule, ours) == _numbers(run_rule(rule.id, real))


@pytest.mark.real
def test_gaps_of_a_millisecond_on_real_files(real: Path) -> None:
    ours = gaps(_view(real).of_trace, 1_000_000).collect()
    assert _ours(find("gpu_gaps"), ours) == _numbers(run_rule("gpu_gaps", real, "gap=1"))


def _paces(analysis: Analysis, path: Path, folder: Path, *, count: int) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """Theirs and ours of the most frequent names, under our names of columns."""
    ours = analysis.function(_view(path)).collect()
    for name in ours["name"].value_counts(sort=True)["name"].head(count):
        files = recipe(analysis.id, {"report": path}, folder, "--name", name)
        theirs = pl.DataFrame({ours: files[f"pace_{file}"]["0"].cast(pl.Int64) for file, ours in _PACE_FILES.items()})
        yield theirs, ours.filter(pl.col("name") == name).select(theirs.columns)


@pytest.mark.parametrize("analysis", _PACES, ids=lambda a: a.id)
def test_paces_on_made_files(analysis: Analysis, made: Path, tmp_path: Path) -> None:
    assert analysis.function(_view(made)).collect().height > 0
    for theirs, ours in _paces(analysis, made, tmp_path, count=3):
        assert ours.equals(theirs)


@pytest.mark.real
@pytest.mark.parametrize("analysis", _PACES, ids=lambda a: a.id)
def test_paces_on_real_files(analysis: Analysis, real: Path, tmp_path: Path) -> None:
    for theirs, ours in _paces(analysis, real, tmp_path, count=1):
        if analysis is find("nvtx_gpu_proj_pace"):
            # Theirs are in the order of the file's table of calls, in which a process or buffer follows another.
            own = ["start_ns", "end_ns", "duration_ns"]
            assert ours.select(own).sort(own).equals(theirs.select(own).sort(own))
        else:
            assert ours.equals(theirs)


def _equal_map(analysis: Analysis, path: Path, folder: Path) -> None:
    theirs = recipe(analysis.id, {"report": path}, folder)
    if not theirs:  # without ranges of NCCL the recipe says nothing
        return
    rows = theirs["analysis"].sort("PID", "Device ID", "Duration")
    ours = analysis.function(_view(path)).collect().sort("process_id", "device_id", "bin_start_ns")
    assert ours["bin_start_ns"].to_list() == rows["Duration"].cast(pl.Int64).to_list()
    for column in analysis.columns:
        if column.unit == "share":
            same = (ours[column.name] * _PERCENT - rows[str(column.header)].fill_nan(None)).abs()
            assert same.null_count() == ours[column.name].null_count()
            assert float(str(same.max())) <= _ROUNDED, column.name


@pytest.mark.parametrize("analysis", _MAPS, ids=lambda a: a.id)
def test_maps_on_made_files(analysis: Analysis, made: Path, tmp_path: Path) -> None:
    assert recipe(analysis.id, {"report": made}, tmp_path)
    _equal_map(analysis, made, tmp_path)


@pytest.mark.real
@pytest.mark.parametrize("analysis", _MAPS, ids=lambda a: a.id)
def test_maps_on_real_files(analysis: Analysis, real: Path, tmp_path: Path) -> None:
    _equal_map(analysis, real, tmp_path)


@pytest.mark.parametrize("analysis", _CALL_MAPS, ids=lambda a: a.id)
def test_maps_of_calls_on_made_files(analysis: Analysis, made: Path, tmp_path: Path) -> None:
    theirs = recipe(analysis.id, {"report": made}, tmp_path)["analysis"].sort("PID", "Duration")
    ours = analysis.function(_view(made)).collect().sort("process_id", "bin_start_ns")
    assert ours["process_id"].to_list() == theirs["PID"].cast(pl.Int64).to_list()
    assert len(set(ours["process_id"])) == len((PROCESS, PROCESS + 1))
    for column in analysis.columns:
        if column.unit == "share":
            differing = ours[column.name] * _PERCENT - theirs[str(column.header)].fill_nan(None)
            assert differing.null_count() == ours[column.name].null_count()
            assert float(str(differing.abs().max())) <= _ROUNDED, column.name
            assert float(str(ours[column.name].max())) > 0


def _sampled(choose: random.Random) -> NsightFile:
    """Samples of metrics of two GPUs, in the table of them and as the generic events that the recipe reads."""
    file = NsightFile()
    file.session(epoch_ns=10**18, duration_ns=3_000_001)
    file.kernel(7, 9)
    names = ("SM Active", "SM Issue", "Tensor Active", "GR Active")
    for gpu in range(2):
        for number, name in enumerate(names):
            file.add("TARGET_INFO_GPU_METRICS", typeId=256 + gpu, metricId=number, metricName=f"{name} [Throughput %]")
        edges = [0, 100_001, 200_002, 3_000_001, 3_000_002]
        for time_ns in sorted([*edges, *(choose.randint(0, 2_000_000) for _ in range(200))]):
            values = [choose.randint(0, 100) for _ in names]
            for number, value in enumerate(values):
                file.add("GPU_METRICS", timestamp=time_ns, typeId=256 + gpu, metricId=number, value=value)
            texts = json.dumps(dict(zip(names, map(str, values), strict=True)))
            file.add("GENERIC_EVENTS", rawTimestamp=time_ns, timestamp=time_ns, typeId=256 + gpu, data=texts)
    return file


def test_maps_of_metrics_on_made_files(tmp_path: Path) -> None:
    path = _sampled(random.Random(5)).write(tmp_path / "sampled.sqlite")  # noqa: S311 (a test's dice)
    analysis = find("gpu_metric_util_map")
    theirs = recipe(analysis.id, {"report": path}, tmp_path)["analysis"].sort("GPU", "Duration")
    ours = analysis.function(_view(path)).collect()
    assert ours.height == theirs.height > 40
    assert ours["bin_start_ns"].to_list() == theirs["Duration"].cast(pl.Int64).to_list()
    for column in analysis.columns:
        if column.unit == "share":
            differing = (ours[column.name] * _PERCENT - theirs[str(column.header)]).abs()
            assert float(str(differing.max())) <= _ROUNDED, column.name


@pytest.mark.parametrize("analysis", _SUMS, ids=lambda a: a.id)
def test_sums_of_two_reports(analysis: Analysis, tmp_path: Path) -> None:
    files = {f"rank{n}": _made(10 + n).write(tmp_path / f"rank{n}_made.sqlite") for n in range(2)}
    (tmp_path / "theirs").mkdir()
    theirs = recipe(analysis.id, files, tmp_path / "theirs")["all_stats"].sort("Text")
    ours = analysis.function(StepView.of(convert(list(files.values()), Options()))).collect()
    assert ours.height == theirs.height > 0
    for column in analysis.columns:
        mine, other = ours[column.name].to_list(), theirs[str(column.header)].to_list()
        if column.name == "text":
            assert mine == other
        else:
            assert mine == pytest.approx(other, abs=_ROUNDED), column.name
