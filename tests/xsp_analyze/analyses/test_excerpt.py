"""Answers from the rows that they are made of alone, beside those from the whole trace."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth_nsys import SCHEMAS, THREAD, NsightFile, global_id
from xsp_analyze.catalog import all_analyses
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert, excerpt
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from xsp_analyze.core import Analysis
    from xsp_model import Trace

_DECLARED = [one for one in all_analyses() if one.reads is not None]
_FIXTURES = Path(__file__).parents[3] / "fixtures" / "nsys_sqlite"
_REAL = (
    "cloverleaf.a100.nsys2024_5",
    "h100_fsdp_2gpu.nsys2026_2",
    "h100_mfu_before_2gpu.nsys2026_2",
    "no_cuda_tables.rtx4090.nsys2023_4",
    "no_kernels.rtx5060ti.nsys2025_1",
    "saxpy_mpi.a100.nsys2022_2",
)


def _answer(one: Analysis, trace: Trace) -> pl.DataFrame | str:
    try:
        return run(one, StepView.of(trace)).table
    except XspError as error:
        return str(error)


def _check(path: Path) -> int:
    """Compares all that declare what they read; how many of them had something to say."""
    full = convert([path], Options())
    answered = 0
    for one in _DECLARED:
        assert one.reads is not None
        part = excerpt([path], one.reads)
        if full.frame("runs").height > 1:  # processes of several ranks, which only the whole file tells apart
            assert part is None
            continue
        assert part is not None
        expected, answer = _answer(one, full), _answer(one, part)
        if isinstance(expected, str):
            assert answer == expected
            continue
        assert isinstance(answer, pl.DataFrame), answer
        assert answer.equals(expected), one.id
        assert answer.schema == expected.schema
        answered += expected.height > 0
    return answered


def test_the_reports_that_people_ask_for_most_declare_what_they_read() -> None:
    assert {one.id for one in _DECLARED} >= {"cuda_gpu_kern_sum", "cuda_api_sum", "nvtx_sum", "nvtx_gpu_proj_sum"}


@pytest.mark.parametrize(
    "name",
    [str(path.relative_to(_FIXTURES)) for path in sorted(_FIXTURES.rglob("*.sqlite")) if "bad" not in path.parts],
)
def test_a_fixture(name: str) -> None:
    _check(_FIXTURES / name)


@pytest.mark.real
@pytest.mark.parametrize("name", _REAL)
def test_a_real_capture(real_dir: Path, name: str) -> None:
    _check(real_dir / "nsys" / f"{name}.sqlite")


@pytest.mark.parametrize("schema", SCHEMAS)
def test_rows_that_are_odd(schema: str, tmp_path: Path) -> None:
    file = NsightFile(schema)
    file.gpu()
    file.session(epoch_ns=1, duration_ns=500)
    file.domain(3, "library")
    file.range(0, 100, "outer")
    file.range(10, 50, "step 3", registered=True)
    file.range(10, 50, "equal to it")
    file.range(60, None, "never closed", style="StartEnd")
    file.range(5, 90, "closed elsewhere", style="StartEnd", end_thread=102)
    file.range(61, 80, "in a domain", domain=3)
    file.range(62, 79, None)
    file.range(70, 60, "ends before it starts")
    file.range(70, 6000, "longer than the capture")
    file.mark(11, "mark")
    both = file.correlation()
    file.call(65, 70, "cudaMemcpy_v3020", correlation=both)
    file.call(66, 69, "cuMemcpy_v2", correlation=both)
    file.call(67, 9000, "longer than the capture")
    file.call(68, 60, "ends before it starts")
    file.memcpy(80, 85, 1, correlation=both)
    file.memset(91, 91, correlation=4000)
    file.launch((20, 25), (30, 40), "late")
    file.launch((15, 16), (25, 29), "early", thread=5)
    file.launch((12, 13), (28, 8000), "longer than the capture")
    for _ in range(2):  # the same row twice
        file.kernel(30, 40, "twice", correlation=77)
    file.kernel(30, 40, "like it on another stream", correlation=77, stream=8)
    file.kernel(45, 41, "ends before it starts")
    file.kernel(300, 305, "launch not recorded", correlation=1000)
    kernel = file.rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    kernel.append({**kernel[0], "start": 33, "end": None})
    kernel.append({**kernel[0], "start": None, "end": 34})
    kernel.append({**kernel[0], "start": 35, "end": 36, "demangledName": None})
    kernel.append({**kernel[0], "start": 37, "end": 38, "demangledName": None, "shortName": None, "mangledName": None})
    file.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=None, end=3, globalTid=global_id(100, THREAD), correlationId=900)
    assert _check(file.write(tmp_path / "odd.sqlite")) == len(_DECLARED)


def test_no_work_but_whole_replays_of_graphs(tmp_path: Path) -> None:
    file = NsightFile("3.25")
    file.gpu()
    file.range(0, 20, "replay")
    file.call(5, 9, "cudaGraphLaunch_v10000", correlation=1)
    file.graph_trace(60, 90, graph=8, correlation=1)
    _check(file.write(tmp_path / "graphs.sqlite"))


@pytest.mark.parametrize("seed", range(5))
def test_rows_in_any_order(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)  # noqa: S311 (a test's dice)
    file = NsightFile()
    file.gpu()
    for process in (1000, 1001):
        for _ in range(40):
            start, thread = choose.randint(0, 60), choose.choice((101, 102))
            file.range(start, start + choose.randint(0, 40), choose.choice("ab"), thread=thread, process=process)
            end = start + choose.randint(0, 5)
            work = (end, end + choose.randint(1, 30))
            file.launch((start, end), work, choose.choice("kl"), thread=thread, process=process)
    file.memcpy(0, 7)
    file.range(1, 50, "from anywhere", style="StartEnd")
    for rows in file.rows.values():
        choose.shuffle(rows)
    assert _check(file.write(tmp_path / "shuffled.sqlite")) == len(_DECLARED)


def test_what_is_no_single_sound_capture_is_left_to_whole_reading(tmp_path: Path, fixtures_dir: Path) -> None:
    file = NsightFile().write(tmp_path / "a.sqlite")
    damaged = tmp_path / "broken.sqlite"
    damaged.write_bytes(file.read_bytes()[:3000])
    columns = {"kernels": ("name",)}
    assert excerpt([file, file], columns) is None
    assert excerpt([tmp_path], columns) is None
    assert excerpt([damaged], columns) is None
    assert excerpt([file], columns, format="torch_profiler") is None
    assert excerpt([next((fixtures_dir / "torch_profiler").rglob("*.json*"))], columns) is None
