"""Collectives as each rank called them, of which group they are, and what they moved."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification.classify import by_operator
from xsp_analyze.frames.kernels.activities import column_at, every_span
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION, communication_names
from xsp_model import Kind, Level
from xsp_model.columns.arrays import distinct_numbers, nullable_index
from xsp_model.columns.intervals import coverage_before, merge
from xsp_model.columns.tree import innermost

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "PAIRWISE",
    "bus_factor",
    "computing_operators",
    "group_label",
    "has_ranks",
    "host_calls_of_collectives",
    "message_bytes",
    "modelled_collectives",
    "operations",
    "rank_units",
    "recorded_facts",
    "with_sizes",
]

# What the ranks of a trace are: runs side by side, or the devices of a run that speak to each other.
_UNIT = ("run_id", "process_id", "device_id")
_IS_WORK = pl.col("kind").cast(pl.String).is_in([str(Kind.KERNEL), str(Kind.MEMCPY)])  # copy engines communicate too


def rank_units(frames: TraceView) -> pl.DataFrame:
    """One row a rank, in order: run_id, process_id, device_id, rank.

    Of a run those devices that communicate, else all that worked; a run without device work is one of null device.
    `rank` is what the run says, or where one run has several, the device; where neither tells ranks apart they are
    numbered in order.
    """
    work = frames.all_activities
    talks = (IS_COMMUNICATION & _IS_WORK).any()
    used = work.group_by(_UNIT).agg(talks.alias("talks"))
    used = used.filter(pl.col("talks") | ~pl.col("talks").any().over("run_id")).select(_UNIT)
    runs = frames.kernel_runs.table
    idle = runs.join(used, on="run_id", how="anti").select(
        "run_id", *(pl.lit(None, used.schema[c]).alias(c) for c in _UNIT[1:])
    )
    units = pl.concat([used, idle.cast(used.schema)]).sort(_UNIT, nulls_last=True)
    numbered = units.join(runs.select("run_id", pl.coalesce("rank", "run_id").alias("rank")), on="run_id", how="left")
    if numbered["rank"].n_unique() == units.height:
        return numbered.sort("rank")
    if units["run_id"].n_unique() == 1 and units["device_id"].drop_nulls().n_unique() == units.height:
        return units.with_columns(pl.col("device_id").cast(pl.Int64).alias("rank"))
    return units.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("rank"))


def has_ranks(frames: TraceView) -> bool:
    """Whether several ranks can be told apart, each with devices of its own, or without any."""
    if frames.is_leveled:
        return False
    units = rank_units(frames)
    if units.select("run_id", "device_id").is_duplicated().any():
        return False
    several_runs = units["run_id"].n_unique() > 1
    return several_runs or (units.height > 1 and not frames.all_activities.filter(IS_COMMUNICATION).is_empty())


# What a trace records of collectives: which operation a communication kernel is, of which process group, how large.
_RANGE = r"^(?:nccl|rccl|gloo|ucc):_?(\w+?)_*$"
_OF_CALL = ("operation", "input_bytes", "output_bytes", "input_split", "output_split", "peer_rank")
_FACTS = ("operation", "group_name", "group_ranks", "group_size", *_OF_CALL[1:])
_GROUP = ("group_name", "group_ranks", "group_size")


PAIRWISE = ("send", "recv")
"""Operations of two ranks each time: the n-th of one rank of a group is no other's n-th."""
_COALESCED = ("coalesced", "send_recv")  # one kernel for several sends and receives, by range and by kernel


def group_label() -> pl.Expr:
    """A group as people know it: the ranks tell groups of one name apart, the name groups of the same ranks."""
    label = pl.concat_str("group_name", "group_ranks", separator=" ", ignore_nulls=True)
    return pl.when(label != "").then(label).alias("process_group")


