"""The Unix time of a trace's beginning."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.rank_traces import REDUCE, collective_args, grouped_traces
from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_ingest.link.link import Source, link
from xsp_ingest.registry import all_ingesters

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace


@pytest.mark.parametrize(("base", "is_date"), [(1_700_000_000 * 10**9, True), (2**63 - 500, False)])
def test_a_time_beyond_what_63_bits_hold_is_no_date(tmp_path: Path, base: int, is_date: bool) -> None:  # noqa: FBT001
    made = KinetoTrace(baseTimeNanoseconds=base)
    made.operator("aten::add", 1_000, 10)
    trace = convert([made.write(tmp_path / "t.json")], Options())
    assert trace.frame("runs")["epoch_ns"].to_list() == [base + 1_000 if is_date else None]


def test_clocks_are_compared_within_groups_and_from_group_to_group(tmp_path: Path) -> None:
    # Rank 3 shares no group with rank 0: it is compared with one that does. By name alone its first call is dp.
    paths = [trace.write(tmp_path / f"rank{i}.json") for i, trace in enumerate(grouped_traces((0, 40, -20, 90)))]
    trace = convert(paths, Options())
    starts = trace.frame("spans").group_by("run_id").agg(pl.col("start_ns").min()).sort("run_id")["start_ns"].to_list()
    assert [start - starts[0] for start in starts] == [0, 40, -20, 90]
    skews = trace.frame("ledger").filter(pl.col("kind") == "clock_skew").select("run_id", "count", "detail").rows()
    offset = re.compile(r"(\d+) ns (ahead of|behind) the first run's")
    offsets = [(run, count, match[0]) for run, count, text in skews if (match := offset.search(text))]
    assert offsets == [
        (1, 2, "40 ns ahead of the first run's"),
        (2, 1, "20 ns behind the first run's"),
        (3, 1, "90 ns ahead of the first run's"),  # by way of rank 2, which one call links to rank 0
    ]


_ALIGNED = Options(align_clocks=True)
_ENDS = (1_000, 3_000, 4_500, 9_000)


def _ranks(clocks_ns: Sequence[int], late_ns: Sequence[Sequence[int]] = ((), ())) -> list[KinetoTrace]:
    """Ranks that reduce four times; `late_ns`: by how much a rank leaves each call after the others."""
    traces = []
    for rank, clock in enumerate(clocks_ns):
        trace = KinetoTrace(process_id=100 + rank, distributedInfo={"rank": rank, "world_size": len(clocks_ns)})
        trace.operator("aten::mm", 100 + clock + 7 * rank, 50)
        late = late_ns[rank] if rank < len(late_ns) else ()
        for number, end in enumerate(_ENDS):
            own, duration = end + (late[number] if late else 0), 100 + 50 * rank
            trace.kernel(
                REDUCE,
                clock + own - duration,
                duration,
                correlation=trace.runtime("cudaLaunchKernel", clock + 200 + 10 * number, 5),
                stream_id=20,
                args=collective_args("allreduce", "dp", range(len(clocks_ns)), (8, 8)),
            )
        traces.append(trace)
    return traces


def _read(folder: Path, traces: Sequence[KinetoTrace], options: Options, *, backwards: bool = False) -> Trace:
    folder.mkdir(exist_ok=True)
    paths = [trace.write(folder / f"rank{i}.json") for i, trace in enumerate(traces)]
    return convert(paths[::-1] if backwards else paths, options)


def _entries(trace: Trace, kind: str) -> list[tuple[object, ...]]:
    return trace.frame("ledger").filter(pl.col("kind") == kind).select("run_id", "count", "detail").rows()


@pytest.mark.slow
@settings(max_examples=4)
@given(st.lists(st.integers(-(10**12), 10**12), min_size=2, max_size=4), st.booleans())
def test_what_a_clock_was_off_by_is_gone_once_aligned(
    tmp_path_factory: pytest.TempPathFactory,
    clocks_ns: list[int],
    backwards: bool,  # noqa: FBT001
) -> None:
    folder = tmp_path_factory.mktemp("ranks")
    right = _read(folder / "right", _ranks([0] * len(clocks_ns)), Options())
    aligned = _read(folder / "off", _ranks(clocks_ns), _ALIGNED, backwards=backwards)
    assert aligned.frame("spans").equals(right.frame("spans"))
    assert aligned.frame("runs")["epoch_ns"].to_list() == [right.frame("runs")["epoch_ns"][0] + clocks_ns[0]] * len(
        clocks_ns
    )
    assert len(_entries(aligned, "clocks_aligned")) == len(clocks_ns) - 1
    assert not _entries(aligned, "runs_apart") + _entries(aligned, "clock_skew")


@pytest.mark.parametrize("gain_ns_per_s", [200_000, -30_000])
def test_a_clock_that_drifts_is_put_right_at_every_time(tmp_path: Path, gain_ns_per_s: int) -> None:
    """Collectives of four seconds that end together, by a clock that is 7 us ahead and gains or loses."""
    traces = []
    for rank in range(3):
        trace = KinetoTrace(process_id=100 + rank, distributedInfo={"rank": rank, "world_size": 3})

        def time(right_ns: int, rank: int = rank) -> int:
            return right_ns + (7_000 + right_ns * gain_ns_per_s // 10**9 if rank == 1 else 0)

        for number in range(40):
            start, end = time(10**8 * (number + 1) - 50_000 * (rank + 1)), time(10**8 * (number + 1))
            launch = trace.runtime("cudaLaunchKernel", start - 9_000, 50)
            args = collective_args("allreduce", "dp", range(3), (8, 8))
            trace.kernel(REDUCE, start, end - start, correlation=launch, stream_id=20, args=args)
        traces.append(trace)
    off, aligned = _read(tmp_path, traces, Options()), _read(tmp_path, traces, _ALIGNED)
    kernels = [
        trace.frame("spans").filter(pl.col("level") == "kernel").select(
            pl.col("run_id"), (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns"), "duration_ns"
        ).sort("run_id", "end_ns")
        for trace in (off, aligned)
    ]  # fmt: skip
    apart = [_furthest_apart(rows) for rows in kernels]
    assert apart[0] > 100_000
    assert apart[1] <= 2
    assert all(abs(d - 50_000 * (run + 1)) <= 2 for run, _, d in kernels[1].iter_rows())
    drift = "gains 200000" if gain_ns_per_s > 0 else "loses 30000"
    assert drift in str(_entries(aligned, "clocks_aligned")[0][2])


def _furthest_apart(rows: pl.DataFrame) -> int:
    ends = rows.group_by("run_id", maintain_order=True).agg("end_ns")["end_ns"]
    return int(max(max(each) - min(each) for each in zip(*ends, strict=True)))


def test_one_call_that_ends_oddly_moves_no_clock(tmp_path: Path) -> None:
    # Differences of ends in order: 500, 502, 504, 1400. The lower median is 502, and half of them lie in 502..504.
    trace = _read(tmp_path, _ranks((0, 500), ((), (0, 900, 2, 4))), _ALIGNED)
    apart = "the clock is 502 ns ahead of the first run's, the median over 4 collectives"
    assert _entries(trace, "clocks_aligned") == [
        (1, 4, f"{apart}, half of which are at most 2 ns apart: its times were moved by -502 ns")
    ]


def test_clocks_are_not_aligned_by_few_collectives(tmp_path: Path) -> None:
    traces = grouped_traces((0, 40, -20, 90))
    trace = _read(tmp_path, traces, _ALIGNED)
    assert [(run, count) for run, count, _ in _entries(trace, "clocks_not_aligned")] == [(1, 2), (2, 1), (3, 1)]
    assert trace.frame("spans").equals(_read(tmp_path, traces, Options()).frame("spans"))


def test_a_rank_that_shares_no_collective_stays_where_it_is(tmp_path: Path) -> None:
    traces = _ranks((0, 300))
    alone = KinetoTrace(process_id=102, distributedInfo={"rank": 2, "world_size": 3})
    alone.operator("aten::mm", 150, 50)
    trace = _read(tmp_path, [*traces, alone], _ALIGNED)
    starts = trace.frame("spans").group_by("run_id").agg(pl.col("start_ns").min()).sort("run_id")["start_ns"].to_list()
    assert starts == [0, 7, 50]
    assert [(run, str(text).split(":")[0]) for run, _, text in _entries(trace, "clocks_not_aligned")] == [
        (2, "the clock was not aligned")
    ]


def test_one_run_has_no_clock_to_align(tmp_path: Path) -> None:
    trace = _read(tmp_path, _ranks((0,)), _ALIGNED)
    assert [text for _, _, text in _entries(trace, "clocks_not_aligned")] == [
        "clocks were to be aligned, but only one run was read"
    ]
    assert _entries(_read(tmp_path, _ranks((0,)), Options()), "clocks_not_aligned") == []


def test_runs_without_a_date_are_put_on_one_clock(tmp_path: Path) -> None:
    # Neither states a Unix time: unaligned each begins at 0, although the second's first call came 7 ns later.
    reader = next(each for each in all_ingesters() if each.name == "torch_profiler")
    read = [reader.read(t.write(tmp_path / f"{i}.json"), Options()) for i, t in enumerate(_ranks((0, 90)))]
    raws = [replace(raw, facts=replace(raw.facts, epoch_ns=None)) for raw in read]
    sources = [Source("torch_profiler", f"{i}.json", None, None) for i in range(2)]
    assert _entries(link(raws, sources, "auto"), "no_epoch")
    aligned = link(raws, sources, "auto", align_clocks=True)
    starts = aligned.frame("spans").group_by("run_id").agg(pl.col("start_ns").min()).sort("run_id")["start_ns"]
    assert (starts.to_list(), _entries(aligned, "no_epoch")) == ([0, 7], [])


@pytest.mark.real
def test_eight_real_ranks_are_moved_by_the_medians_of_their_ends(real_dir: Path) -> None:
    # From the files: rank 3's eight ended -5, -4, -2, -2, -1, -1, -1 and 1 us after rank 0's.
    trace = convert([real_dir / "kineto" / "dlrm_8rank.v100"], _ALIGNED)
    entries = _entries(trace, "clocks_aligned")
    assert [count for _, count, _ in entries] == [8] * 7
    moved = [int(text.rsplit("moved by ")[1].split()[0]) for _, _, text in entries if isinstance(text, str)]
    assert moved == [1000, 1000, 2000, 1000, 1000, 1000, 1000]
