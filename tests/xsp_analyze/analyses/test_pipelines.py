"""B46 and the messages of B08, over simulated jobs: schedules, bubbles and their causes, against what was played."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tests.helpers.job_simulator import Pipeline
from tests.helpers.rank_traces import collective_args, write_rank, write_ranks
from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.findings import advise
from xsp_analyze.needs import holds
from xsp_analyze.pages.ranks import findings, render
from xsp_analyze.ranks.job import open_job, tables
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_SCHEDULES = [
    (ranks, batches, schedule, chunks)
    for ranks, batches in ((2, 4), (4, 4), (4, 8))
    for schedule, chunks in (("GPipe", 1), ("1F1B", 1), ("interleaved 1F1B", 2), ("zero bubble", 1))
]


def _rows(identity: str, trace: Trace) -> pl.DataFrame:
    return run(find(identity), StepView.of(trace)).table


def _bubbles(folder: Path, job: Pipeline, marks: str, *, sends: bool = True) -> pl.DataFrame:
    return _rows("B46", convert(write_ranks(folder, job.traces(marks, sends=sends)), Options())).sort("rank")


@pytest.mark.parametrize(("ranks", "batches", "schedule", "chunks"), _SCHEDULES)
@pytest.mark.parametrize("slow", [None, 0, 1])
def test_bubble_and_schedule_are_what_was_played(
    tmp_path: Path, ranks: int, batches: int, schedule: str, chunks: int, slow: int | None
) -> None:
    job = Pipeline(ranks, batches, schedule, chunks, slowness={} if slow is None else {slow: 1.5})
    rows = _bubbles(tmp_path, job, "torch")
    assert rows["schedule"].unique().to_list() == [schedule]
    assert rows["micro_batches"].unique().to_list() == [batches]
    assert rows["stage"].to_list() == list(range(ranks))
    window = job.window_ns()
    for rank, bubble in enumerate(rows["bubble_ns"]):
        assert bubble == pytest.approx(window - job.compute_ns(rank), rel=0.01)
    causes = rows.select(pl.sum_horizontal("schedule_ns", "imbalance_ns", "transfer_ns", "other_ns"))
    assert causes.to_series().to_list() == pytest.approx(rows["bubble_ns"].to_list())
    assert rows["other_ns"].abs().max() <= 0.01 * window  # type: ignore[operator]


@pytest.mark.parametrize(("ranks", "batches", "schedule", "chunks"), _SCHEDULES)
def test_the_schedules_own_bubble_is_that_of_equal_stages_without_transfers(
    tmp_path: Path, ranks: int, batches: int, schedule: str, chunks: int
) -> None:
    rows = _bubbles(tmp_path, Pipeline(ranks, batches, schedule, chunks), "torch")
    ideal = Pipeline(ranks, batches, schedule, chunks, transfer_ns=0)
    assert rows["schedule_ns"].to_list() == pytest.approx([ideal.window_ns() - ideal.compute_ns(0)] * ranks, rel=0.01)
    if chunks == 1 and schedule != "zero bubble":
        assert rows["schedule_share"].to_list() == pytest.approx([(ranks - 1) / (batches + ranks - 1)] * ranks)


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B"])
@pytest.mark.parametrize("marks", ["", "megatron"])
def test_without_marks_of_micro_batches_messages_and_phases_tell_them(
    tmp_path: Path, schedule: str, marks: str
) -> None:
    job = Pipeline(4, 6, schedule)
    rows = _bubbles(tmp_path, job, marks)
    assert rows.select("schedule", "micro_batches").unique().rows() == [(schedule, 6)]
    expected = [job.window_ns() - job.compute_ns(rank) for rank in range(4)]
    assert rows["bubble_ns"].to_list() == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("schedule", [("1F1B", 1), ("interleaved 1F1B", 2)])
def test_clocks_that_differ_by_more_than_a_micro_batch_move_no_bubble(
    tmp_path: Path, schedule: tuple[str, int]
) -> None:
    """Ranks 1 and 3 are 3 ms ahead and 1 ms behind: their work would begin before what it needs has ended."""
    traces = Pipeline(4, 8, *schedule).traces("torch")
    (tmp_path / "right").mkdir()
    expected = _rows("B46", convert(write_ranks(tmp_path / "right", traces), Options()))
    for rank, off_ns in ((1, 3_000_000), (3, -1_000_000)):
        for event in traces[rank].events:
            event["ts"] = event["ts"] + 5_000_000 + off_ns  # type: ignore[operator]
    for rank in (0, 2):
        for event in traces[rank].events:
            event["ts"] = event["ts"] + 5_000_000  # type: ignore[operator]
    (tmp_path / "off").mkdir()
    rows = _rows("B46", convert(write_ranks(tmp_path / "off", traces), Options()))
    assert_frame_equal(rows, expected)


def test_work_that_begins_before_all_it_needs_is_there_moves_no_clock(tmp_path: Path) -> None:
    """Rank 1 clears a buffer for each micro-batch 30 us before that comes, which takes 10 us both ways."""
    traces = Pipeline(2, 4, "GPipe").traces("torch")
    (tmp_path / "right").mkdir()
    expected = _rows("B46", convert(write_ranks(tmp_path / "right", traces), Options()))
    early = [event for event in traces[1].events if event.get("name") == "gemm"]
    for event in early[:4]:
        start, duration = event["ts"], event["dur"]
        event |= {"ts": start - 30_000, "dur": 1_000}  # type: ignore[operator]
        traces[1].events.append({**event, "ts": start, "dur": duration - 1_000})  # type: ignore[operator]
    (tmp_path / "early").mkdir()
    rows = _rows("B46", convert(write_ranks(tmp_path / "early", traces), Options()))
    assert rows["window_ns"].to_list() == expected["window_ns"].to_list()
    assert rows["warm_up_ns"].to_list() == [0, expected["warm_up_ns"][1] - 30_000]


@pytest.mark.parametrize("schedule", [("1F1B", 1), ("interleaved 1F1B", 2)])
def test_a_job_of_ranks_read_one_by_one_has_the_pipeline_of_all_together(
    tmp_path: Path, schedule: tuple[str, int]
) -> None:
    traces = Pipeline(4, 4, *schedule, slowness={1: 1.4}).traces("torch")
    for rank, trace in enumerate(traces):
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, trace)
    together = tmp_path / "together"
    together.mkdir()
    expected = _rows("B46", convert(write_ranks(together, traces), Options()))
    job = open_job(tmp_path)
    assert_frame_equal(job.pipelines().select(expected.columns), expected)
    table = next(each for each in tables(job) if each.analysis.id == "R07")
    assert table.table.height == 4
    assert "are a pipeline" in findings(job)[0]
    assert "others wait for stage 1" in findings(job)[0]
    assert "Stages of the pipeline in step 0" in render(job)


def test_of_ranks_read_one_by_one_that_record_receives_alone_transfers_are_not_known(tmp_path: Path) -> None:
    """When a sender's work ended is not in what a rank leaves: that is no transfer of 0."""
    traces = Pipeline(4, 4, "1F1B", transfer_ns=100_000).traces("torch", sends=False)
    for rank, trace in enumerate(traces):
        write_rank(tmp_path / "ranks" / f"rank-{rank}", rank, trace)
    job = open_job(tmp_path)
    rows = job.pipelines()
    assert rows["transfer_ns"].null_count() == rows["other_ns"].null_count() == rows.height == 4
    assert rows["schedule_ns"].null_count() == 0
    assert "What transfers add is not known" in findings(job)[0]