def recorded_facts(trace: Trace, kernels: Ints) -> pl.DataFrame:
    """For each kernel _FACTS: its own, else those of the nearest call around its launch that has each."""
    facts = trace.frame("collectives").with_columns(pl.col(pl.Categorical).cast(pl.String))
    if not len(kernels):
        return facts.clear().select(_FACTS)
    spans = trace.scan("spans").select("parent_id", "level", "name").collect()
    parents = spans["parent_id"].fill_null(-1).to_numpy()
    own = pl.DataFrame({"span_id": kernels}).join(facts, on="span_id", how="left", maintain_order="left")
    around = [_around(parents, kernels, facts, (name,)) for name in _OF_CALL]
    group = _around(parents, kernels, facts.filter(pl.any_horizontal(pl.col(_GROUP).is_not_null())), _GROUP)
    nearest = pl.concat([*around, group], how="horizontal")
    named = _range_operation(spans, parents, kernels)
    first = {name: [own[name], nearest[name]] for name in _FACTS}
    first["operation"].insert(1, named)
    return pl.DataFrame([pl.select(pl.coalesce(each)).to_series().alias(name) for name, each in first.items()])


def _around(parents: Positions, kernels: Ints, facts: pl.DataFrame, columns: tuple[str, ...]) -> pl.DataFrame:
    """The columns of the nearest span around each kernel that has the first of them (of a group: any)."""
    rows = facts if len(columns) > 1 else facts.drop_nulls(columns)
    mask = np.zeros(len(parents), dtype=np.bool_)
    mask[rows["span_id"].to_numpy()] = True
    spans = pl.DataFrame({"span_id": innermost(parents, mask)[kernels].astype(np.int64)})
    return spans.join(rows, on="span_id", how="left", maintain_order="left").select(columns)


def _range_operation(spans: pl.DataFrame, parents: Positions, kernels: Ints) -> pl.Series:
    """What the range of the framework around each launch names, as `_operation_of_range` has it, else null."""
    names = spans["name"].unique()
    of_ranges = names.filter(names.cast(pl.String).str.contains(_RANGE))
    is_range: Bools = ((spans["level"] == str(Level.LIBRARY)) & spans["name"].is_in(of_ranges.implode())).to_numpy()
    around = innermost(parents, is_range)[kernels]
    ranges = spans["name"].gather(nullable_index(around)).cast(pl.String)
    operations = {name: _operation_of_range(name) for name in ranges.unique().drop_nulls()}
    return ranges.replace_strict(operations, return_dtype=pl.String)


def _operation_of_range(name: str) -> str | None:
    """`nccl:_all_gather_base` is an all_gather, `gloo:recv` a recv."""
    match = re.match(_RANGE, name)
    return _operation_of_operator(name) or (match and match[1])


def _operation_of_operator(name: str) -> str | None:
    """The collective that an operator of this name is; None where it may be several, or none."""
    operator = by_operator(name)
    return None if operator is None or operator.collective == "send_recv" else operator.collective


