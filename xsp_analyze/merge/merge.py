"""Merges runs of the same work, taken at different levels, into one profile.

A profile is a trace whose runs have roles: model, layers, kernels, counters. Every number is taken from the run that
disturbed it least: model latency from `model`, layer latency from `layers`, kernel latency from `kernels`, counters
from `counters`, of which no time is ever used.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.formulas import ordered_mean
from xsp_analyze.frames.steps import marked_steps
from xsp_analyze.merge.comparable import by_batch_size, check_comparable, main_batch_size, name_of, role_of
from xsp_analyze.merge.matching import (
    kernel_work,
    match_kernels,
    match_layers,
    resolve_parents,
    template,
    with_identities,
)
from xsp_analyze.merge.replay_layers import Run, holds_replays, realign_replays
from xsp_analyze.trace.roles import EAGER_KERNELS, in_other_batch
from xsp_model import GRAPH_CAPTURE, Finding, LedgerKind, TraceBuilder, XspError
from xsp_model.ledger import to_frame
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_model import Trace

__all__ = ["MIN_MATCH", "join_ranks", "merge", "with_offsets"]


_OF_SPANS = ("span_id", "parent_id", "layer_id", "forward_id", "captured_in_id", "owner_id")


def with_offsets(rows: pl.DataFrame, run: int, span: int) -> pl.DataFrame:
    """The rows with run and span numbers moved up."""
    return rows.with_columns(
        *(pl.col(c) + span for c in _OF_SPANS if c in rows.columns),
        *(pl.col(c) + run for c in ("run_id",) if c in rows.columns),
    )


# Profiles of the ranks of one job, each merged from runs at several levels, side by side in one.
_TIMES = {"spans": "start_ns", "counters": "time_ns", "allocations": "time_ns"}


def join_ranks(profiles: Sequence[Trace]) -> Trace:
    """One profile with the runs of all; those of one role stand on one axis, by the Unix times that they state.

    Numbers are then taken as of ranks that were read together: each over its own steps, latency as their mean.
    """
    builder = TraceBuilder()
    run = span = 0
    origins = _origins(profiles)
    for profile in profiles:
        late_ns = _late_ns(profile, origins)
        for name in TABLES:
            builder.add(name, with_offsets(_on_one_axis(name, profile.frame(name), late_ns), run, span))
        run += profile.table("runs").num_rows
        span += profile.row_count
    return builder.build()


def _origins(profiles: Sequence[Trace]) -> Mapping[str, int]:
    """The earliest Unix time of a time 0, by role; a role is left out where a run does not know its own."""
    runs = pl.concat([profile.frame("runs").select("role", "epoch_ns") for profile in profiles])
    origins = runs.group_by("role").agg(
        pl.col("epoch_ns").min(), pl.col("epoch_ns").is_not_null().all().alias("is_known")
    )
    return dict(origins.filter(pl.col("is_known"), pl.col("role").is_not_null()).select("role", "epoch_ns").iter_rows())


def _late_ns(profile: Trace, origins: Mapping[str, int]) -> Mapping[int, int]:
    """How much later than the others' each run's time 0 is."""
    rows = profile.frame("runs").select("run_id", "role", "epoch_ns").iter_rows()
    return {run: epoch_ns - origins[role] for run, role, epoch_ns in rows if role in origins}


def _on_one_axis(name: str, rows: pl.DataFrame, late_ns: Mapping[int, int]) -> pl.DataFrame:
    late = pl.col("run_id").replace_strict(dict(late_ns), default=0, return_dtype=pl.Int64)
    if name == "runs":
        return rows.with_columns(pl.col("epoch_ns") - late, pl.col("clock_origin_ns") - late)
    time = _TIMES.get(name)
    return rows.with_columns(pl.col(time) + late) if time is not None and any(late_ns.values()) else rows


MIN_MATCH = 0.95
"""Runs whose layers or kernels match less are refused unless told otherwise."""
_ONE_EACH = ("model", "layers", "kernels")


@dataclass
class _Parts:
    """What the profile of one batch size is put together from."""

    by_role: dict[str, list[Trace]]
    traces: list[tuple[str, Trace]] = field(default_factory=list)  # role and run
    layers: dict[int, pl.DataFrame] = field(default_factory=dict)  # id(trace) -> the table under new identities
    tables: dict[int, dict[str, pl.DataFrame]] = field(default_factory=dict)  # likewise, other tables that changed
    metrics: list[pl.DataFrame] = field(default_factory=list)  # of spans of the kernels run
    findings: list[Finding] = field(default_factory=list)
    is_main: bool = True  # whether it is of the batch size that the profile is for

    def of_other_batch(self) -> _Parts:
        """The same under the roles of a batch size that the profile is not for."""
        return replace(self, is_main=False)


def merge(
    traces: Sequence[Trace],
    *,
    min_match: float = MIN_MATCH,
    noted: Sequence[Finding] = (),
    batch_size: int | None = None,
) -> Trace:
    """The profile of these runs; XspError where they are of different work or systems, or match too little.

    Of several batch sizes each is merged by itself. All analyses are of `batch_size`, else of the one that
    `main_batch_size` chooses; the others stand beside it in what goes over batch sizes. `noted` goes to the ledger.
    """
    if not traces:
        raise XspError("there is nothing to merge")
    check_comparable(traces)
    groups = by_batch_size(traces, batch_size)
    by_size = {size: _parts(group, min_match) for size, group in groups.items()}
    main = main_batch_size({size: parts.by_role for size, parts in by_size.items()}, batch_size)
    others = [parts.of_other_batch() for size, parts in by_size.items() if size != main]
    return _build_trace([by_size[main], *others], noted)


def _parts(traces: Sequence[Trace], min_match: float) -> _Parts:
    """What the runs of one batch size put together."""
    by_role = _by_role(traces)
    if not any(role in by_role for role in _ONE_EACH):
        raise XspError("the runs hold counters only", advice="Add the run whose kernels they are of")
    parts = _Parts(by_role, findings=_not_used(traces, by_role))
    for role in _ONE_EACH:
        runs = by_role.get(role, [])
        beside = EAGER_KERNELS if _holds_replays_beside(runs) else f"{role}, serialised"
        parts.traces += [(role if n == 0 else beside, t) for n, t in enumerate(runs)]
    parts.traces += [("counters", t) for t in by_role.get("counters", [])]
    _tie_layers(parts, by_role, min_match)
    _tie_parents(parts, by_role, min_match)
    _tie_replays(parts, by_role, min_match)
    _tie_counters(parts, by_role, min_match)
    return parts


def _by_role(traces: Sequence[Trace]) -> dict[str, list[Trace]]:
    """The runs by role. Of a role's runs, one asynchronous or else the first is taken, and one serialised beside it.

    Of runs of kernels one that replays graphs goes first, with one beside it that tells what it replays.
    """
    by_role: dict[str, list[Trace]] = {}
    for trace in traces:
        by_role.setdefault(role_of(trace), []).append(trace)
    for role in _ONE_EACH:
        runs = by_role.get(role, [])
        serialised = [t for t in runs if _is_serialised(t)]
        free = [t for t in runs if not _is_serialised(t)]
        replayed = [t for t in free if holds_replays(t)] if role == "kernels" and len(runs) > 1 else []
        eager = [t for t in runs if t not in replayed]
        if replayed and eager:
            by_role[role] = [replayed[0], next((t for t in eager if _is_serialised(t)), eager[0])]
        elif role == "kernels" and serialised and free:
            by_role[role] = [free[0], serialised[0]]
        elif runs:
            by_role[role] = (serialised if role == "layers" else free or serialised)[:1] or runs[:1]
    return by_role


def _not_used(traces: Sequence[Trace], by_role: dict[str, list[Trace]]) -> list[Finding]:
    used = {id(trace) for runs in by_role.values() for trace in runs}
    left = [name_of(trace) for trace in traces if id(trace) not in used]
    return [
        Finding(
            LedgerKind.RUN_NOT_USED,
            f"runs that were not used, since another run of their level was: {', '.join(left)}",
            len(left),
        )
    ]


def _is_serialised(trace: Trace) -> bool:
    return any(trace.table("runs").column("serialised").to_pylist())


def _holds_replays_beside(runs: Sequence[Trace]) -> bool:
    """Whether the first of a role's runs replays graphs, and a run beside it tells what they are."""
    return len(runs) > 1 and holds_replays(runs[0])


