"""The device work of two runs side by side: what each activity is, so that the same of both can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.activities import AXES
from xsp_analyze.frames.group_ids import group_ids, numbered
from xsp_analyze.merge.kernel_names import base_name, normalised
from xsp_analyze.trace.timed_runs import timed
from xsp_model import Attribution, Kind

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["ReplayedWork", "Run", "compared"]

_COLUMNS = (
    *("span_id", "parent_id", "run_id", "process_id", "step", "device_id", "stream_id"),
    *("kind", "name", "start_ns", "duration_ns", "layer_id", "phase", "attribution"),
)
_IDENTITY = ("layer_index", "layer_name", "path", "phase")


@dataclass(frozen=True, slots=True)
class Run:
    """A run and its table `layers` under the identities that the profile has."""

    trace: Trace
    layers: pl.DataFrame


@dataclass(frozen=True, slots=True)
class ReplayedWork:
    """The device activities of the replayed run and of the reference, and what they were compared by.

    `key` is a number, the same exactly for activities that may be the same work: of one kind, name, grid and block.
    `identity` is a number for layer and phase in the reference, and `replayed` says what of ours lacks its layer for
    being replayed.
    """

    ours: pl.DataFrame
    theirs: pl.DataFrame
    basis: str


def compared(replayed: Run, reference: Run) -> ReplayedWork:
    """The activities of both runs with their keys."""
    ours, theirs = _activities(replayed.trace), _activities(reference.trace)
    spelling, spelled_as = _spelling(ours, theirs)
    both = pl.concat([ours.with_columns(of=pl.lit(0)), theirs.with_columns(of=pl.lit(1))])
    names = both["name"].cast(pl.String).replace(spelling)
    both = both.with_columns(names.cast(pl.Categorical).alias("spelled"), pl.col("kind").cast(pl.String))
    keys = ["kind", "spelled", *AXES]
    both = _with_shapes(both, [replayed.trace, reference.trace])
    has_shapes = bool(both.select(pl.any_horizontal(pl.col(AXES).is_not_null()).any()).item())
    key, _ = numbered(*group_ids(both.select(keys)))
    both = both.with_columns(key=pl.Series(key, dtype=pl.Int64)).drop("of", "spelled", *AXES)
    parts = both[: ours.height], both[ours.height :]
    return ReplayedWork(_marked(parts[0]), _identified(parts[1], reference.layers), spelled_as + _SHAPED[has_shapes])


_SHAPED = {True: ", grid and block", False: ""}


def _activities(trace: Trace) -> pl.DataFrame:
    """All device activities but those of captures, and replays recorded as one, of which nothing can be told."""
    rows = timed(trace, trace.scan("spans")).filter(pl.col("attribution").is_not_null()).select(_COLUMNS).collect()
    return rows.filter(pl.col("kind").cast(pl.String) != str(Kind.GRAPH)).with_columns(
        pl.col("duration_ns").fill_null(0)
    )


def _spelling(ours: pl.DataFrame, theirs: pl.DataFrame) -> tuple[dict[str, str], str]:
    """Each name as it is compared: whole, or the function alone where that alone finds kernels in the other run."""
    names, others = ({*rows["name"].cast(pl.String).unique()} for rows in (ours, theirs))
    full = {name: normalised(name) for name in names | others}
    if len(names & others) < len(names):
        short = {name: base_name(name) for name in names | others}
        if _in_both(short, names, others) > _in_both(full, names, others):
            return short, "name of the function"
    return full, "name"


def _in_both(spelling: dict[str, str], names: set[str], others: set[str]) -> int:
    """How many of the names are, so spelled, in the other run too."""
    there = {spelling[name] for name in others}
    return sum(spelling[name] in there for name in names)


def _with_shapes(both: pl.DataFrame, traces: list[Trace]) -> pl.DataFrame:
    """Adds AXES, null for every kernel of a name of which one of the runs does not tell all of them."""
    kernels = pl.concat(
        trace.scan("kernels").select("span_id", *AXES).collect().with_columns(of=pl.lit(n))
        for n, trace in enumerate(traces)
    )
    shaped = both.join(kernels, on=["of", "span_id"], how="left", maintain_order="left")
    all_have = pl.all_horizontal(pl.col(AXES).is_not_null()).all().over("kind", "spelled")
    return shaped.with_columns(pl.when(all_have).then(pl.col(axis)).alias(axis) for axis in AXES)


def _marked(ours: pl.DataFrame) -> pl.DataFrame:
    is_replay = pl.col("attribution").cast(pl.String) == str(Attribution.GRAPH_REPLAY)
    return ours.with_columns(is_replay.alias("replayed"), pl.lit(0, pl.Int64).alias("identity"))


def _identified(theirs: pl.DataFrame, layers: pl.DataFrame) -> pl.DataFrame:
    calls = layers.select(pl.col("span_id").alias("layer_id"), "layer_index", "layer_name", "path")
    identified = theirs.join(calls, on="layer_id", how="left", maintain_order="left")
    number, _ = numbered(*group_ids(identified.select(_IDENTITY)))
    return identified.with_columns(
        pl.Series("identity", number, dtype=pl.Int64), pl.lit(value=False).alias("replayed")
    ).drop("layer_index", "layer_name", "path")