def bus_factor(operation: pl.Expr, ranks: pl.Expr) -> pl.Expr:
    """Bytes over each rank's link per byte of `message_bytes`; null for a group of one, and where none is defined.

    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    others = (ranks - 1) / ranks
    factor = (
        pl.when(operation == "all_reduce")
        .then(2 * others)
        .when(operation.is_in(["all_gather", "reduce_scatter", "all_to_all"]))
        .then(others)
        .when(operation.is_in(["broadcast", "reduce", "send", "recv", "send_recv"]))
        .then(pl.lit(1.0))
    )
    return pl.when(ranks > 1).then(factor)


def message_bytes(ranks: pl.Expr) -> pl.Expr:
    """The size that nccl-tests takes rates of: what is gathered or scattered as a whole, else a rank's input.

    Versions of the framework differ in whether one part or the whole is the input of a gather or scatter: null where
    input and output do not differ by the number of ranks.
    """
    sent, received, operation = pl.col("input_bytes"), pl.col("output_bytes"), pl.col("operation")
    return (
        pl.when(operation == "all_gather")
        .then(pl.when(received == sent * ranks).then(received))
        .when(operation == "reduce_scatter")
        .then(pl.when(sent == received * ranks).then(sent))
        .when(operation == "recv")
        .then(pl.coalesce(received, sent))
        .otherwise(sent)
        .alias("message_bytes")
    )


def operations(frames: TraceView) -> pl.DataFrame:
    """One row a communication kernel: run_id, step, operation, process_group, group_size, number, times and bytes.

    Of a run without device work a range of a library that communicates on the host (Gloo). `rank` as `rank_units` has
    it. `operation` is what the framework calls it, or else what the kernel's name says. `process_group` is the group's
    name and ranks as recorded, null where nothing is recorded. `meeting` is the operation, of a send or receive its two
    ranks ("0>1"), where both are known, and of sends and receives in one kernel too ("0<>1"). `number` counts them in
    their rank, step and group, in order of launch. `call_id` is the kernel, or on the host the call. `exposed_ns` is
    the time in which nothing else computed. `input_bytes` and `output_bytes` are null where not recorded, and so are
    `sent_bytes` and `received_bytes`, to and from other ranks by the recorded parts.
    """
    kernels = _recorded_kernels(frames)
    on_device = kernels.hstack([_ranks(frames, kernels), _exposed_times(frames, kernels)])
    on_device = on_device.with_columns(pl.col("span_id").alias("call_id"))
    rows = pl.concat([on_device, _host_operations(frames)], how="diagonal_relaxed")
    calls = ["run_id", "rank", "step", "process_group", "operation"]
    measures = ("duration_ns", "exposed_ns", "input_bytes", "output_bytes", "sent_bytes", "received_bytes")
    return (
        _with_partners(rows)
        .sort("launch_ns", "start_ns", "span_id")
        .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over([*calls, "meeting"]).alias("number"))
        .select("call_id", *calls, "meeting", "group_size", "number", "device_id", "launch_ns", "start_ns", *measures)
    )


def _with_partners(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `meeting`, `sent_bytes` and `received_bytes`, by their ranks, peers and recorded parts."""
    group = ("group_ranks", "group_size", "peer_rank")
    described = rows.select("rank", "operation", *group, "input_split", "output_split")
    distinct = described.unique(maintain_order=True)
    names = ("meeting", "sent_bytes", "received_bytes")
    schema = {"meeting": pl.String, "sent_bytes": pl.Int64, "received_bytes": pl.Int64}
    partners = pl.DataFrame([_partners(*row) for row in distinct.iter_rows()], schema=schema, orient="row")
    joined = described.join(
        distinct.hstack(partners), on=described.columns, how="left", nulls_equal=True, maintain_order="left"
    )
    return rows.hstack(joined.select(names))


def _partners(
    rank: int, operation: str, ranks: str | None, size: int | None, peer: int | None, sent: str | None, got: str | None
) -> tuple[str, int | None, int | None]:
    """What the rank's call is a part of, and what it sends to and gets from other ranks than itself."""
    members = _numbers(ranks)
    if operation == _COALESCED[1] and peer is not None and peer != rank:
        return f"{min(rank, peer)}<>{max(rank, peer)}", None, None
    if operation in PAIRWISE:
        others = [one for one in members if one is not None and one != rank]
        peer = others[0] if peer is None and len(members) == 2 and len(others) == 1 else peer  # noqa: PLR2004 (a pair)
        ends = (rank, peer) if operation == "send" else (peer, rank)
        return operation if peer is None or peer == rank else f"{ends[0]}>{ends[1]}", None, None
    index = members.index(rank) if rank in members else None if members else rank
    return operation, _to_others(_numbers(sent), index, size), _to_others(_numbers(got), index, size)


@cache
def _numbers(text: str | None) -> list[int | None]:
    """Of a JSON list of numbers, which PyTorch cuts short by an ellipsis; null for that."""
    return [None if part == "..." else int(part) for part in re.findall(r"\d+|\.\.\.", text or "")]


