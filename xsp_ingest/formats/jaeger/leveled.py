"""Whether the runs of a file are the same work at several levels, and which level each is of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.values import integer
from xsp_ingest.formats.jaeger.document import tags_of
from xsp_ingest.formats.jaeger.evaluations import evaluated_levels
from xsp_ingest.formats.jaeger.levels import depth_of
from xsp_ingest.formats.jaeger.metrics import SOURCE
from xsp_ingest.staging.raw import RunLevel
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.formats.jaeger.document import JaegerTrace
    from xsp_ingest.staging.raw import RawTrace

__all__ = ["with_levels"]

_ROLES = ("model", "layers", "kernels", "counters")


@dataclass(frozen=True, slots=True)
class _Run:
    """A run, what it is taken for (None: no model ran in it) and what tells whether others are of the same work."""

    raw: RawTrace
    role: str | None
    levels: Sequence[str]
    batch_sizes: frozenset[int]


def with_levels(traces: Sequence[JaegerTrace], raws: Sequence[RawTrace]) -> list[RawTrace]:
    """The runs, least profiled first and each with its level where they are of one work; else the ledger says why not.

    A level is what the run holds: the tag may ask for kernels on a machine that has none.
    """
    runs = [_run(trace, raw) for trace, raw in zip(traces, raws, strict=True)]
    evaluated = [run for run in runs if run.role is not None]
    if len({(run.role, *run.levels) for run in evaluated}) <= 1:
        return list(raws)
    if doubts := _doubts(evaluated):
        detail = f"{LedgerKind.LEVELS_MIXED.sentence}; they were not merged, since {doubts}"
        finding = Finding(LedgerKind.LEVELS_MIXED, detail, len(evaluated))
        return [replace(raws[0], findings=(*raws[0].findings, finding)), *raws[1:]]
    has_kernels = any(run.role == "kernels" for run in evaluated)
    return [_marked(run, has_kernels=has_kernels) for run in sorted(runs, key=_depth)]


def _run(trace: JaegerTrace, raw: RawTrace) -> _Run:
    sizes = (integer(tags_of(span.tags).get("batch_size")) for span in trace.spans)
    return _Run(raw, _role(raw), evaluated_levels(trace), frozenset(size for size in sizes if size))


def _role(raw: RawTrace) -> str | None:
    """By the deepest level that was recorded; None where no step of a model was."""
    spans = raw.tables["spans"].select(pl.col("level", "kind").cast(pl.String))
    if not (spans["kind"] == str(Kind.STEP)).any():
        return None
    if (spans["level"] == str(Level.KERNEL)).any():
        counted = (raw.tables["metrics"]["source"].cast(pl.String) == SOURCE).any()
        return "counters" if counted else "kernels"
    return "layers" if spans["level"].is_in([str(Level.LAYER), str(Level.OPERATOR)]).any() else "model"


def _doubts(runs: Sequence[_Run]) -> str:
    """Why they may be of different work; empty where nothing says so and something says that they are of the same."""
    models = {run.raw.facts.model for run in runs}
    differing = {
        "models": models - {None},
        "frameworks": {run.raw.facts.framework for run in runs} - {None},
        "batch sizes": frozenset[int]().union(*(run.batch_sizes for run in runs)),
    }
    for what, values in differing.items():
        if len(values) > 1:
            return f"they are of different {what}: {', '.join(sorted(map(str, values)))}"
    if None in models and not all(run.levels for run in runs):
        return "neither `evaluation_trace_level` nor the model's name says in each that they are of the same work"
    return ""


def _depth(run: _Run) -> tuple[int, int]:
    role = len(_ROLES) if run.role is None else _ROLES.index(run.role)
    return role, max(map(depth_of, run.levels), default=0)


def _marked(run: _Run, *, has_kernels: bool) -> RawTrace:
    """A run with counters gives the kernels' times, too, where no other run does."""
    if run.role is None:
        return run.raw
    role = "kernels" if run.role == "counters" and not has_kernels else run.role
    evidence = f"evaluation_trace_level {', '.join(run.levels)}" if run.levels else "the deepest level it holds"
    if run.role == "counters":
        evidence += ", counters in its logs"
    return replace(run.raw, facts=replace(run.raw.facts, level=RunLevel(role, evidence)))
