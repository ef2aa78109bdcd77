"""B05: the calls of libraries and the device work that is theirs."""

from __future__ import annotations

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView


def test_work_stands_with_the_innermost_call_and_host_time_with_each() -> None:
    # cudnnForward [0,100) holds cublasGemmEx [20,60). One kernel of 30 by the latter, one of 7 by the former itself,
    # one of 5 by nobody.
    hand = Hand()
    hand.run(0)
    outer = hand.span("library", "call", "cudnnConvolutionForward", 0, 100)
    inner = hand.span("library", "call", "cublasGemmEx", 20, 40, parent_id=outer)
    hand.work("gemm", 120, 30, launch=25, parent=inner)
    hand.work("pad", 150, 7, launch=70, parent=outer)
    hand.work("add", 160, 5, launch=110)
    hand.span("library", "range", "myCall", 200, 10)
    table = run(find("B05"), StepView.of(hand.build())).table
    assert table.rows() == [
        ("cuBLAS", "cublasGemmEx", 1, 40, 40, 30, 1),
        ("cuDNN", "cudnnConvolutionForward", 1, 100, 60, 7, 1),
        (None, "myCall", 1, 10, 10, 0, 0),
    ]


def test_runtimes_of_messages_and_directives_are_libraries_by_name() -> None:
    hand = Hand()
    hand.run(0)
    for number, name in enumerate(("MPI_Send", "PMPI_Recv", "ucp_put_nbx", "OpenMP:Parallel", "OpenACC:Wait@a.c:7")):
        hand.span("library", "call", name, 100 * number, 50 - number)
    libraries = run(find("B05"), StepView.of(hand.build())).table["library"].to_list()
    assert libraries == ["MPI", "MPI", "UCX", "OpenMP", "OpenACC"]


def test_the_domain_of_a_range_names_the_library() -> None:
    hand = Hand()
    hand.run(0)
    call = hand.span("library", "range", "ncclAllReduce", 0, 10)
    hand.extra["ranges"] = [{"span_id": call, "text": "ncclAllReduce", "domain": "TheirNccl"}]
    assert run(find("B05"), StepView.of(hand.build())).table["library"].to_list() == ["TheirNccl"]


def test_a_mean_step_counts_each_call_once() -> None:
    hand = Hand()
    hand.run(0)
    for number, start in ((1, 0), (2, 1000)):
        step = hand.step(number, start, 500)
        call = hand.span("library", "call", "cublasSgemm", start + 10, 20 * number, parent_id=step, step=number)
        hand.work("gemm", start + 100, 50 * number, launch=start + 15, parent=call, step=number)
    table = run(find("B05"), StepView.of(hand.build())).table
    assert table.rows() == [("cuBLAS", "cublasSgemm", 1.0, 30.0, 30.0, 75.0, 1.0)]
