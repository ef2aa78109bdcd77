"""Layers of work that was not simply launched in their calls: replays of graphs, and what a compiler generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.climb import innermost
from xsp_ingest.link.graph_captures import capture_windows, is_of_the_process
from xsp_ingest.link.layers import layer_spans
from xsp_model import Attribution, AttributionBasis, Kind, Level
from xsp_model.columns.arrays import lookup
from xsp_model.columns.tree import ancestors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.link.forest import Forest
    from xsp_ingest.link.graph_replays import PairedWork
    from xsp_ingest.link.layers import Layering
    from xsp_ingest.staging.raw import RawTrace
    from xsp_model import LayerSource
    from xsp_model.columns.arrays import Bools, Positions

__all__ = ["Attributed", "attribute", "replayed_first", "spans_of_capture", "with_forward_lines"]

_ROWS = {"at": pl.Int64, "layer_run": pl.Int64, "layer": pl.Int64, "weight": pl.Float64, "basis": pl.String}
_CAPTURED = {"at": pl.Int64, "run": pl.Int64, "launch": pl.Int64}
_ATTRIBUTIONS = tuple(Attribution)


@dataclass(frozen=True, slots=True)
class Attributed:
    """Of one run: `rows`, a span and layer each, in order of spans; `captured`, replayed work and its captured launch.

    Spans are named by their run and position there; `at` is of the run itself.
    """

    rows: pl.DataFrame
    captured: pl.DataFrame

    def weightiest(self) -> pl.DataFrame:
        """One row a span: the layer with most of it, the first of those with as much."""
        ordered = self.rows.sort("at", -pl.col("weight"), maintain_order=True)
        return ordered.unique("at", keep="first", maintain_order=True)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What a file says of operators' layers: `Attributed.rows`, and the operator of them around each span (or -1)."""

    rows: pl.DataFrame
    of_span: Positions


def attribute(
    raws: Sequence[RawTrace],
    forests: Sequence[Forest],
    layerings: Sequence[Layering],
    source: LayerSource,
    replays: Sequence[PairedWork | None],
) -> list[Attributed]:
    """The attributions of the runs that `replays` is of; layerings are changed to what these say."""
    recorded = [_recorded_rows(run, raw, forests[run], source) for run, raw in enumerate(raws)]
    out = []
    for run, paired in enumerate(replays):
        forest, layering = forests[run], layerings[run]
        parts = [_by_node(run, forest, layering)]
        if (own := recorded[run]) is not None:
            parts.append(_with_launched(own, forest))
            _move_held(own, layering)
        if paired is not None:
            parts.append(_of_replays(paired, recorded))
        attributed = Attributed(pl.concat(parts).sort("at", maintain_order=True), _capture_columns(paired))
        _apply(run, layering, attributed, paired)
        out.append(attributed)
    return out


def _recorded_rows(run: int, raw: RawTrace, forest: Forest, source: LayerSource) -> _Recorded | None:
    """None where the file says nothing; a layer within an attributed operator goes before what is said of that."""
    table = raw.tables["attributions"]
    if table.is_empty():
        return None
    rows = forest.spans["row"].to_numpy()
    at, layer = (lookup(rows, table[column].to_numpy()) for column in ("row", "layer_row"))
    usable = table.with_columns(pl.Series("at", at), pl.Series("layer", layer), pl.lit(run).alias("layer_run")).filter(
        pl.col("at") >= 0, pl.col("layer") >= 0, pl.col("weight") > 0
    )
    share = pl.col("weight") / pl.col("weight").sum().over("at")
    shares = usable.with_columns(share).select(pl.col(name).cast(kind) for name, kind in _ROWS.items())
    has_shares = np.zeros(len(rows), dtype=np.bool_)
    has_shares[shares["at"].to_numpy()] = True
    nearest = innermost(forest.parent, has_shares | layer_spans(forest, source))
    return _Recorded(shares.sort("at", "layer"), np.where((nearest >= 0) & has_shares[nearest], nearest, -1))


def _with_launched(recorded: _Recorded, forest: Forest) -> pl.DataFrame:
    """What is said, and the same of the device work that was launched there."""
    work = np.flatnonzero(forest.is_level(Level.KERNEL) & ~forest.replayed & (recorded.of_span >= 0))
    launched = work[recorded.of_span[work] != work]
    return pl.concat([recorded.rows, _copy_rows(launched, recorded.of_span[launched], recorded.rows)])


