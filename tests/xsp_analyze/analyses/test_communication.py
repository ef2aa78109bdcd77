"""What is sent to whom and what for: unequal parts, copy engines, collectives on the host, hooks of FSDP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.rank_traces import collective_args, write_ranks
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SEND_RECV = "ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)"
_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
_SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"


def _rows(identity: str, folder: Path, traces: Sequence[KinetoTrace]) -> pl.DataFrame:
    return run(find(identity), StepView.of(convert(write_ranks(folder, traces), Options()))).table


def _exchange(rank: int, split: str, ranks: Sequence[int], elements: int) -> KinetoTrace:
    trace = KinetoTrace(process_id=100 + rank, distributedInfo={"rank": rank, "world_size": 4})
    trace.step(0, 0, 900_000)
    trace.operator("c10d::alltoall_base_", 100_000, 60_000)
    args = collective_args("all_to_allv", "ep", ranks, (elements, elements), "BFloat16")
    launch = trace.runtime("cudaLaunchKernel", 120_000, 5_000)
    trace.kernel(_SEND_RECV, 200_000, 100_000, correlation=launch, args={**args, "In split size": split})
    return trace


def test_of_unequal_parts_each_rank_sends_at_its_own_rate(tmp_path: Path) -> None:
    """Ranks 2 and 3 keep 1 and 4 thousand elements of two bytes, and send the rest: 6 and 2 kB in 100 us."""
    ranks = [_exchange(2, "[1000, 3000]", [2, 3], 4000), _exchange(3, "[1000, 4000]", [2, 3], 5000)]
    rows = _rows("B30", tmp_path, ranks).sort("rank")
    assert rows.select("sent_bytes", "sent_byte_per_s").rows() == [(6000, 6e7), (2000, 2e7)]
    assert rows["sent_over_mean_share"].to_list() == pytest.approx([0.5, -0.5])


def test_the_operations_rate_is_that_of_what_was_sent(tmp_path: Path) -> None:
    ranks = [_exchange(2, "[1000, 3000]", [2, 3], 4000), _exchange(3, "[1000, 4000]", [2, 3], 5000)]
    assert _rows("B08", tmp_path, ranks)["bus_byte_per_s"].to_list() == [4e7]


@pytest.mark.parametrize("split", ["[]", "[1000, ..., 3000]", "no list"])
def test_parts_that_are_not_all_there_are_taken_for_equal(tmp_path: Path, split: str) -> None:
    rows = _rows("B08", tmp_path, [_exchange(rank, split, [2, 3], 4000) for rank in (2, 3)])
    assert rows["bus_byte_per_s"].to_list() == [8000 * 0.5 * 1e9 / 100_000]


def test_a_gather_by_copy_engines_is_an_all_gather(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.operator("c10d::_allgather_base_", 130_000, 60_000)
    trace.annotation("nccl:_all_gather_base", 135_000, 50_000)
    trace.copy("PtoP", 140_000, 150_000, 300_000, size=2_000_000, memory=("Device", "Device"))
    rows = _rows("B08", tmp_path, [trace])
    assert rows.select("operation", "duration_ns").rows() == [("all_gather", 300_000)]


def test_a_copy_between_devices_is_of_the_communication_around_it_and_alone_a_copy(tmp_path: Path) -> None:
    """Symmetric memory: the fused operator calls `aten::copy_` for each piece, and products beside it."""
    trace = KinetoTrace()
    trace.operator("symm_mem::fused_all_gather_matmul", 10_000, 500_000)
    for start, direction in ((20_000, "PtoP"), (120_000, "DtoD"), (800_000, "PtoP")):
        trace.operator("aten::copy_", start, 30_000)
        trace.copy(direction, start + 5_000, start + 40_000, 30_000, size=1000, memory=("Device", "Device"))
    trace.operator("aten::mm", 60_000, 30_000)
    trace.launch("gemm", 65_000, 200_000, 400_000)
    view = StepView.of(convert(write_ranks(tmp_path, [trace]), Options()))
    assert view.of_trace.all_activities["kernel_class"].to_list() == ["communication", "copy", "matrix product", "copy"]


def _gloo(own: int, wait: int, **head: object) -> KinetoTrace:
    """The call returns at once; a thread of Gloo's exchanges, from then to 2 ms, in which 1 ms is computed."""
    head = {"rank": own, "world_size": 2, "pg_count": 1, **head}
    trace = KinetoTrace(process_id=100 + own, distributedInfo=head)
    trace.step(0, 0, 3_000_000)
    for start, name, gloo, values in (
        (500_000, "c10d::alltoall_base_", "gloo:all_to_all", ["", "", "", "[2, 1]", "[1, 2]", "False", "-1"]),
        (
            2_100_000,
            ("c10d::send", "c10d::recv_")[own],
            ("gloo:send", "gloo:recv")[own],
            ["", "", str(1 - own), "0"],
        ),
    ):
        trace.operator(name, start, 20_000, shapes=[[3, 8], [3, 8]])
        trace.events[-1]["args"]["Concrete Inputs"] = values  # type: ignore[index]
        end = 2_000_000 if "all" in gloo else 2_500_000
        begun = start + 30_000 + (wait if "all" in gloo else 0)
        trace.annotation(gloo, begun, end - begun, thread_id=9)
        trace.events[-1]["args"] |= {"Input Dims": [[3, 8]], "Input type": ["float"]}  # type: ignore[operator]
    trace.operator("aten::mm", 600_000, 1_000_000)
    return trace