def _tie_layers(parts: _Parts, by_role: dict[str, list[Trace]], min_rate: float) -> None:
    runs = by_role.get("kernels", [])
    reference = next(iter(by_role.get("layers", runs[1:])), None)
    for other in runs:
        if reference is not None and reference is not other:
            matched, mapping = match_layers(reference, other)
            if other is not runs[0] or not _holds_replays_beside(runs):  # it calls only what is around its graphs
                matched.require(min_rate, name_of(reference), name_of(other))
                parts.findings.append(matched.finding(name_of(reference), name_of(other)))
            parts.layers[id(other)] = with_identities(other.frame("layers"), mapping)


def _tie_parents(parts: _Parts, by_role: dict[str, list[Trace]], min_rate: float) -> None:
    """Where an asynchronous run leaves two parents open, the serialised run of the set tells which is right."""
    runs = by_role.get("kernels", [])
    if len(runs) > 1 and not _holds_replays_beside(runs):
        free, serialised = runs[:2]
        ours = parts.layers.get(id(free), free.frame("layers"))
        theirs = parts.layers.get(id(serialised), serialised.frame("layers"))
        layer_index = resolve_parents((free, ours), (serialised, theirs))
        layer_index.matched.require(min_rate, name_of(serialised), name_of(free))
        parts.tables[id(free)] = {"spans": layer_index.spans}
        parts.findings += layer_index.findings


