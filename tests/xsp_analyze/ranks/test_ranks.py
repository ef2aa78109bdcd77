"""Ranks compared from their small tables, against answers worked out by hand."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.rank_traces import REDUCE, collective_args, grouped_traces, rank_trace, write_rank
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.pages.ranks import findings, render
from xsp_analyze.ranks.facts import write_tables
from xsp_analyze.ranks.job import _kind_of_group, open_job, tables
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError, bundle

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_analyze.ranks.job import Job

_MS = 1_000_000


@pytest.fixture(name="job")
def fixture_job(tmp_path: Path) -> Job:
    """Rank 2 computes 6 ms where the others do 4, so that they wait 2 ms for it in each of two steps."""
    for rank, (compute, reduce) in enumerate(((4, 3), (4, 3), (6, 1))):
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, rank_trace(compute, reduce))
    return open_job(tmp_path, "job")


@pytest.mark.slow
def test_the_rank_that_comes_last_is_named(job: Job) -> None:
    rows = job.by_rank().select("rank", "step_count", "wait_ns", "last_count", "compute_ns", "communication_ns").rows()
    assert rows == [
        (0, 2, 2 * _MS, 0, 4 * _MS, 3 * _MS),
        (1, 2, 2 * _MS, 0, 4 * _MS, 3 * _MS),
        (2, 2, 0, 2, 6 * _MS, 1 * _MS),
    ]
    assert "Rank 2 came last to 2 of 2 collectives" in findings(job)[0]


@pytest.mark.slow
def test_transfer_and_wait_are_all_of_a_collective(job: Job) -> None:
    row = job.by_collective().row(0, named=True)
    assert (row["count"], row["duration_ns"]) == (6, 14 * _MS)
    assert (row["transfer_ns"], row["wait_ns"], row["matched_share"]) == (2 * _MS, 8 * _MS, 1.0)
    assert row["transfer_ns"] * 3 + row["wait_ns"] == row["duration_ns"]  # nothing is lost


@pytest.mark.slow
def test_kernels_are_the_sums_of_a10_over_ranks(job: Job) -> None:
    sums: dict[str, int] = {}
    for folder in job.folders.values():
        table = run(find("A10"), StepView.of(bundle.read(folder / "trace.xsp"), "all")).table
        for name, duration in table.select("kernel_name", "duration_ns").iter_rows():
            sums[name] = sums.get(name, 0) + int(duration)
    kernels = job.by_kernel()
    assert (
        dict(kernels.select("kernel_name", "duration_ns").iter_rows()) == sums == {"gemm": 28 * _MS, REDUCE: 14 * _MS}
    )
    assert kernels["share"].sum() == pytest.approx(1.0)
    gemm = kernels.row(0, named=True)
    assert gemm["imbalance_share"] == pytest.approx(12 / (28 / 3) - 1)


@pytest.mark.slow
def test_steps_say_who_was_slowest(tmp_path: Path) -> None:
    for rank, length in enumerate((20, 30, 25)):
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, rank_trace(4, 3, length_ms=length))
    rows = open_job(tmp_path).by_step().rows(named=True)
    assert [r["slowest_rank"] for r in rows] == [1, 1]
    assert rows[0]["imbalance_share"] == pytest.approx(30 / 25 - 1)
    assert (rows[0]["shortest_ns"], rows[0]["median_ns"], rows[0]["longest_ns"]) == (20 * _MS, 25 * _MS, 30 * _MS)


@pytest.mark.slow
def test_a_collective_that_one_rank_lacks_is_not_judged(tmp_path: Path) -> None:
    for rank, steps in enumerate((2, 1)):
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, rank_trace(4, 3, steps=steps))
    row = open_job(tmp_path).by_collective().row(0, named=True)
    assert row["matched_share"] == pytest.approx(2 / 3)


@pytest.mark.slow
def test_ranks_wait_within_their_process_group(tmp_path: Path) -> None:
    for rank, trace in enumerate(grouped_traces()):
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, trace)
    job = open_job(tmp_path)
    columns = ("process_group", "rank_count", "count", "transfer_ns", "wait_ns", "matched_share")
    assert job.by_collective().select(columns).rows() == [
        ("dp [1, 3]", 2, 2, 110.0, 190, 1.0),
        ("dp [0, 2]", 2, 2, 150.0, 50, 1.0),
        ("tp [0, 1]", 2, 4, 70.0, 110, 1.0),
        ("tp [2, 3]", 2, 4, 45.0, 110, 1.0),
    ]
    assert job.by_rank().select("rank", "wait_ns", "last_count").rows() == [
        (0, 60 + 0 + 50, 1),  # tp first, tp second, dp
        (1, 0 + 50 + 0, 2),
        (2, 0, 3),
        (3, 70 + 40 + 190, 0),
    ]


@pytest.mark.slow
def test_spans_of_all_ranks_are_one_lazy_table(job: Job) -> None:
    spans = job.spans()
    assert isinstance(spans, pl.LazyFrame)
    counted = spans.group_by("rank").len().sort("rank").collect().rows()
    each = bundle.read(job.folders[0] / "trace.xsp").row_count
    assert counted == [(0, each), (1, each), (2, each)]


def test_ranks_without_device_work_are_compared_by_their_steps(tmp_path: Path) -> None:
    for rank, length in enumerate((20, 30)):
        trace = KinetoTrace()
        trace.step(0, 0, length * _MS)
        trace.operator("aten::mm", 1_000, _MS)
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, trace)
    job = open_job(tmp_path)
    assert job.by_rank().select("step_ns", "busy_ns", "wait_ns").rows() == [
        (20 * _MS, None, None),
        (30 * _MS, None, None),
    ]
    assert job.by_kernel().is_empty()
    assert [t.analysis.id for t in tables(job)] == ["R01", "R02"]
    assert "</html>" in render(job)


def test_a_folder_without_ranks_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="no rank of a job"):
        open_job(tmp_path)


@pytest.mark.real
def test_eight_real_ranks_add_up_to_what_their_files_hold(real_dir: Path, tmp_path: Path) -> None:
    files = sorted((real_dir / "kineto" / "dlrm_8rank.v100").glob("*.gz"))
    sums: dict[str, Decimal] = {}
    for rank, path in enumerate(files):
        events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
        for event in events:
            if str(event.get("cat", "")).lower() in {"kernel", "gpu_memcpy", "gpu_memset"} and event["ph"] == "X":
                sums[event["name"]] = sums.get(event["name"], Decimal(0)) + 1000 * Decimal(event["dur"])
        trace = convert([path], Options())
        folder = tmp_path / "ranks" / str(rank)
        folder.mkdir(parents=True)
        (folder / "facts.json").write_text(json.dumps(write_tables(trace, folder, rank, path.name)))
    kernels = open_job(tmp_path).by_kernel().group_by("kernel_name").agg(pl.col("duration_ns").sum())
    assert dict(kernels.iter_rows()) == sums
    assert len(files) == 8


@pytest.mark.slow
def test_ranks_stand_by_their_places_in_groups(tmp_path: Path) -> None:
    """Two by two: tp [0, 1] and [2, 3], dp [0, 2] and [1, 3]."""
    for rank, trace in enumerate(grouped_traces()):
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, trace)
    rows = open_job(tmp_path).by_coordinate()
    assert rows.select("groups", "place", "rank_count").rows() == [
        ("dp", 0, 2), ("dp", 1, 2), ("tp", 0, 2), ("tp", 1, 2),
    ]  # fmt: skip


def test_groups_are_of_one_kind_by_what_they_are_described_as(tmp_path: Path) -> None:
    """Two by two by two, as the head of each file lists its groups; those of three ranks each are not evenly spaced."""
    for rank in range(8):
        tensor = [rank // 2 * 2, rank // 2 * 2 + 1]
        shard = [r for r in (0, 2, 3, 4, 5, 7) if (r in (0, 3, 5)) == (rank in (0, 3, 5))]
        config = [
            {"pg_name": "0", "pg_desc": "default_pg", "pg_size": 8, "ranks": list(range(8))},
            {"pg_name": str(1 + rank // 2), "pg_desc": "TENSOR_MODEL_PARALLEL_GROUP", "pg_size": 2, "ranks": tensor},
        ]
        if rank in shard:
            name = "5" if rank in (0, 3, 5) else "6"
            config.append({"pg_name": name, "pg_desc": "mesh_dp_shard", "pg_size": 3, "ranks": shard})
        head = {"rank": rank, "world_size": 8, "pg_count": 7, "pg_config": config}
        trace = KinetoTrace(process_id=100 + rank, distributedInfo=head)
        for number, group in enumerate(config):
            args = collective_args("allreduce", str(group["pg_name"]), (0, 1), (8, 8))
            args["Process Group Ranks"] = "[0, ...]"
            launch = trace.runtime("cudaLaunchKernel", 1_000 + 100 * number, 50)
            trace.kernel(REDUCE, 2_000 + 1_000 * number, 500, correlation=launch, stream_id=20, args=args)
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, trace)
    rows = open_job(tmp_path).by_coordinate()
    assert rows.select("groups", "place", "rank_count").rows() == [
        ("TENSOR_MODEL_PARALLEL_GROUP", 0, 4), ("TENSOR_MODEL_PARALLEL_GROUP", 1, 4),
        ("mesh_dp_shard", 0, 2), ("mesh_dp_shard", 1, 2), ("mesh_dp_shard", 2, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("mesh_tp 12 [0, 1]", ("mesh_tp", 0, 1)),
        ("tp [0, 1, 2, 3]", ("tp", 0, 1)),
        ("7 [2, 6, ..., 998]", ("ranks 4 apart", 2, 4)),
        ("3 [0, 1, 4]", ("ranks 0 apart", 0, 0)),
        ("[5]", ("ranks 0 apart", 5, 0)),
        ("alone", ("alone", 0, 0)),
    ],
)
def test_a_kind_of_groups_is_its_name_or_the_distance_of_its_ranks(text: str, kind: tuple[str, int, int]) -> None:
    assert _kind_of_group(text) == kind


def test_what_each_rank_sends_to_others_is_known_by_step(tmp_path: Path) -> None:
    """Of parts [1000, 3000] and [2000, 500] of four bytes the first stays with rank 0, the second with rank 1."""
    for rank, parts in enumerate(("[1000, 3000]", "[2000, 500]")):
        trace = KinetoTrace(distributedInfo={"rank": rank, "world_size": 2})
        trace.step(0, 0, _MS)
        args = collective_args("all_to_allv", "ep", [0, 1], (4000, 2500)) | {"In split size": parts}
        launch = trace.runtime("cudaLaunchKernel", 10_000, 5_000)
        trace.kernel("ncclDevKernel_SendRecv()", 20_000, 9_000, correlation=launch, args=args)
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, trace)
    cells = open_job(tmp_path).by_rank_and_step()
    assert cells.select("rank", "sent_bytes").rows() == [(0, 12_000), (1, 8_000)]