def test_a_reading_that_takes_longer_than_the_step_took_has_no_causes(tmp_path: Path) -> None:
    """Without marks and sends the first stage goes forward in one unit: no ideal is above what was measured."""
    rows = _bubbles(tmp_path, Pipeline(2, 4, "GPipe"), "", sends=False)
    causes = rows.drop_nulls("schedule_ns")
    assert (causes["other_ns"].fill_null(0) >= -0.02 * causes["window_ns"]).all()
    assert (causes["schedule_ns"] <= 1.02 * causes["bubble_ns"]).all()


@pytest.mark.parametrize("marks", ["", "torch"])
@pytest.mark.parametrize("missing", [2, 3])
def test_a_pipeline_of_which_a_stage_is_missing_has_no_ideal(tmp_path: Path, marks: str, missing: int) -> None:
    traces = [trace for rank, trace in enumerate(Pipeline(4, 8, "1F1B").traces(marks)) if rank != missing]
    rows = _rows("B46", convert(write_ranks(tmp_path, traces), Options()))
    assert rows.height >= 2
    for column in ("schedule_ns", "imbalance_ns", "transfer_ns", "other_ns", "schedule_share"):
        assert rows[column].null_count() == rows.height


def test_coalesced_messages_are_what_their_calls_say(tmp_path: Path) -> None:
    """Of batched messages the kernel says nothing; the calls before its launch say whom it is to or from."""
    job = Pipeline(4, 6, "1F1B")
    trace = convert(write_ranks(tmp_path, job.traces(coalesced=True)), Options())
    rows = _rows("B46", trace)
    assert rows.select("schedule", "micro_batches").unique().rows() == [("1F1B", 6)]
    expected = [job.window_ns() - job.compute_ns(rank) for rank in range(4)]
    assert rows.sort("rank")["bubble_ns"].to_list() == pytest.approx(expected, rel=0.01)
    messages = _rows("B08", trace)
    assert messages["operation"].unique().sort().to_list() == ["recv", "send"]
    assert messages["matched_count"].to_list() == messages["count"].to_list()