def _to_others(parts: list[int | None], index: int | None, size: int | None) -> int | None:
    """The sum of the parts but the rank's own; None where they are cut short, or its own is not known."""
    if index is None or None in parts or index >= len(parts) or len(parts) != (size or len(parts)):
        return None
    return sum(part for number, part in enumerate(parts) if part is not None and number != index)


# Collectives of a run without device work: on the host, where Gloo, UCC or MPI do them.
_HOST_RANGE = r"^(?:gloo|ucc|mpi):"
_HOST_CALL = r"^c10d::"


def host_calls_of_collectives(frames: TraceView) -> pl.DataFrame:
    """Ranges of libraries that communicate on the host, in order of start, of runs in which no device worked."""
    names = frames.span_names
    of_library = names.filter(names.cast(pl.String).str.contains(_HOST_RANGE))
    if of_library.is_empty():
        return pl.DataFrame(schema=_HOST_COLUMNS)
    runs = set(frames.timed_runs.ids) - set(frames.device_work["run_id"])
    is_one = (pl.col("level") == str(Level.LIBRARY)) & pl.col("name").is_in(of_library.implode())
    spans = frames.runs(sorted(runs)).scan("spans").filter(is_one, pl.col("duration_ns") >= 0)
    return spans.select(pl.col(c).cast(t) for c, t in _HOST_COLUMNS.items()).sort("run_id", "start_ns").collect()


_HOST_COLUMNS = {
    "span_id": pl.Int64(), "run_id": pl.Int64(), "step": pl.Int64(), "name": pl.String(),
    "start_ns": pl.Int64(), "duration_ns": pl.Int64(),
}  # fmt: skip


def _host_operations(frames: TraceView) -> pl.DataFrame:
    """Collectives on the host as `_recorded_kernels` has those of devices, with rank and exposed_ns.

    Another thread may run what a call of c10d began. Where a run has as many such calls as ranges, the n-th call is the
    n-th range's, and what is recorded of it counts first.
    """
    ranges = host_calls_of_collectives(frames)
    if ranges.is_empty():
        return pl.DataFrame(schema=ranges.schema)
    units = rank_units(frames).select("run_id", "rank")
    spans = frames.runs(ranges["run_id"].unique().to_list()).scan("spans")
    is_call = (pl.col("level") == str(Level.OPERATOR)) & pl.col("name").cast(pl.String).str.contains(_HOST_CALL)
    calls = spans.filter(is_call).sort("run_id", "start_ns").select("run_id", pl.col("span_id").alias("call_id"))
    nth = pl.int_range(pl.len()).over("run_id").alias("nth")
    numbered = calls.collect().with_columns(nth, pl.len().over("run_id").alias("calls"))
    paired = ranges.with_columns(nth, pl.len().over("run_id").alias("ranges")).join(
        numbered, on=["run_id", "nth"], how="left", maintain_order="left"
    )
    call_ids = paired.select(pl.when(pl.col("calls") == pl.col("ranges")).then("call_id").otherwise("span_id"))
    own, of_call = (recorded_facts(frames.trace, ids.to_numpy()) for ids in (ranges["span_id"], call_ids.to_series()))
    facts = pl.DataFrame(pl.select(pl.coalesce(of_call[c], own[c])).to_series().alias(c) for c in _FACTS)
    names = column_at(frames.trace, "name", call_ids.to_series()).cast(pl.String)
    operations = [
        _operation_of_operator(name) or _operation_of_range(each)
        for name, each in zip(names, ranges["name"], strict=True)
    ]
    facts = facts.with_columns(pl.coalesce(pl.Series("operation", operations, dtype=pl.String), "operation"))
    rows = (
        ranges.hstack(facts)
        .with_columns(call_ids.to_series().alias("call_id"))
        .join(units, on="run_id", how="left", maintain_order="left")
    )
    return rows.with_columns(group_label(), pl.col("start_ns").alias("launch_ns"), _time_alone_on_host(frames, ranges))


