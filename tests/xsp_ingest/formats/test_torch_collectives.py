"""What PyTorch's traces say of collectives, in every way that they have said it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.rank_traces import collective_args
from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl


def _collectives(trace: KinetoTrace, tmp_path: Path) -> pl.DataFrame:
    converted = convert([trace.write(tmp_path / "trace.json")], Options())
    return converted.frame("collectives").drop("span_id")


@pytest.mark.parametrize(
    ("dtype", "element_bytes"),
    [("Float", 4), ("BFloat16", 2), ("Long", 8), ("Float8_e4m3fn", 1), ("ComplexDouble", 16), ("of tomorrow", None)],
)
def test_a_kernel_says_what_it_sent_among_whom(dtype: str, element_bytes: int | None, tmp_path: Path) -> None:
    trace = KinetoTrace()
    args = collective_args("_allgather_base", "7", (1, 3), (100, 200), dtype)
    trace.kernel("ncclDevKernel_AllGather", 0, 10, correlation=None, args=args)
    sizes = (None, None) if element_bytes is None else (100 * element_bytes, 200 * element_bytes)
    assert _collectives(trace, tmp_path).rows() == [("all_gather", "7", "[1, 3]", 2, *sizes, None, None, None)]


def test_what_is_empty_or_no_number_is_unknown(tmp_path: Path) -> None:
    trace = KinetoTrace()
    args = {**collective_args("barrier", "", (), (-1, 0)), "Group size": 0, "Process Group Ranks": ""}
    trace.kernel("ncclDevKernel_AllReduce", 0, 10, correlation=None, args=args)
    assert _collectives(trace, tmp_path).rows() == [("barrier", None, None, None, None, 0, None, None, None)]


@pytest.mark.parametrize(
    ("dims", "types", "sent"),
    [
        ([[10, 20]], ["float"], 800),
        ([[[10], [3, 2]]], ["c10::BFloat16"], 32),  # a list of tensors
        ([[10], [5]], ["float", "long int"], 80),
        ([[]], ["TensorList"], None),  # a list of which nothing is said
        ([[10], []], ["float", "Scalar"], 40),
        ([[]], ["float"], 4),  # one number
        ([[10]], ["of tomorrow"], None),
        ([[10, -1]], ["float"], None),
    ],
)
def test_older_traces_have_shapes_on_the_range_around_the_call(
    dims: list[object], types: list[str], sent: int | None, tmp_path: Path
) -> None:
    trace = KinetoTrace()
    args = {"Input Dims": dims, "Input type": types}
    trace.span("user_annotation", "nccl:all_reduce", 0, 50, args=args)
    trace.span("user_annotation", "my_own_range", 60, 50, args=args)
    trace.span("cpu_op", "record_param_comms", 200, 50, args=args)
    rows = _collectives(trace, tmp_path).select("operation", "input_bytes").rows()
    assert rows == [("all_reduce", sent), (None, sent)]
