"""Bytes that a rank of a collective sends, by hand and as B08 has them."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from tests.helpers.hand import Hand
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames.collectives import modelled_collectives
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_SHAPES: dict[str, tuple[int | None, int | None]] = {  # of a group of four: what is handed over, what is received
    "all_reduce": (4000, 4000),
    "all_gather": (1000, 4000),
    "reduce_scatter": (4000, 1000),
    "all_to_all": (4000, 4000),
    "broadcast": (4000, None),
    "send": (4000, None),
    "recv": (None, 4000),
    "all_gather_object": (4000, None),
}


def kernels_of(facts: dict[str, tuple[int | None, int | None]], ranks: int | None) -> Trace:
    """One kernel of 40 ns each 100 ns, of a rank of one group."""
    hand = Hand()
    hand.run(0, rank=0)
    hand.extra["collectives"] = []
    for number, (operation, (sent, received)) in enumerate(facts.items()):
        kernel = hand.work("ncclDevKernel_SendRecv(ncclDevComm*)", 100 * number, 40, launch=100 * number)
        hand.extra["collectives"].append(
            {
                "span_id": kernel,
                "operation": operation,
                "group_size": ranks,
                "input_bytes": sent,
                "output_bytes": received,
            }
        )
    return hand.build()


def bus_bytes(trace: Trace) -> list[float | None]:
    return modelled_collectives(StepView.of(trace).of_trace)["bus_bytes"].to_list()


def test_each_operation_has_the_factor_of_the_tests_of_nccl() -> None:
    # Twice three quarters; three quarters of the whole, three times; all; and nothing is defined for objects.
    assert bus_bytes(kernels_of(_SHAPES, 4)) == [6000, 3000, 3000, 3000, 4000, 4000, 4000, None]


def test_a_group_of_one_sends_nothing_and_an_unknown_group_nothing_that_is_known() -> None:
    assert bus_bytes(kernels_of({"all_reduce": (4000, 4000)}, 1)) == [0]
    assert bus_bytes(kernels_of({"all_reduce": (4000, 4000)}, None)) == [None]
    assert bus_bytes(kernels_of({"all_reduce": (None, None)}, 1)) == [None]


def test_bytes_over_time_are_the_bus_bandwidth_of_b08() -> None:
    trace = kernels_of(_SHAPES, 4)
    table = run(find("B08"), StepView.of(trace)).table
    rates = {row["operation"]: row["bus_byte_per_s"] for row in table.iter_rows(named=True)}
    for operation, sent in zip(_SHAPES, bus_bytes(trace), strict=True):
        of_known_time = operation not in {"send", "recv"}  # without its other end, what of it was waiting
        assert rates[operation] == (pytest.approx(sent / 40e-9) if sent and of_known_time else None)


@pytest.mark.real
def test_two_real_ranks_send_each_other_what_the_file_says(real_dir: Path) -> None:
    # In a group of two an all-reduce sends 2 x 1/2 of its message, a broadcast the message.
    path = real_dir / "kineto" / "nccl_training.json.gz"
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    messages = [e["args"] for e in events if e.get("cat") == "kernel" and "nccl" in e["name"]]
    sizes = {"Float": 4, "Long": 8}
    expected = sum(args["In msg nelems"] * sizes[args["dtype"]] for args in messages)
    frames = StepView.of(convert([path], Options()), "all")
    assert modelled_collectives(frames.of_trace)["bus_bytes"].sum() == expected
    rates = run(find("B08"), frames).table
    assert rates["bus_byte_per_s"].to_list() == [pytest.approx(rate) for rate in rates["byte_per_s"]]