def _copy_rows(at: Positions, source: Positions, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of the spans `source` as rows of the spans `at`."""
    pairs = pl.DataFrame({"to": pl.Series(at, dtype=pl.Int64), "at": pl.Series(source, dtype=pl.Int64)})
    return pairs.join(rows, on="at", how="inner", maintain_order="left").drop("at").rename({"to": "at"}).select(*_ROWS)


def _move_held(recorded: _Recorded, layering: Layering) -> None:
    """What ran in an attributed operator is of its weightiest layer."""
    first = Attributed(recorded.rows, pl.DataFrame()).weightiest()
    layer_of = np.full(len(layering.layer) + 1, -1, dtype=layering.layer.dtype)
    layer_of[first["at"].to_numpy()] = first["layer"].to_numpy()
    held = np.flatnonzero(recorded.of_span >= 0)
    layering.layer[held] = layer_of[recorded.of_span[held]]


def _by_node(run: int, forest: Forest, layering: Layering) -> pl.DataFrame:
    """Replayed work whose node's capture the file itself names."""
    at = np.flatnonzero(forest.replayed & (forest.captured_in >= 0) & (layering.layer >= 0))
    return pl.DataFrame({"at": at, "layer": layering.layer[at]}, schema={"at": pl.Int64, "layer": pl.Int64}).select(
        "at",
        pl.lit(run, pl.Int64).alias("layer_run"),
        "layer",
        pl.lit(1.0).alias("weight"),
        pl.lit(str(AttributionBasis.GRAPH_NODE)).alias("basis"),
    )


def _of_replays(paired: PairedWork, recorded: Sequence[_Recorded | None]) -> pl.DataFrame:
    """Replayed work by its captured launch: the layers recorded of the operator there, else the launch's layer."""
    basis = pl.lit(str(AttributionBasis.GRAPH_CAPTURE)).alias("basis")
    plain = np.ones(len(paired.at), dtype=np.bool_)
    parts = []
    for run in np.unique(paired.run):
        if (of_run := recorded[run]) is not None:
            source = np.where(paired.run == run, of_run.of_span[paired.launch], -1)
            parts.append(_copy_rows(paired.at[source >= 0], source[source >= 0], of_run.rows).with_columns(basis))
            plain &= source < 0
    plain &= paired.layer >= 0
    columns = {"at": paired.at[plain], "layer_run": paired.layer_run[plain], "layer": paired.layer[plain]}
    rows = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))
    return pl.concat([*parts, rows.with_columns(pl.lit(1.0).alias("weight"), basis)])


def _capture_columns(paired: PairedWork | None) -> pl.DataFrame:
    if paired is None:
        return pl.DataFrame(schema=_CAPTURED)
    return pl.DataFrame({"at": paired.at, "run": paired.run, "launch": paired.launch}, schema=_CAPTURED)


def _apply(run: int, layering: Layering, attributed: Attributed, paired: PairedWork | None) -> None:
    """Sets layer (-1 where it is of another run), attribution and phase of what is attributed."""
    if paired is not None:
        phase = paired.phase >= 0
        layering.phase[paired.at[phase]] = paired.phase[phase]
        layering.attribution[paired.at] = _ATTRIBUTIONS.index(Attribution.MODEL_ONLY)
    first = attributed.weightiest()
    if first.is_empty():
        return
    at = first["at"].to_numpy()
    layering.layer[at] = first.select(pl.when(pl.col("layer_run") == run).then("layer").otherwise(-1)).to_series()
    work = at[layering.attribution[at] >= 0]
    layering.attribution[work] = _ATTRIBUTIONS.index(Attribution.LAYER)


# Backward operators are of the lines that their forward twins were called from: the engine is called by one line.


def with_forward_lines(forest: Forest) -> pl.DataFrame:
    """The operators; those in a backward one, and it, have the lines of its forward twin.

    What Python called within a backward operator, as to compute something anew, has other lines than that: it keeps its
    own.
    """
    operators, has_twin = forest.operators, forest.twin >= 0
    lines = operators["source_lines"]
    if lines.null_count() == len(lines) or not has_twin.any():
        return operators
    at = operators["at"].to_numpy()
    holder = innermost(forest.parent, has_twin)[at]
    inside = np.flatnonzero(holder >= 0)
    of_holder, of_twin = lookup(at, holder[inside]), lookup(at, forest.twin[holder[inside]])
    texts = lines.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
    recorded = (of_holder >= 0) & (of_twin >= 0)  # -1 reads the last, which does not matter then
    moved = recorded & (texts[inside] == texts[of_holder]) & (texts[of_twin] >= 0)
    source = np.arange(len(at))
    source[inside[moved]] = of_twin[moved]
    return operators.with_columns(lines.gather(source))


# What is kept of a run in which graphs were captured: what the host did while it captured, and what that lay in.


def spans_of_capture(forest: Forest) -> Bools:
    """Which spans are kept; steps are not, as nothing is timed from such a run."""
    start = forest.spans["start_ns"].to_numpy()
    thread = forest.spans.select("process_id", "thread_id").hash_rows().to_numpy()
    kept: Bools = np.zeros(len(start), dtype=np.bool_)
    process = forest.spans["process_id"].to_numpy()
    calls = forest.is_level(Level.RUNTIME) & forest.is_kind(Kind.CALL)
    windows = capture_windows(forest)
    for begin, end in windows:
        first, last = np.searchsorted(start, (start[begin], start[end]), side="left")
        kept[first:last] |= thread[first:last] == thread[begin]
        if is_of_the_process(forest, (begin, end), windows):
            kept[first:last] |= calls[first:last] & (process[first:last] == process[begin])
    held = np.flatnonzero(kept)
    for up in ancestors(forest.parent):
        kept[up[held][up[held] >= 0]] = True
    device = forest.is_level(Level.KERNEL) | forest.is_kind(Kind.SYNC)
    return kept & ~device & ~forest.is_kind(Kind.STEP)


def replayed_first(
    calls: pl.DataFrame, run: int, attributed: Sequence[Attributed], forests: Sequence[Forest]
) -> pl.DataFrame:
    """Calls of layers of a capture as of when their work first ran in a replay, which orders them among the others."""
    starts = [
        each.rows.filter(pl.col("layer_run") == run).with_columns(
            forest.spans["start_ns"].gather(each.rows.filter(pl.col("layer_run") == run)["at"]).alias("replayed_ns")
        )
        for each, forest in zip(attributed, forests, strict=False)
    ]
    first = pl.concat(starts).group_by("layer").agg(pl.col("replayed_ns").min())
    joined = calls.join(first, left_on="at", right_on="layer", how="left", maintain_order="left")
    return joined.with_columns(pl.coalesce("replayed_ns", "first_ns").alias("first_ns")).drop("replayed_ns")