def computing_operators(frames: TraceView) -> pl.DataFrame:
    """Operators of the host that neither communicate nor call any that do, by run, with step, phase and times."""
    columns = ("run_id", "step", "phase", "start_ns", "duration_ns")
    spans = every_span(frames.trace, "parent_id", "level", "name", *columns)
    communicates = spans["name"].cast(pl.String).str.contains(_HOST_CALL).to_numpy().copy()
    parents, above = spans["parent_id"].fill_null(-1).to_numpy(), np.flatnonzero(communicates)
    while len(above):
        above = distinct_numbers(parents[above])
        above = above[(above >= 0) & ~communicates[above]]
        communicates[above] = True
    is_one = (pl.col("level") == str(Level.OPERATOR)) & (pl.col("duration_ns") >= 0)
    return spans.filter(~pl.Series(communicates)).filter(is_one).select(columns)


def _time_alone_on_host(frames: TraceView, ranges: pl.DataFrame) -> pl.Series:
    """How long each ran while none of `computing_operators` did."""
    out = ranges["duration_ns"].to_numpy().copy()
    compute = frames.once(computing_operators)
    for (run,), rows in ranges.with_row_index("row").group_by("run_id"):
        out[rows["row"].to_numpy()] = _time_alone(rows, compute.filter(pl.col("run_id") == run))
    return pl.Series("exposed_ns", out)


def _time_alone(rows: pl.DataFrame, beside: pl.DataFrame) -> Ints:
    """How long each of the rows ran while nothing beside it did."""
    busy = merge(beside["start_ns"].to_numpy(), (beside["start_ns"] + beside["duration_ns"]).to_numpy())
    start, duration = rows["start_ns"].to_numpy(), rows["duration_ns"].to_numpy()
    alone: Ints = duration - (coverage_before(busy, start + duration) - coverage_before(busy, start))
    return alone


def modelled_collectives(frames: TraceView) -> pl.DataFrame:
    """One row a communication kernel, in order of span_id: span_id and bus_bytes, what its rank sends to others.

    By the parts that are recorded of it, else by `bus_factor`; 0 in a group of one, null where size or group are not
    known.
    """
    kernels = _recorded_kernels(frames)
    rows = with_sizes(frames.trace, _with_partners(kernels.hstack([_ranks(frames, kernels)])))
    alone = pl.when(pl.col("ranks") == 1, pl.col("message_bytes").is_not_null()).then(0.0)
    sent = pl.col("message_bytes") * bus_factor(pl.col("operation"), pl.col("ranks"))
    by_parts = pl.col("sent_bytes").cast(pl.Float64)
    return rows.select("span_id", pl.coalesce(by_parts, alone, sent).alias("bus_bytes")).sort("span_id")


