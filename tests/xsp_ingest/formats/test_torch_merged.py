"""Traces merged of several ranks are a run a rank; work without an id is of the call or operator that it must be of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.linked import converted, ledger_counts, named
from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.formats.torch_profiler import TORCH_PROFILER
from xsp_ingest.formats.torch_profiler.merged_ranks import numbered_copy
from xsp_ingest.ingester import Options
from xsp_ingest.staging.selection import Selection
from xsp_model import XspError, integrity
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

Event = dict[str, object]


def _rank(number: int) -> list[Event]:
    """One step of a forward operator on one thread and its backward on another: the same on every rank, at one time."""
    kineto = KinetoTrace(process_id=80 + number, thread_id=10)
    kineto.step(0, 0, 100_000)
    kineto.operator("aten::mm", 10_000, 20_000, sequence_number=3)
    kineto.launch("gemm", 12_000, 40_000, 9_000, device_id=number)
    kineto.operator("MmBackward0", 60_000, 20_000, thread_id=11, sequence_number=3, forward_thread_id=1)
    kineto.launch("gemm_bw", 62_000, 82_000, 7_000, thread_id=11, device_id=number)
    kineto.backward_flow(10_000, 60_000, backward_thread=11)
    return [json.loads(text) for text in kineto.to_bytes(list_form=True).decode()[2:-2].split(",\n")]


def _merged(*ranks: int, pid: str, tid: str = "{tid}", flow: str = "{id}") -> list[Event]:
    """The ranks' events under such ids, `{rank}` in them, those that stay numbers without braces."""

    def text(form: str, key: str, event: Event, rank: int) -> object:
        return event[key] if form == f"{{{key}}}" else form.format(**{key: event[key]}, rank=rank)

    out: list[Event] = []
    for rank in ranks:
        for event in _rank(rank):
            ids = {"pid": text(pid, "pid", event, rank), "tid": text(tid, "tid", event, rank)}
            arrow = {"id": text(flow, "id", event, rank)} if "id" in event else {}
            out.append(event | ids | arrow)
    return out


def _converted(events: list[Event], folder: Path, head: Event | None = None) -> Trace:
    path = folder / "merged.json"
    path.write_text(json.dumps({"schemaVersion": 1, **(head or {}), "traceEvents": events}))
    trace = convert([path], Options())
    assert list(integrity.broken_rules(trace)) == []
    return trace


def _work(trace: Trace) -> list[tuple[object, ...]]:
    """Rank, name, process, the thread of its launch, the operator of that, phase, time."""
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    rank = trace.frame("runs").select("run_id", "rank")
    by_id = {row["span_id"]: row for row in spans.to_dicts()}
    rows = []
    for row in spans.filter(pl.col("level") == "kernel").join(rank, on="run_id", maintain_order="left").to_dicts():
        launch = by_id[row["parent_id"]]
        holder = by_id[launch["parent_id"]]["name"]
        length = row["duration_ns"]
        rows.append((row["rank"], row["name"], row["process_id"], launch["thread_id"], holder, row["phase"], length))
    return sorted(rows)


_FORMS = {
    "as SGLang's merger writes them": {"pid": "[TP{rank:02d}-DP00-PP00-EP00] {pid}"},
    "ranks in words, threads and flows as texts": {
        "pid": "rank {rank}: {pid}",
        "tid": "thread {tid} (python)",
        "flow": "{rank}-{id}",
    },
    "behind the process": {"pid": "{pid} (Rank{rank})", "tid": "rank{rank} thread {tid}"},
}


@pytest.mark.parametrize("way", ["plain", "streamed", "compiled"])
@pytest.mark.parametrize("form", _FORMS)
def test_ranks_that_coincide_are_runs_of_their_own(form: str, way: str, tmp_path: Path) -> None:
    events = _merged(1, 0, **_FORMS[form])
    ways = {"streamed_min_bytes": 0 if way == "streamed" else 1 << 40}
    with override_limits(compiled_min_bytes=0 if way == "compiled" else 1 << 40, **ways):
        trace = _converted(events, tmp_path)
    threads = trace.frame("spans")["thread_id"].drop_nulls().unique()
    assert len(threads) == (4 if "rank{rank} thread" in str(_FORMS[form]) else 2)
    work = [(*row[:3], *row[4:]) for row in _work(trace)]
    assert work == [
        (rank, name, 80 + rank, operator, phase, length)
        for rank in (0, 1)
        for name, operator, phase, length in (
            ("gemm", "aten::mm", "forward", 9_000),
            ("gemm_bw", "MmBackward0", "backward", 7_000),
        )
    ]
    twins = trace.frame("operators").drop_nulls("forward_id")
    assert twins.height == 2
    assert "duplicate_event" not in ledger_counts(trace)
    assert ledger_counts(trace)["merged_trace"] == 4  # texts of processes


