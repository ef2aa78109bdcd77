"""B08: who waits for whom, and rates, worked out by hand."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.hand import Hand
from tests.helpers.rank_traces import grouped_traces
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

_ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def _ranks(*durations: tuple[int, ...], **facts: int) -> Hand:
    """One all-reduce after the other on each rank; `durations` are those of a rank."""
    hand = Hand()
    for rank, each in enumerate(durations):
        hand.run(rank, rank=rank, **facts)
        for number, duration in enumerate(each):
            hand.work(_ALL_REDUCE, 1000 * number + 100 * rank, duration, run_id=rank)
    return hand


def test_ranks_wait_for_the_one_with_the_shortest_kernels() -> None:
    # First: 50 and 30; second: 80 and 20; both end with rank 1, the last to come.
    row = run(find("B08"), StepView.of(_ranks((50, 80), (30, 20)).build())).table.row(0, named=True)
    assert (row["operation"], row["rank_count"], row["count"], row["matched_count"]) == ("all_reduce", 2, 2, 2)
    assert (row["duration_ns"], row["transfer_ns"], row["wait_ns"], row["skew_ns"]) == (90, 50, 40, 80)
    assert (row["straggler"], row["straggler_share"], row["bytes"]) == (1, 1.0, None)


def test_an_operation_that_a_rank_lacks_is_not_matched() -> None:
    row = run(find("B08"), StepView.of(_ranks((50, 80), (30,)).build())).table.row(0, named=True)
    assert (row["count"], row["matched_count"], row["transfer_ns"], row["wait_ns"]) == (1.5, 1, 30, 10)


def test_a_lone_rank_waits_for_nobody_that_is_known() -> None:
    row = run(find("B08"), StepView.of(_ranks((50,)).build())).table.row(0, named=True)
    assert (row["duration_ns"], row["matched_count"]) == (50, 0)
    assert [row[c] for c in ("transfer_ns", "wait_ns", "skew_ns", "straggler", "straggler_share")] == [None] * 5


def test_only_what_runs_beside_no_kernel_is_exposed() -> None:
    hand = _ranks((100,))
    hand.work("gemm", 20, 30, stream_id=8)
    hand.work("gemm", 40, 30, stream_id=9)
    hand.work("Memcpy", 90, 50, stream_id=9, kind="memcpy")
    assert run(find("B08"), StepView.of(hand.build())).table["exposed_ns"].to_list() == [50]


def test_rates_are_those_of_the_tensors_handed_over() -> None:
    # 1,000 floats in 40 ns: 100 GB/s; over the link of one of four ranks 2 x 3 / 4 of that.
    hand = Hand()
    hand.run(0, rank=0, world_size=4)
    handed_over = hand.span("operator", "operator", "record_param_comms", 0, 50)
    hand.extra["collectives"] = [{"span_id": handed_over, "input_bytes": 4000}]
    around = hand.span("library", "range", "nccl:all_reduce", 5, 30, parent_id=handed_over)
    hand.work("ncclDevKernel_SendRecv(ncclDevComm*)", 100, 40, launch=10, parent=around)
    row = run(find("B08"), StepView.of(hand.build())).table.row(0, named=True)
    assert (row["operation"], row["bytes"]) == ("all_reduce", 4000)
    assert (row["byte_per_s"], row["bus_byte_per_s"]) == (pytest.approx(100e9), pytest.approx(150e9))


def test_groups_of_one_job_wait_among_themselves(tmp_path: Path) -> None:
    # Worked out on paper from the durations in `grouped_traces`; over all ranks nothing of this could be told.
    paths = [trace.write(tmp_path / f"rank{i}.json") for i, trace in enumerate(grouped_traces())]
    table = run(find("B08"), StepView.of(convert(paths, Options()), "all")).table
    columns = ("process_group", "rank_count", "group_size", "count", "matched_count")
    assert table.select(columns).rows() == [
        ("dp [1, 3]", 2, 2, 1.0, 1.0),
        ("dp [0, 2]", 2, 2, 1.0, 1.0),
        ("tp [0, 1]", 2, 2, 2.0, 2.0),
        ("tp [2, 3]", 2, 2, 2.0, 2.0),
    ]
    times = ("duration_ns", "transfer_ns", "wait_ns", "skew_ns", "straggler", "straggler_share", "bytes")
    assert table.select(times).rows() == [
        (205.0, 110.0, 95.0, 190.0, 1, 1.0, 1600.0),
        (175.0, 150.0, 25.0, 50.0, 2, 1.0, 1600.0),
        (125.0, 70.0, 55.0, 110.0, 0, 0.5, 8000.0),
        (100.0, 45.0, 55.0, 110.0, 2, 1.0, 8000.0),
    ]
    # Two ranks reduce at 2 x 1/2 of the message over each link, not at the 2 x 3/4 of the job's four.
    assert table["bus_byte_per_s"].to_list() == table["byte_per_s"].to_list()
    assert table["byte_per_s"][3] == pytest.approx(8000 / 45e-9)


@pytest.mark.parametrize(
    ("operation", "sizes", "message", "factor"),
    [
        ("all_reduce", (800, 800), 800, 1.5),
        ("all_gather", (800, 3200), 3200, 0.75),
        ("reduce_scatter", (3200, 800), 3200, 0.75),
        ("all_to_all", (800, 800), 800, 0.75),
        ("broadcast", (800, 800), 800, 1.0),
        ("all_gather", (800, 800), None, None),  # which of the two it is, a version of the framework knows
        ("barrier", (4, 4), 4, None),
    ],
)
def test_the_bus_rate_is_that_of_nccl_tests(
    operation: str, sizes: tuple[int, int], message: int | None, factor: float | None
) -> None:
    hand = Hand()
    hand.run(0, rank=0, world_size=16)
    kernel = hand.work(_ALL_REDUCE, 0, 40)
    facts = {"operation": operation, "group_name": "g", "group_size": 4}
    hand.extra["collectives"] = [{"span_id": kernel, **facts, "input_bytes": sizes[0], "output_bytes": sizes[1]}]
    row = run(find("B08"), StepView.of(hand.build())).table.row(0, named=True)
    rate = None if message is None else message / 40e-9
    bus = None if rate is None or factor is None else rate * factor
    assert (row["operation"], row["process_group"], row["group_size"], row["bytes"]) == (operation, "g", 4, sizes[0])
    assert (row["byte_per_s"], row["bus_byte_per_s"]) == (
        None if rate is None else pytest.approx(rate),
        None if bus is None else pytest.approx(bus),
    )


def test_what_packs_a_message_is_no_call_of_its_own() -> None:
    hand = Hand()
    hand.run(0, rank=0)
    handed_over = hand.span("operator", "operator", "record_param_comms", 0, 50)
    hand.extra["collectives"] = [{"span_id": handed_over, "operation": "all_gather", "input_bytes": 4000}]
    hand.work("void at::native::unrolled_elementwise_kernel<direct_copy>", 60, 10, launch=5, parent=handed_over)
    hand.work("ncclDevKernel_AllGather_RING_LL", 100, 40, launch=15, parent=handed_over)
    of_a_library = hand.span("operator", "operator", "vllm::all_reduce", 200, 50)
    hand.work("a_kernel_of_their_own", 260, 7, launch=210, parent=of_a_library)  # nothing else tells of this one
    table = run(find("B08"), StepView.of(hand.build())).table
    assert table.select("operation", "count", "bytes", "duration_ns").rows() == [
        ("all_gather", 1, 4000, 40),
        ("all_reduce", 1, None, 7),
    ]


def test_bytes_say_of_how_many_operations_they_are() -> None:
    hand = Hand()
    hand.run(0, rank=0)
    first = hand.work(_ALL_REDUCE, 0, 40)
    hand.work(_ALL_REDUCE, 100, 40)
    hand.extra["collectives"] = [{"span_id": first, "operation": "all_reduce", "input_bytes": 400}]
    row = run(find("B08"), StepView.of(hand.build())).table.row(0, named=True)
    assert (row["count"], row["sized_count"], row["bytes"]) == (2, 1, 400)
    assert row["byte_per_s"] == pytest.approx(400 / 40e-9)


def test_sends_are_matched_with_nobody() -> None:
    hand = Hand()
    for rank in (0, 1):
        hand.run(rank, rank=rank)
        kernel = hand.work("ncclDevKernel_SendRecv", 100 * rank, 10 + rank, run_id=rank)
        hand.extra.setdefault("collectives", []).append({"span_id": kernel, "operation": "send", "group_name": "pp"})
    row = run(find("B08"), StepView.of(hand.build())).table.row(0, named=True)
    assert (row["rank_count"], row["matched_count"], row["wait_ns"]) == (2, 0, None)


def test_devices_of_one_run_are_ranks() -> None:
    hand = Hand()
    hand.run(0)
    for device, duration in ((3, 80), (5, 20)):
        hand.work(_ALL_REDUCE, 100 - duration, duration, device_id=device)
    row = run(find("B08"), StepView.of(hand.build())).table.row(0, named=True)
    assert (row["rank_count"], row["count"], row["transfer_ns"], row["wait_ns"]) == (2, 1, 20, 30)
    assert (row["straggler"], row["straggler_share"]) == (5, 1.0)


@pytest.mark.real
def test_eight_real_ranks_wait_for_the_seventh(real_dir: Path) -> None:
    files = sorted((real_dir / "kineto" / "dlrm_8rank.v100").glob("*.gz"))
    durations = [
        [int(e["dur"]) for e in _events(path) if e.get("cat") == "kernel" and "SendRecv" in e["name"]] for path in files
    ]
    calls = list(zip(*durations, strict=True))
    transfer = 1000 * sum(min(call) for call in calls)
    table = run(find("B08"), StepView.of(convert(files, Options()), "all")).table
    row = table.filter(pl.col("operation") == "all_to_all").row(0, named=True)
    assert (row["duration_ns"], row["transfer_ns"]) == (1000 * sum(map(sum, calls)) / 8, transfer)
    assert (round(row["duration_ns"] / 1e6, 3), round(row["wait_ns"] / 1e6, 3)) == (4.742, 4.700)
    assert (row["straggler"], row["straggler_share"]) == (7, 0.8)
    assert row["sized_count"] == 5


@pytest.mark.real
def test_bytes_of_a_real_trace_are_those_of_its_arguments(real_dir: Path) -> None:
    path = real_dir / "kineto" / "nccl_training.json.gz"
    kernels = [e["args"] for e in _events(path) if e.get("cat") == "kernel" and "nccl" in e["name"]]
    assert len(kernels) == 21
    sizes = {"Float": 4, "Long": 8}
    expected = {"all_reduce": 0, "broadcast": 0}
    for args in kernels:
        name = {"allreduce": "all_reduce"}.get(args["Collective name"], args["Collective name"])
        expected[name] += args["In msg nelems"] * sizes[args["dtype"]]
    table = run(find("B08"), StepView.of(convert([path], Options()), "all")).table
    assert dict(table.select("operation", "bytes").iter_rows()) == expected
    assert table["count"].sum() == table["sized_count"].sum() == 21
    assert table["process_group"].to_list() == ["0 [0, 1]"] * 2


@pytest.mark.real
def test_two_real_gpus_of_one_report_wait_for_each_other(real_dir: Path) -> None:
    # All kernels of both devices are on one clock: who starts last is the shortest, and both end together.
    path = real_dir / "nsys" / "h100_mfu_before_2gpu.nsys2026_2.sqlite"
    query = (
        "SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName"
        " WHERE s.value LIKE '%SendRecv%' ORDER BY deviceId, start"
    )
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        rows = database.execute(query).fetchall()
    pairs = list(zip(*([r[1:] for r in rows if r[0] == device] for device in (0, 1)), strict=True))
    shared = sum(min(end for _, end in pair) - max(start for start, _ in pair) for pair in pairs)
    table = run(find("B08"), StepView.of(convert([path], Options()), "all")).table
    assert table["rank_count"].to_list() == [2, 2]
    assert table["transfer_ns"].sum() == pytest.approx(shared, rel=0.02)


def _events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        return list(json.load(file)["traceEvents"])


def test_a_trace_without_communication_is_answered_in_a_sentence() -> None:
    hand = Hand()
    hand.run(0)
    hand.work("gemm", 0, 10)
    with pytest.raises(XspError, match="needs communication "):
        run(find("B08"), StepView.of(hand.build()))
