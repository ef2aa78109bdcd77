"""How unevenly ranks share their experts' work, against answers worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.rank_traces import collective_args, rank_trace, write_rank
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.pages.ranks import findings, render
from xsp_analyze.ranks.job import experts_by_block, experts_by_rank, open_job, tables
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_analyze.ranks.job import Job

_MS = 1_000_000
_BACK = "ncclDevKernel_AllToAllPivot_RING_SIMPLE"
_STEP_MS = 100
_MOE = (  # products and combine of each rank, in each of two steps; 0: no such kernel
    ((10, 35), (20, 25)),
    ((40, 5), (40, 5)),
    ((10, 35), (0, 45)),
)
# On paper: step 0 has 10, 40, 10 (mean 20, longest 40) and waits of 30, 0, 30 beyond the shortest combine of 5;
# step 1 has 20, 40, 0 (mean 20, longest 40) and waits of 20, 0, 40.


def _trace(
    steps: Sequence[tuple[int, int]], blocks: Sequence[str] = (), args: Mapping[str, object] | None = None
) -> KinetoTrace:
    """Each step routes, does its products, and combines; of each block, if any, one after the other."""
    trace = KinetoTrace()
    for number, (products, combine) in enumerate(steps):
        start = number * _STEP_MS * _MS
        trace.step(number, start, _STEP_MS * _MS)
        at = start + _MS
        for order, block in enumerate(blocks or ("",)):
            launch = start + 1_000 + 100_000 * order
            if block:
                trace.annotation(str({"Module": f"{block}.experts", "Inputs": [[8, 64]]}), launch, 50_000)
            for position, (name, duration) in enumerate(
                (("topk_softmax", 1), ("fused_moe_kernel", products), (_BACK, combine))
            ):
                if duration:
                    call = trace.runtime("cudaLaunchKernel", launch + 6_000 * (position + 1), 5_000)
                    own = args if name == _BACK else None
                    trace.kernel(name, at, duration * _MS, correlation=call, args=own)
                    at += duration * _MS
    return trace


def _job(folder: Path, blocks: Sequence[str] = ()) -> Job:
    """The three ranks of _MOE, and a fourth that has no experts."""
    for rank, steps in enumerate(_MOE):
        write_rank(folder / "ranks" / f"rank-{rank}", rank, _trace(steps, blocks))
    write_rank(folder / "ranks" / "rank-3", 3, rank_trace(4, 3, length_ms=_STEP_MS))
    return open_job(folder, "job")


@pytest.mark.slow
def test_the_longest_rank_is_held_against_the_mean_of_those_that_have_experts(tmp_path: Path) -> None:
    row = experts_by_block(_job(tmp_path)).row(0, named=True)
    assert (row["block"], row["rank_count"], row["step_count"]) == (None, 3, 2)
    assert (row["mean_ns"], row["longest_ns"], row["lost_ns"]) == (20 * _MS, 40 * _MS, 20 * _MS)
    assert row["imbalance_share"] == pytest.approx(1.0)
    assert (row["heaviest_rank"], row["heaviest_count"]) == (1, 2)
    assert row["wait_ns"] == pytest.approx((20 + 20) / 2 * _MS)


@pytest.mark.slow
def test_each_block_is_held_by_itself_where_layers_are_recorded(tmp_path: Path) -> None:
    blocks = ("model.layers.0.mlp", "model.layers.1.mlp")
    table = experts_by_block(_job(tmp_path, blocks))
    assert table["block"].to_list() == list(blocks)
    assert table["imbalance_share"].to_list() == pytest.approx([1.0, 1.0])


def test_sends_and_receives_of_a_recorded_all_to_all_are_one(tmp_path: Path) -> None:
    """NCCL has no kernel of its own for it in most versions: what PyTorch records beside the kernel tells."""
    trace, group = KinetoTrace(), collective_args("all_to_allv", "ep", (0, 1), (64, 64))
    trace.step(0, 0, _STEP_MS * _MS)
    send = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    work = (("topk_softmax", None), (send, group), ("fused_moe_kernel", None), (send, group), (send, None))
    for position, (name, args) in enumerate(work):
        call = trace.runtime("cudaLaunchKernel", 1_000 + 6_000 * position, 5_000)
        trace.kernel(name, (position + 1) * _MS, _MS, correlation=call, args=args)
    linked = convert([trace.write(tmp_path / "trace.json")], Options())
    table = run(find("B21"), StepView.of(linked, "all")).table
    assert table.select("part", "duration_ns").rows() == [
        ("routing", _MS), ("dispatch", _MS), ("expert products", _MS), ("combine", _MS),
    ]  # fmt: skip


@pytest.mark.slow
def test_ranks_of_several_groups_are_held_against_those_of_their_own(tmp_path: Path) -> None:
    # Group 0, 1: 10 and 30 of products (mean 20); group 2, 3: 40 and 40. Waits: 20 and 0; none.
    for rank, (products, combine) in enumerate(((10, 25), (30, 5), (40, 5), (40, 5))):
        ranks = (0, 1) if rank < 2 else (2, 3)
        args = collective_args("all_to_allv", "ep", ranks, (64, 64))
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, _trace([(products, combine)] * 2, args=args))
    columns = ("process_group", "rank_count", "imbalance_share", "heaviest_rank", "heaviest_count", "wait_ns")
    assert experts_by_block(open_job(tmp_path, "job")).select(columns).rows() == [
        ("ep [0, 1]", 2, 0.5, 1, 2, 10 * _MS),
        ("ep [2, 3]", 2, 0.0, 2, 0, 0),
    ]


@pytest.mark.slow
def test_what_each_rank_does_and_waits(tmp_path: Path) -> None:
    assert experts_by_rank(_job(tmp_path)).rows() == [
        (0, 15 * _MS, 25 * _MS),
        (1, 40 * _MS, 0),
        (2, 5 * _MS, 35 * _MS),
    ]


@pytest.mark.slow
def test_the_page_says_what_the_imbalance_costs(tmp_path: Path) -> None:
    job = _job(tmp_path)
    [text] = findings(job)
    # 40 of a mean of 20; the others wait 25 and 35 of 100 ms.
    assert "Rank 1 has the heaviest experts: their products take 100\u202f% longer than the mean of 3 ranks" in text
    assert "the median other rank waits 30.0\u202fms a step, 30.0\u202f% of it" in text
    assert "R05" in [table.analysis.id for table in tables(job)]
    assert "experts over ranks" in render(job).lower()


def test_nothing_is_said_where_no_communication_combines(tmp_path: Path) -> None:
    for rank, products in enumerate((10, 40)):
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, _trace([(products, 0)] * 2))
    job = open_job(tmp_path, "job")
    row = experts_by_block(job).row(0, named=True)
    assert (row["imbalance_share"], row["wait_ns"]) == (pytest.approx(0.6), None)
    assert "experts" not in findings(job)[0]


def test_nothing_is_said_where_the_heaviest_rank_waits_itself(tmp_path: Path) -> None:
    for rank, steps in enumerate((((10, 5),) * 2, ((40, 45),) * 2)):
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, _trace(steps))
    assert "experts" not in findings(open_job(tmp_path, "job"))[0]


def test_a_job_without_experts_has_no_such_table(tmp_path: Path) -> None:
    for rank in range(2):
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, rank_trace(4, 3))
    job = open_job(tmp_path, "job")
    assert [table.analysis.id for table in tables(job)] == ["R01", "R02", "R03", "R04"]
    assert "experts" not in findings(job)[0]