def with_sizes(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `ranks`, the size of the group or else of the job, and `message_bytes`."""
    sizes = trace.frame("runs")["world_size"].drop_nulls().unique()
    job = int(sizes[0]) if len(sizes) == 1 else None
    of_job = pl.when(pl.col("process_group").is_null()).then(pl.lit(job, pl.Int64))
    return rows.with_columns(pl.coalesce("group_size", of_job).alias("ranks")).with_columns(
        message_bytes(pl.col("ranks"))
    )


def _recorded_kernels(frames: TraceView) -> pl.DataFrame:
    """The kernels and copies that communicate with what is recorded of each, `process_group` and `operation`."""
    kernels = frames.all_activities.filter(_IS_WORK, IS_COMMUNICATION)
    by_name = pl.col("collective").cast(pl.String).fill_null("other")
    described = kernels.hstack(recorded_facts(frames.trace, kernels["span_id"].to_numpy())).filter(_is_call(kernels))
    described = described.with_columns(pl.coalesce("operation", by_name).alias("operation"))
    return _with_coalesced_calls(frames, described).with_columns(group_label())


def _with_coalesced_calls(frames: TraceView, kernels: pl.DataFrame) -> pl.DataFrame:
    """The kernels, those of coalesced sends and receives with what the calls say that each is made of.

    Such a call launches nothing: what a thread called since its last kernel of communication is in the next one. Of one
    send or receive it is that; of several it is a `send_recv`, with the other rank where there is one alone.
    """
    is_one = pl.col("operation").is_in(_COALESCED) & pl.col("peer_rank").is_null()
    facts = frames.trace.frame("collectives").with_columns(pl.col(pl.Categorical).cast(pl.String))
    calls = facts.filter(pl.col("operation").is_in(PAIRWISE), pl.col("peer_rank").is_not_null())
    if calls.is_empty() or kernels.filter(is_one).is_empty():
        return kernels.with_columns(pl.col("operation").replace(dict([_COALESCED])))
    where = ["run_id", "process_id", "call_thread_id"]
    taken = {"run_id": "run_id", "process_id": "process_id", "thread_id": where[2], "start_ns": "launch_ns"}
    hosts = [column_at(frames.trace, name, calls["span_id"]).alias(of_call) for name, of_call in taken.items()]
    on_host = column_at(frames.trace, "device_id", calls["span_id"]).is_null()
    called = calls.drop("span_id").hstack(hosts).filter(on_host).sort("launch_ns")
    launches = kernels.select("span_id", *where, "launch_ns").drop_nulls("launch_ns").sort("launch_ns")
    parts = called.join_asof(launches, on="launch_ns", by=where, strategy="forward", check_sortedness=False)
    columns = ("operation", "group_name", "group_ranks", "group_size", "input_bytes", "output_bytes", "peer_rank")
    made = parts.drop_nulls("span_id").group_by("span_id").agg(
        pl.when(pl.struct("operation", "peer_rank").n_unique() == 1)
        .then(pl.col("operation").first())
        .otherwise(pl.lit(_COALESCED[1])),
        pl.col("group_name", "group_ranks", "group_size").first(),
        *(pl.when(pl.col(c).null_count() == 0).then(pl.col(c).sum()).alias(c) for c in columns[4:6]),
        pl.when(pl.col("peer_rank").n_unique() == 1).then(pl.col("peer_rank").first()),
    )  # fmt: skip
    joined = kernels.join(made, on="span_id", how="left", suffix="_called", maintain_order="left")
    own = (pl.when(is_one).then(pl.coalesce(f"{c}_called", c)).otherwise(c).alias(c) for c in columns)
    renamed = pl.col("operation").replace(dict([_COALESCED]))
    return joined.with_columns(own).select(kernels.columns).with_columns(renamed)


def _is_call(kernels: pl.DataFrame) -> pl.Expr:
    """Of kernels with what is recorded: those that communicate by name, and those of which no recorded call has these.

    Within a call of the framework others pack and unpack what is sent: of its class, but no calls of their own.
    """
    named = communication_names(kernels["name"])
    is_copy = pl.col("kind").cast(pl.String) == str(Kind.MEMCPY)  # by engines, in place of a kernel
    return is_copy | pl.col("name").cast(pl.String).is_in(named.implode()) | pl.col("operation").is_null()


def _ranks(frames: TraceView, kernels: pl.DataFrame) -> pl.Series:
    """Of each kernel the rank that ran it."""
    units = rank_units(frames)
    return kernels.select(_UNIT).join(units, on=_UNIT, how="left", nulls_equal=True, maintain_order="left")["rank"]


def _exposed_times(frames: TraceView, kernels: pl.DataFrame) -> pl.Series:
    """How long each ran while no kernel but communication did on its device."""
    out = np.zeros(kernels.height, dtype=np.int64)
    kinds = [str(Kind.KERNEL), str(Kind.GRAPH)]
    compute = frames.all_activities.filter(pl.col("kind").cast(pl.String).is_in(kinds), ~IS_COMMUNICATION)
    for (run, device), rows in kernels.with_row_index("row").group_by("run_id", "device_id"):
        beside = compute.filter(pl.col("run_id") == run, pl.col("device_id").eq_missing(pl.lit(device, pl.Int64)))
        out[rows["row"].to_numpy()] = _time_alone(rows, beside)
    return pl.Series("exposed_ns", out)