def _tie_replays(parts: _Parts, by_role: dict[str, list[Trace]], min_rate: float) -> None:
    """Kernels that graphs replayed get the layers of the same kernels in the run without graphs."""
    runs = by_role.get("kernels", [])
    if _holds_replays_beside(runs):
        replayed, eager = (Run(t, parts.layers.get(id(t), t.frame("layers"))) for t in runs[:2])
        aligned = realign_replays(replayed, eager, min_rate)
        parts.tables[id(runs[0])] = aligned.tables
        parts.findings += aligned.findings


def _tie_counters(parts: _Parts, by_role: dict[str, list[Trace]], min_rate: float) -> None:
    counters, kernels = by_role.get("counters", []), by_role.get("kernels", [])
    if not counters:
        return
    if not kernels:
        raise XspError(
            "there are counters but no run with kernels", advice="Add the run of level MLG that they belong to"
        )
    work = kernel_work(kernels[0])
    step = template(work)
    for trace in counters:
        theirs = template(kernel_work(trace))
        matched, pairs = match_kernels(step, theirs)
        matched.require(min_rate, name_of(kernels[0]), name_of(trace))
        parts.findings.append(matched.finding(name_of(kernels[0]), name_of(trace)))
        parts.metrics.append(_carry_metrics(trace, work, step, theirs, pairs))


def _carry_metrics(
    trace: Trace, work: pl.DataFrame, step: pl.DataFrame, theirs: pl.DataFrame, pairs: pl.DataFrame
) -> pl.DataFrame:
    """The metrics of `theirs` as rows of `metrics` for the same kernels in every step; means where seen repeatedly."""
    execution = pairs.select(
        step["execution"].gather(pairs["first"]).alias("execution"),
        theirs["span_id"].gather(pairs["second"]).alias("span_id"),
    )
    measured = (
        trace.frame("metrics")
        .join(execution, on="span_id", how="inner")
        .group_by("execution", "metric", "unit", "source")
        .agg(ordered_mean(pl.col("value")))
    )
    targets = work.select("execution", "span_id")
    return targets.join(measured, on="execution", how="inner").drop("execution")