def test_files_put_one_behind_the_other_keep_each_processes_work(tmp_path: Path) -> None:
    events = [*_rank(0), *_rank(1)]
    trace = _converted(events, tmp_path)
    assert [(row[1], row[2]) for row in _work(trace)] == [(name, p) for name in ("gemm", "gemm_bw") for p in (80, 81)]
    assert "unclear_process" not in ledger_counts(trace)
    mixed = sorted(events, key=lambda event: float(str(event["ts"])))
    assert ledger_counts(_converted(mixed, tmp_path))["unclear_process"] == 4


def test_work_of_ranks_that_see_their_device_as_the_first_is_no_duplicate(tmp_path: Path) -> None:
    """Alike in every column, process and device included: two processes launched it under one id."""
    events = [*_rank(0), *({**event, "pid": 0} if event["pid"] == 1 else event for event in _rank(1))]
    for event in events:
        args = event.get("args")
        if isinstance(args, dict) and "device" in args:
            args["device"] = 0
    trace = _converted(events, tmp_path)
    assert [(row[1], row[2]) for row in _work(trace)] == [(name, p) for name in ("gemm", "gemm_bw") for p in (80, 81)]
    twice = _converted([*events, *(event for event in events if event.get("cat") == "kernel")], tmp_path)
    assert len(_work(twice)) == 4
    assert ledger_counts(twice)["duplicate_event"] == 4


def test_a_chosen_process_is_of_its_rank_alone(tmp_path: Path) -> None:
    path = tmp_path / "merged.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": _merged(0, 1, pid="rank {rank}: {pid}")}))
    trace = convert([path], Options(selection=Selection(process_ids=(81,))))
    assert trace.frame("runs")["rank"].to_list() == [1]
    assert [row[:3] for row in _work(trace)] == [(1, "gemm", 81), (1, "gemm_bw", 81)]
    with pytest.raises(XspError, match="nothing of the file is within --pid 5"):
        convert([path], Options(selection=Selection(process_ids=(5,))))


def test_without_a_label_all_is_one_run(tmp_path: Path) -> None:
    trace = _converted(_merged(0, pid="python {pid}"), tmp_path, {"distributedInfo": {"rank": 5, "world_size": 8}})
    assert trace.frame("runs")["rank"].to_list() == [5]
    assert [row[1:3] for row in _work(trace)] == [("gemm", 80), ("gemm_bw", 80)]


@pytest.mark.parametrize(
    ("labels", "ranks"),
    [
        (("[TP00-DP00]", "[TP01-DP00]"), (0, 1)),
        (("[TP02-DP00]", "[TP03-DP00]"), (2, 3)),  # of which others are missing
        (("[TP00-PP00]", "[TP01-PP00]", "[TP00-PP01]", "[TP01-PP01]"), (0, 1, 2, 3)),
        (("[TP00-DP00]", "[TP01-DP01]"), (0, 1)),  # attention's copies are among tensor-parallel ranks
        (("[PP3]",), (3,)),
        (("[TP1-DP2]",), (None,)),
        (("[prefill]", "[decode]"), (None, None)),
        (("rank 7", "Rank:2"), (7, 2)),
    ],
)
def test_ranks_are_read_from_labels(labels: tuple[str, ...], ranks: tuple[int | None, ...], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([{"pid": f"{label} 4{at}"} for at, label in enumerate(labels)]))
    with numbered_copy(path) as (_, parts):
        assert {part.rank for part in parts[:-1]} == set(ranks)
        of = {next(iter(part.processes.values())): part.rank for part in parts[:-1]}
        assert of == {40 + at: rank for at, rank in enumerate(ranks)}