def test_messages_of_which_nobody_says_who_are_no_calls_of_all_ranks(tmp_path: Path) -> None:
    """Stages in the middle send and receive twice as many: the n-th of one rank is no other's."""
    traces = Pipeline(4, 6, "1F1B").traces(coalesced=True)
    for trace in traces:
        trace.events = [event for event in trace.events if event.get("name") != "record_param_comms"]
    rows = _rows("B08", convert(write_ranks(tmp_path, traces), Options()))
    assert rows.select("operation", "matched_count", "wait_ns", "straggler").rows() == [("send_recv", 0, None, None)]


def test_a_zero_bubble_schedule_without_marks_has_a_bubble_and_no_causes(tmp_path: Path) -> None:
    """Where ranks go backward in more pieces than forward, nothing says which are of inputs and which of weights."""
    job = Pipeline(4, 8, "zero bubble")
    rows = _bubbles(tmp_path, job, "")
    assert rows.select("schedule", "micro_batches", "transfer_ns").unique().rows() == [("zero bubble", 8, None)]
    expected = [job.window_ns() - job.compute_ns(rank) for rank in range(4)]
    assert rows["bubble_ns"].to_list() == pytest.approx(expected, rel=0.01)


def test_a_slow_stage_and_slow_transfers_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    slow = _bubbles(tmp_path / "a", Pipeline(4, 8, "1F1B", slowness={2: 1.2}), "torch")
    assert slow["imbalance_ns"].arg_min() == 2
    assert all(part > 2 * slow["transfer_ns"][0] for part in slow["imbalance_ns"].gather([0, 1, 3]))
    moved = _bubbles(tmp_path / "b", Pipeline(4, 8, "1F1B", transfer_ns=60_000), "torch")
    assert moved["imbalance_ns"].abs().max() == pytest.approx(0, abs=1)
    assert moved["transfer_ns"].min() >= 6 * 60_000  # type: ignore[operator]