def _build_trace(all_parts: Sequence[_Parts], noted: Sequence[Finding]) -> Trace:
    builder = TraceBuilder()
    builder.note(noted)
    same = _common_facts(("model", "framework", "device_name"), [t for parts in all_parts for _, t in parts.traces])
    run = span = 0
    for parts in all_parts:
        if parts.is_main:
            builder.note(parts.findings)
        else:  # of its runs, so that they do not stand beside the numbers of others; but for runs left out
            builder.note([one for one in parts.findings if one.kind is LedgerKind.RUN_NOT_USED])
            of_runs = [one for one in parts.findings if one.kind is not LedgerKind.RUN_NOT_USED]
            builder.add("ledger", to_frame(of_runs).with_columns(pl.lit(run, pl.Int64).alias("run_id")))
        facts = [*same, *_common_facts(("batch_size",), [trace for _, trace in parts.traces])]
        for role, trace in parts.traces:
            described = _role(role if parts.is_main else in_other_batch(role))
            for name, rows in _rows_of(parts, role, trace).items():
                runs_with_facts = rows.with_columns(described, *facts) if name == "runs" else rows
                builder.add(name, with_offsets(runs_with_facts, run, span))
            run += trace.table("runs").num_rows
            span += trace.row_count if role != "counters" else 0
    return builder.build()


def _rows_of(parts: _Parts, role: str, trace: Trace) -> dict[str, pl.DataFrame]:
    """The tables that a run gives: of counter runs no spans, as their times tell of nothing."""
    if role == "counters":  # what they lacked, a timeline, they have now
        return {
            "runs": trace.frame("runs"),
            "ledger": trace.frame("ledger").filter(pl.col("kind") != "no_timestamps"),
        }
    changed = parts.tables.get(id(trace), {})
    if id(trace) in parts.layers:
        changed = {**changed, "layers": parts.layers[id(trace)]}
    tables = {name: changed[name] if name in changed else trace.frame(name) for name in TABLES}
    tables["spans"] = _in_order(tables["spans"], trace)
    measured = _first_of_each(parts.metrics) if role == "kernels" else []
    return {**tables, "metrics": pl.concat([tables["metrics"], *measured], how="diagonal_relaxed")}


def _role(role: str) -> pl.Expr:
    """The role of a trace's runs in the profile; captures of its graphs stay that."""
    captured = pl.col("role") == GRAPH_CAPTURE
    return pl.when(captured).then("role").otherwise(pl.lit(role)).alias("role")


def _common_facts(columns: Sequence[str], traces: Sequence[Trace]) -> list[pl.Expr]:
    """What one run says of the work holds for the runs that do not say it."""
    runs = pl.concat([trace.frame("runs") for trace in traces])
    common = {c: runs[c].drop_nulls().to_list() for c in columns}
    return [pl.col(column).fill_null(pl.lit(values[0])) for column, values in common.items() if values]


def _in_order(rows: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Steps numbered from 0 in each run, so that the n-th step of one run stands beside the n-th of another."""
    steps = marked_steps(trace).with_columns(
        (pl.col("step").rank("dense") - 1).over("run_id").cast(pl.Int64).alias("nth")
    )
    numbered = rows.join(
        steps.select("run_id", "step", "nth"), on=["run_id", "step"], how="left", maintain_order="left"
    )
    return numbered.with_columns(pl.col("nth").alias("step")).drop("nth")


def _first_of_each(tables: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
    """Where several runs measured a metric of a span, the first one counts."""
    if not tables:
        return []
    return [pl.concat(tables).unique(["span_id", "metric", "source"], keep="first", maintain_order=True)]