def test_collectives_on_the_host_are_matched_and_sized_by_their_calls(tmp_path: Path) -> None:
    rows = _rows("B08", tmp_path, [_gloo(0, 0), _gloo(1, 970_000)])
    exchange = rows.row(by_predicate=pl.col("operation") == "all_to_all", named=True)
    assert exchange["transfer_ns"] == 500_000
    assert exchange["wait_ns"] == pytest.approx((1_470_000 - 500_000) / 2)
    assert exchange["exposed_ns"] == pytest.approx((470_000 + 400_000) / 2)
    assert exchange["bus_byte_per_s"] == pytest.approx((2 * 32 + 1 * 32) / 2 * 1e9 / 500_000)


def test_a_receive_on_the_host_is_matched_with_the_send_of_its_peer(tmp_path: Path) -> None:
    rows = _rows("B08", tmp_path, [_gloo(0, 0), _gloo(1, 0)])
    assert rows.filter(pl.col("operation") == "recv")["transfer_ns"].to_list() == [370_000]


def test_a_peer_that_a_call_numbers_within_one_of_several_groups_is_not_known(tmp_path: Path) -> None:
    rows = _rows("B08", tmp_path, [_gloo(0, 0, pg_count=2), _gloo(1, 0, pg_count=2)])
    assert rows.filter(pl.col("operation") == "recv")["matched_count"].to_list() == [0]