@pytest.mark.parametrize("sends", [True, False])
def test_a_receives_waiting_is_no_transfer(tmp_path: Path, *, sends: bool) -> None:
    """A message of 1 MB takes 10 us, 100 GB/s, however long its receive waited before; also where no send is there."""
    job = Pipeline(4, 4, "GPipe")
    rows = _rows("B08", convert(write_ranks(tmp_path, job.traces("torch", sends=sends)), Options()))
    assert rows["byte_per_s"].to_list() == pytest.approx([1e11] * rows.height)
    receives = rows.filter(pl.col("operation") == "recv")
    assert (receives["wait_ns"] > 9 * receives["transfer_ns"]).all()


def test_a_ring_of_ranks_is_no_pipeline(tmp_path: Path) -> None:
    """Context parallel: all ranks compute at once, and pass their keys on meanwhile."""
    traces = []
    for rank in range(4):
        trace = KinetoTrace(process_id=100 + rank, distributedInfo={"rank": rank, "world_size": 4})
        trace.step(0, 0, 1_000_000)
        for turn in range(4):
            trace.operator("aten::mm", 10_000 + turn * 200_000, 9_000)
            trace.launch("gemm", 11_000 + turn * 200_000, 30_000 + turn * 200_000, 180_000)
            for name, peer in (("send", (rank + 1) % 4), ("recv", (rank - 1) % 4)):
                args = collective_args(name, "cp", [0, 1, 2, 3], (1000, 1000))
                args["Dst Rank" if name == "send" else "Src Rank"] = peer
                launch = trace.runtime("cudaLaunchKernel", 20_000 + turn * 200_000 + 100 * (name == "recv"), 50)
                start = 31_000 + turn * 200_000 + 20_000 * (name == "recv")
                trace.kernel("ncclDevKernel_SendRecv()", start, 9_000, correlation=launch, stream_id=20, args=args)
        traces.append(trace)
    view = StepView.of(convert(write_ranks(tmp_path, traces), Options()))
    assert not holds(view.of_trace, "pipeline")
    assert run(find("B08"), view).table["matched_count"].sum() == 8


def test_ranks_that_name_forward_steps_and_send_nothing_are_no_pipeline(tmp_path: Path) -> None:
    traces = []
    for rank in range(2):
        trace = KinetoTrace(process_id=100 + rank, distributedInfo={"rank": rank, "world_size": 2})
        trace.step(0, 0, 1_000_000)
        trace.annotation("forward_step", 5_000, 90_000)
        trace.operator("aten::mm", 10_000, 9_000)
        trace.launch("gemm", 11_000, 30_000, 180_000)
        traces.append(trace)
    view = StepView.of(convert(write_ranks(tmp_path, traces), Options()))
    assert not holds(view.of_trace, "pipeline")


def test_waiting_of_stages_is_a_part_of_their_communication(tmp_path: Path) -> None:
    """Each link has its own row of B08: their waits are means over its two ranks, and are not simply added up."""
    view = StepView.of(convert(write_ranks(tmp_path, Pipeline(4, 4, "GPipe").traces("torch", sends=False)), Options()))
    exposed = next(one.observation for one in advise(view) if one.rule.id == "exposed-communication")
    times = {evidence.label: float(evidence.value or 0) for evidence in exposed.evidence}
    assert 0 < times["waiting for other ranks"] <= times["communication"]
    assert "More micro-batches" in exposed.do


@pytest.mark.parametrize("ranks", [2, 4])
def test_of_stages_by_turns_without_names_the_bubble_is_told_and_no_cause(tmp_path: Path, ranks: int) -> None:
    job = Pipeline(ranks, 8, "interleaved 1F1B", 2)
    rows = _bubbles(tmp_path, job, "")
    assert rows.select("schedule", "micro_batches", "schedule_ns").unique().rows() == [("interleaved", None, None)]
    expected = [job.window_ns() - job.compute_ns(rank) for rank in range(ranks)]
    assert rows["bubble_ns"].to_list() == pytest.approx(expected, rel=0.01)
