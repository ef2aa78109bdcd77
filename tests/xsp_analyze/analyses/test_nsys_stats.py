"""NVIDIA's own nsys, run on files that the tests make, prints what our reports say."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest

from tests.helpers.nsys_answers import differences
from tests.helpers.nsys_tool import stats
from tests.helpers.synth_nsys import PROCESS, THREAD, NsightFile, global_id
from xsp_analyze.catalog import analyses_in
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.formats.nsys.tables.host import OS_RUNTIME
from xsp_ingest.ingester import Options

pytestmark = pytest.mark.nsys


_WITHOUT_UNIFIED_MEMORY = len(analyses_in("nsys")) - 3


def _compare(file: NsightFile, *, expected: int = _WITHOUT_UNIFIED_MEMORY) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = file.write(Path(folder) / "made.sqlite")
        answers = stats(path, [report.id for report in analyses_in("nsys")])
        view = StepView.of(convert([path], Options(extra={OS_RUNTIME: "yes"})))
        reports = [report for report in analyses_in("nsys") if report.id in answers]
        differing = [(r.id, differences(r, r.function(view).collect(), answers[r.id])) for r in reports]
    assert [each for each in differing if each[1]] == []
    assert len(differing) == expected


def _odd_file(schema: str = "3.7") -> NsightFile:
    """Every oddity of ranges and launches that we know of."""
    file = NsightFile(schema)
    file.gpu()
    file.domain(3, "library")
    file.range(0, 100, "outer")
    file.range(10, 50, "inner", registered=True)
    file.range(10, 50, "equal to inner")
    file.range(12, 40, "below both")
    file.range(60, None, "never closed", style="StartEnd")
    file.range(5, 90, "closed elsewhere", style="StartEnd", end_thread=102)
    file.range(61, 80, "in a domain", domain=3)
    file.range(61, 80, "in an unknown domain", domain=4)
    file.range(62, 79, None)
    file.range(62, 79, None, domain=3)
    file.range(62, 79, "", style="StartEnd")
    file.range(18, 64, "overlaps", style="NVTXT StartEnd")
    file.range(15, 15, "empty", style="NVTXT PushPop")
    file.launch((20, 25), (30, 40), "a")
    file.launch((20, 25), (22, 24), "started before its call ended")
    file.launch((65, 66), (70, 90), "b<int, 4>")
    file.launch((200, 201), (202, 203), "in no range")
    file.launch((15, 16), (170, 190), "on another thread", thread=5)
    _libraries(file)
    return file


def _libraries(file: NsightFile) -> None:
    """Calls of the operating system and events of OpenMP and OpenACC, which have no reports where there are none."""
    for start, end, name in ((1, 9, "poll"), (2, 4, "read"), (5, 5, "read"), (7, 18, "poll")):
        file.event("OSRT_API", start, end, name, eventClass=27)
    file.event("OSRT_API", 0, 1000, "trace begins", eventClass=30)
    file.event("MPI_P2P_EVENTS", 10, 20, "MPI_Send", tag=5, remoteRank=1, size=1_500_000)
    file.event("MPI_COLLECTIVES_EVENTS", 30, 40, "MPI_Bcast", rootRank=0, size=7_000, recvSize=8, thread=7)
    file.event("MPI_START_WAIT_EVENTS", 41, 48, "MPI_Wait")
    file.event("MPI_OTHER_EVENTS", 50, 51, "MPI_Finalize")
    file.add("MPI_RANKS", globalTid=global_id(PROCESS, THREAD), rank=3)
    file.event("OPENMP_EVENT_KIND_PARALLEL", 3, 90, "Parallel")
    file.event("OPENMP_EVENT_KIND_PARALLEL", 100, 130, "Parallel", thread=7)
    file.event("OPENMP_EVENT_KIND_TASK", 10, 20, "Task")
    file.event("CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH", 10, 30, "Enqueue Launch", srcFile=file.string("a.c"), lineNo=7)
    file.event("CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH", 40, 55, "Enqueue Launch", srcFile=file.string("a.c"), lineNo=9)
    file.event("CUPTI_ACTIVITY_KIND_OPENACC_OTHER", 12, 19, "Wait", lineNo=0)


def test_odd_ranges_and_launches() -> None:
    file = _odd_file()
    both = file.correlation()
    file.call(65, 70, "cudaMemcpy_v3020", correlation=both)
    file.call(66, 69, "cuMemcpy_v2", correlation=both)
    file.call(67, 68, "cudaLaunchKernelExC_v11060")
    file.memcpy(80, 85, 1, correlation=both)
    file.memcpy(80, 86, 8, size=12_345_678, memory=(2, 2))
    file.memset(91, 91, correlation=4000)
    file.kernel(300, 305, "launch not recorded", correlation=1000, grid=(123456, 2, 1), block=(1024, 1, 1))
    file.kernel(301, 305, "launched by the device")
    _compare(file)


def test_two_processes_with_the_same_correlation_ids() -> None:
    file = NsightFile("3.13")
    file.gpu(0)
    file.gpu(1)
    for process, device in ((100, 0), (200, 1)):
        file.domain(1, f"of {process}", process=process)
        file.range(0, 50, "step", process=process, thread=process)
        file.range(5, 20, "part", process=process, thread=process, domain=1)
        for correlation in (1, 2):
            file.call(correlation * 10, correlation * 10 + 1, process=process, thread=process, correlation=correlation)
            file.kernel(
                30, 35 + process, f"kernel {correlation}", process=process, device=device, correlation=correlation
            )
    file.memset(3, 4)
    _libraries(file)
    _compare(file, expected=_WITHOUT_UNIFIED_MEMORY - 1)  # no range was started and ended


def test_the_kernels_of_a_graph_are_one_operation() -> None:
    file = NsightFile("3.25")
    file.gpu()
    file.range(0, 20, "replay")
    launch = file.correlation()
    file.call(5, 9, "cudaGraphLaunch_v10000", correlation=launch)
    for node in (1, 2, 3):
        file.kernel(node * 10, node * 10 + 5, "node", correlation=launch, graphNodeId=(7 << 32) + node, graphId=7)
    file.memset(50, 51, correlation=launch)
    file.graph_trace(60, 90, graph=8, correlation=launch)
    _compare(file, expected=_WITHOUT_UNIFIED_MEMORY - 5)  # no ranges started and ended, and no library's calls


def test_an_old_schema() -> None:
    file = _odd_file("2.9")
    _compare(file, expected=18)  # without the ENUM tables nsys skips what has copies


def test_unified_memory() -> None:
    file = NsightFile()
    page, other, third, fourth = (0x7F0000000000 + n for n in (0, 4096, 1 << 21, 1 << 22))
    for start, address in ((5, page), (7, page), (8, third)):
        file.faults(start, address)
    file.faults(9, third, instruction="fill")
    for start, address, count in ((6, page, 3), (8, other, 4), (9, page, 2)):
        file.faults(start, address, count)
    for start, end, kind, address, size in (
        (1, 9, 11, page, 4096), (12, 15, 11, page, 4096), (10, 19, 12, other, 65536), (20, 20, 12, fourth, 5),
        (30, 37, 13, page, 9), (38, 40, 1, page, 100),
    ):  # fmt: skip
        file.memcpy(start, end, kind, address=address, size=size)
    file.call(0, 5)
    _compare(file, expected=8)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_ranges_and_launches(seed: int) -> None:
    # One run of nsys takes seconds, so a hundred small cases share a file, each a process of its own.
    choose = random.Random(seed)  # noqa: S311 (a test's dice)
    file = NsightFile()
    file.gpu()
    for process in range(1000, 1100):
        file.domain(3, "d", process=process)
        for _ in range(choose.randint(1, 12)):
            start, thread = choose.randint(0, 60), choose.choice((101, 102))
            end = start + choose.randint(0, 40) if choose.random() < 0.95 else None
            text, domain = choose.choice(("a", "b", "aten::mm, op_id = 4")), choose.choice((0, 3))
            style = choose.choice(("PushPop", "StartEnd"))
            file.range(start, end, text, style=style, thread=thread, process=process, domain=domain)
        for _ in range(choose.randint(1, 12)):
            start, thread = choose.randint(0, 60), choose.choice((101, 102))
            end = start + choose.randint(0, 5)
            begun = end + choose.randint(-3, 20)
            work = (begun, begun + choose.randint(1, 30))
            file.launch((start, end), work, choose.choice("kl"), thread=thread, process=process)
    file.memcpy(0, 7)
    _libraries(file)
    _compare(file)