def test_texts_in_names_and_arguments_stay(tmp_path: Path) -> None:
    events = _merged(0, pid='[TP0] "\\x" {pid}')
    events += [{**events[1], "name": 'aten::"pid": "5"', "ts": 90, "args": {"Input type": ['"pid": "x"']}}]
    trace = _converted(events, tmp_path)
    assert 'aten::"pid": "5"' in trace.frame("spans")["name"].cast(pl.String).to_list()
    assert _work(trace)[0][:3] == (0, "gemm", 80)


@pytest.mark.parametrize("block", [4, 5_000])
def test_a_copy_is_whole_wherever_the_file_is_cut_into_pieces(block: int, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([{"pid": f"[TP{n}] {n}" + " " * (n % 900), "x": "y" * n} for n in range(300)]))
    with override_limits(content_block_bytes=block * 1024), numbered_copy(path) as (copy, parts):
        numbers = [event["pid"] for event in json.loads(copy.read_text())]
        assert len(set(numbers)) == 300
        assert {number for part in parts for number in part.processes} == set(numbers)


def test_labels_by_the_thousand_are_no_ranks(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([{"pid": f"rank {n}: 1"} for n in range(2_000)]))
    with numbered_copy(path) as (_, parts):
        assert [(part.label, len(part.processes)) for part in parts] == [(None, 2_000)]


def test_a_merged_file_without_events_is_named_by_its_own_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "cpu_op", "pid": "[TP0] 1", "tid": 1, "name": "a", "ts": "never"}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    with pytest.raises(XspError, match=r"trace\.json: no profiler events"):
        TORCH_PROFILER.read(path, Options())


def _collectives(*streams: int, launches: int = 3) -> KinetoTrace:
    """Three all-reduces of which the kernels carry no id, beside a product that does."""
    kineto = KinetoTrace()
    kineto.operator("aten::mm", 0, 9_000)
    kineto.launch("gemm", 1_000, 10_000, 5_000)
    for at in range(3):
        kineto.operator(f"c10d::allreduce_{at}", 20_000 * (at + 1), 9_000)
        if at < launches:
            kineto.runtime("hipExtLaunchKernel", 20_000 * (at + 1) + 1_000, 5_000)
        kineto.kernel(
            f"nccl{at}", 20_000 * (at + 1) + 8_000, 4_000, correlation=0, stream_id=streams[at % len(streams)]
        )
    return kineto


def test_kernels_without_an_id_are_of_the_launches_without_a_kernel_in_order(tmp_path: Path) -> None:
    trace = converted(_collectives(3), tmp_path)
    spans = trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))
    layers = dict(spans.select("span_id", "name").iter_rows())
    work = spans.filter(pl.col("level") == "kernel")
    assert [(name, layers[layer]) for name, layer in work.select("name", "layer_id").iter_rows()] == [
        ("gemm", "aten::mm"),
        *((f"nccl{at}", f"c10d::allreduce_{at}") for at in range(3)),
    ]
    assert work["correlation_id"].to_list() == [1, None, None, None]
    assert ledger_counts(trace)["launch_inferred"] == 3


@pytest.mark.parametrize("kineto", [_collectives(3, 4), _collectives(3, launches=2)], ids=["two streams", "one less"])
def test_where_it_cannot_be_told_they_have_no_launch(kineto: KinetoTrace, tmp_path: Path) -> None:
    trace = converted(kineto, tmp_path)
    work = trace.frame("spans").filter(pl.col("level") == "kernel")
    assert work["attribution"].cast(pl.String).to_list() == ["layer", *["orphan_no_correlation"] * 3]
    assert "launch_inferred" not in ledger_counts(trace)


def test_without_calls_the_external_id_says_the_operator(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    mine, later = kineto.operator("aten::mm", 0, 9_000), kineto.operator("aten::add", 50_000, 9_000)
    kineto.kernel("gemm", 10_000, 5_000, correlation=71, args={"External id": mine})
    kineto.kernel("before its operator", 20_000, 5_000, correlation=72, args={"External id": later})
    kineto.kernel("of nobody", 30_000, 5_000, correlation=73, args={"External id": 999})
    spans = named(converted(kineto, tmp_path))
    assert {name: spans[name]["layer"] for name in ("gemm", "before its operator", "of nobody")} == {
        "gemm": "aten::mm",
        "before its operator": None,
        "of nobody": None,
    }