def test_a_peer_that_says_no_group_is_of_the_one_of_the_pipeline(tmp_path: Path) -> None:
    """Ranks 4 and 6 of the job are the stages; either calls the other by its place among these."""
    config = [
        {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": list(range(8))},
        {"pg_name": "3", "pg_desc": "mesh_pp", "pg_size": 2, "ranks": [4, 6]},
    ]
    heads = [{"rank": rank, "world_size": 8, "pg_count": 2, "pg_config": config} for rank in (4, 6)]
    rows = _rows("B08", tmp_path, [_gloo(number, 0, **head) for number, head in enumerate(heads)])
    receive = rows.filter(pl.col("operation") == "recv")
    assert receive.select("process_group", "matched_count").rows() == [("mesh_pp 3 [4, 6]", 1)]
    assert receive["transfer_ns"].to_list() == [370_000]


def _sharded(ahead: int) -> KinetoTrace:
    """Three layers; in the backward pass, on a thread of its own, each is gathered so many layers before its turn."""
    trace = KinetoTrace(distributedInfo={"rank": 0, "world_size": 2})
    trace.step(0, 0, 9_000_000)
    trace.module("Net_0", 1_000, 2_900_000)

    def gather(layer: int, start: int, thread: int | None = None) -> None:
        trace.annotation(f"FSDP::all_gather (layers.{layer})", start, 60_000, thread_id=thread)
        trace.operator("c10d::_allgather_base_", start + 5_000, 40_000, thread_id=thread)
        launch = trace.runtime("cudaLaunchKernel", start + 10_000, 5_000, thread_id=thread)
        args = collective_args("_allgather_base", "0", [0, 1], (1000, 2000))
        trace.kernel(_GATHER, start + 30_000, 100_000, correlation=launch, stream_id=20, args=args)

    for layer in range(3):
        start = 10_000 + layer * 900_000
        trace.module(f"Block_{layer}", start, 800_000)
        trace.annotation(f"FSDP::pre_forward (layers.{layer})", start + 5_000, 100_000)
        gather(layer, start + 10_000)
    for turn, layer in enumerate((2, 1, 0)):
        start = 4_000_000 + turn * 900_000
        trace.annotation(f"FSDP::pre_backward (layers.{layer})", start, 300_000, thread_id=77)
        for number, other in enumerate(range(layer - ahead if turn else 2, layer - ahead - 1, -1)):
            if other >= 0:
                gather(other, start + 10_000 + 70_000 * number, 77)
        trace.annotation(f"FSDP::post_backward_reduce (layers.{layer})", start + 500_000, 80_000, thread_id=77)
        trace.operator("c10d::_reduce_scatter_base_", start + 505_000, 40_000, thread_id=77)
        launch = trace.runtime("cudaLaunchKernel", start + 510_000, 5_000, thread_id=77)
        args = collective_args("_reduce_scatter_base", "0", [0, 1], (2000, 1000))
        trace.kernel(_SCATTER, start + 540_000, 110_000, correlation=launch, stream_id=24, args=args)
    return trace


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_what_a_hook_of_fsdp_does_is_its_modules(tmp_path: Path, ahead: int) -> None:
    rows = _rows("B47", tmp_path, [_sharded(ahead)])
    weights = rows.filter(pl.col("use") == "sharded weights").sort("phase", "module")
    assert weights.select("phase", "module", "duration_ns").rows() == [
        (phase, f"layers.{n}", 100_000) for phase in ("backward", "forward") for n in range(3)
    ]
    expected = [float(min(ahead, 2)), float(min(ahead, 1)), 0.0]
    assert weights.filter(pl.col("phase") == "backward")["modules_ahead"].to_list() == expected
    assert rows.filter(pl.col("use") == "sharded gradients")["duration_ns"].to_list() == [110_000] * 3
    layers = _rows("A11", tmp_path, [_sharded(ahead)])
    assert dict(layers.select("layer_name", "kernel_duration_ns").iter_rows()) == {
        f"Block_{n}": 100_000 + 100_000 + 110_000 for n in range(3)
    }


def test_what_the_hooks_of_the_root_gather_are_sharded_weights(tmp_path: Path) -> None:
    """They name no path: `FSDP::all_gather` in `FSDP::root_pre_forward`."""
    trace = KinetoTrace(distributedInfo={"rank": 0, "world_size": 2})
    trace.step(0, 0, 1_000_000)
    trace.annotation("FSDP::root_pre_forward", 5_000, 90_000)
    trace.annotation("FSDP::all_gather", 10_000, 60_000)
    trace.operator("c10d::_allgather_base_", 15_000, 40_000)
    launch = trace.runtime("cudaLaunchKernel", 20_000, 5_000)
    args = collective_args("_allgather_base", "0", [0, 1], (1000, 2000))
    trace.kernel(_GATHER, 40_000, 100_000, correlation=launch, stream_id=20, args=args)
    assert _rows("B47", tmp_path, [trace]).select("module", "use").rows() == [(None, "sharded weights")]


def test_the_parts_of_a_cut_list_stay_cut(tmp_path: Path) -> None:
    trace = convert(write_ranks(tmp_path, [_exchange(0, "[1, 2, ..., 9]", [0, 1], 4000)]), Options())
    parts = trace.frame("collectives")["input_split"].drop_nulls().to_list()
    assert set(parts) == {"[2, 4, ..., 18]"}
    assert json.loads(trace.frame("collectives")["group_ranks"].drop_nulls()[0]) == [0, 1]
