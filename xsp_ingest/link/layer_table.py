"""The table `layers`: every call of a layer with its identity, path, own host time, shapes and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.link.climb import innermost
from xsp_ingest.link.forest import at_spans
from xsp_ingest.link.layers import layer_spans
from xsp_ingest.link.nest import SLACK_NS
from xsp_model import AttributionBasis, LayerSource, Level
from xsp_model.columns.arrays import lookup, no_refs, nullable_index, pieces, release, true_indices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.link.forest import Forest
    from xsp_ingest.link.layers import Layering
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = ["calls", "with_compiled", "with_index", "with_recorded"]

_INSTANCE = r"_\d+$"
_MODULE = "nn.Module: "


def calls(forest: Forest, layering: Layering) -> pl.DataFrame:
    """One row a call: the columns of `layers` with `at` for the span's position, without `layer_index`.

    Besides, `has_work` says whether operators or device work ran in the call outside its children, `first_ns`
    when the first of its own operators started, and `sequence_index` is null until `with_recorded`.
    Modules and ranges are listed whatever the layers' source is.
    """
    sources = [LayerSource.MODULE, LayerSource.RANGE]
    if layering.source is LayerSource.OPERATOR:
        sources.append(LayerSource.OPERATOR)
    parts = [_of_source(forest, source) for source in sources]
    release()
    rows = pl.concat([part for part in parts if part.height] or parts[:1])
    return rows.with_columns(sequence_index=pl.lit(None, pl.Int64))


def _of_source(forest: Forest, source: LayerSource) -> pl.DataFrame:
    is_call = layer_spans(forest, source)
    at = np.flatnonzero(is_call)
    up = forest.parent[at]
    holder = innermost(forest.parent, is_call)
    above = np.where(up >= 0, holder[up], -1).astype(np.int64)
    bounds = _Bounds.of(forest.spans, at, above)
    run = pl.col("run_id") if "run_id" in forest.spans.columns else pl.lit(0).alias("run_id")
    spans = forest.spans.select(run, "name", "step", "start_ns")[at]
    own = spans.select(
        pl.Series("at", at),
        pl.Series("above", above),
        "run_id",
        pl.col("name").cast(pl.String).cast(pl.Categorical),
        pl.col("step").cast(pl.Int64),
        "start_ns",
        pl.lit(str(source)).alias("source"),
        pl.Series("is_container", np.isin(at, above[bounds.inside])),
        pl.Series("self_host_ns", bounds.self_time(at, np.where(bounds.inside, above, -1))),
    )
    named = _with_names(own, source)
    del own, spans, bounds, above, up  # of as many calls as there are, what is in `named` by now
    for facts_of in (_first_operator, _own_work, _memory):
        named = _beside(named, facts_of(forest, holder))
    if source is LayerSource.MODULE:
        named = _beside(named, _first_launch(forest, holder))
        named = named.with_columns(pl.coalesce("first_ns", "launched_ns").alias("first_ns")).drop("launched_ns")
    return named.with_columns(
        pl.col("has_work").fill_null(value=False), pl.coalesce("first_ns", "start_ns").alias("first_ns")
    ).drop("start_ns", "above", "run_id", "step", "name")


def _beside(calls: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """The calls with the facts of some of them; a join would hold all columns of all calls twice."""
    fact_index = nullable_index(lookup(facts["at"].to_numpy(), calls["at"].to_numpy()))
    return calls.hstack(facts.drop("at").select(pl.all().gather(fact_index)))


@dataclass(frozen=True, slots=True)
class _Bounds:
    """When calls began and ended, and which of them ended inside the call that they began in."""

    start: Ints
    end: Ints
    inside: Bools  # one that runs on beside the call above it is no part of it

    @classmethod
    def of(cls, spans: pl.DataFrame, at: Ints, above: Ints) -> _Bounds:
        """Of the calls at these positions, each in the call `above` it (-1: none), which is one of them."""
        of_calls = spans.select("start_ns", pl.col("duration_ns"))[at]
        start = of_calls["start_ns"].to_numpy()
        end = start + of_calls["duration_ns"].fill_null(0).to_numpy()
        held = np.flatnonzero(above >= 0)
        inside = np.zeros(len(at), dtype=np.bool_)
        inside[held] = end[held] <= end[np.searchsorted(at, above[held])] + SLACK_NS
        return cls(start, end, inside)

    def self_time(self, at: Ints, above: Ints) -> Ints:
        """Duration less the time in which calls directly inside ran, on whichever thread."""
        own: Ints = self.end - self.start
        child = np.flatnonzero(above >= 0)
        parent = np.searchsorted(at, above[child])
        inside = pl.DataFrame(
            {"parent": parent, "start": self.start[child], "end": np.minimum(self.end[child], self.end[parent])}
        )
        before = pl.col("end").cum_max().shift(1).over("parent")  # calls are in order of start
        alone = pl.col("end") - pl.max_horizontal("start", before)
        np.subtract.at(own, parent, inside.select(alone.clip(lower_bound=0)).to_series().to_numpy())
        own[own < 0] = 0
        return own


def _with_names(own: pl.DataFrame, source: LayerSource) -> pl.DataFrame:
    """Adds layer_name, layer_type and path, from the outermost calls inwards.

    A module's instance has one name. A range or operator that comes more than once in one call of a step is
    another layer each time: `aten::conv2d#2` is the second.
    """
    done = pl.DataFrame(schema={"at": pl.Int64, "path": pl.Categorical})
    parts = []
    waiting = own
    while waiting.height:
        ready = waiting.filter((pl.col("above") < 0) | pl.col("above").is_in(done["at"].implode()))
        waiting = waiting.filter((pl.col("above") >= 0) & ~pl.col("above").is_in(done["at"].implode()))
        named = _one_depth(ready, done, source)
        parts.append(named)
        done = named.select("at", "path")
    return pl.concat(parts) if parts else _one_depth(own, done, source)


def _one_depth(ready: pl.DataFrame, above: pl.DataFrame, source: LayerSource) -> pl.DataFrame:
    outer = above.rename({"at": "above", "path": "outer"})
    nested = ready.join(outer, on="above", how="left", maintain_order="left").sort("start_ns", "at")
    siblings = ["run_id", "outer", "step", "name"]
    if source is LayerSource.MODULE:
        name = pl.col("name").cast(pl.String).str.strip_prefix(_MODULE)  # which NVTX ranges of modules keep
        kind = name.str.replace(_INSTANCE, "")
    else:
        count = pl.int_range(1, pl.len() + 1).over(siblings).alias("nth")
        nested = nested.with_columns(count)
        once = pl.col("nth").max().over("outer", "name") == 1
        kind = pl.col("name").cast(pl.String)
        name = pl.when(once).then(kind).otherwise(pl.format("{}#{}", kind, "nth"))
    path = pl.concat_str(pl.col("outer").cast(pl.String), name, separator=".", ignore_nulls=True)
    return nested.with_columns(  # categorical: calls are many, their names few
        layer_name=name.cast(pl.Categorical), layer_type=kind.cast(pl.Categorical), path=path.cast(pl.Categorical)
    ).select(*ready.columns, "layer_name", "layer_type", "path")


def _first_operator(forest: Forest, holder: Positions) -> pl.DataFrame:
    """When a call's first own operator started; shapes and types of the first one that has them."""
    at = forest.operators["at"].to_numpy()
    owner = holder[at]
    first = _first_of(owner, len(holder))
    facts = pl.DataFrame({"at": owner[first].astype(np.int64)}).with_columns(
        forest.spans["start_ns"].gather(at[first]).alias("first_ns")
    )
    for name, column in (("shapes", "input_shapes"), ("dtypes", "input_dtypes")):
        rows = _first_of(owner, len(holder), forest.operators[column].is_not_null().to_numpy())
        texts = pl.DataFrame({"at": owner[rows].astype(np.int64)}).with_columns(
            forest.operators[column].gather(rows).cast(pl.Categorical).alias(name)  # as some readers give them
        )
        facts = facts.join(texts, on="at", how="left", maintain_order="left")
    return facts


def _first_launch(forest: Forest, holder: Positions) -> pl.DataFrame:
    """When a call first launched work of its own: its position in the order of layers where operators are not recorded.

    So a container that adds a residual comes after its children, as in a trace of the same model with operators.
    """
    first = [pl.DataFrame(schema={"at": pl.Int64, "launched_ns": pl.Int64})]
    for piece in pieces(len(holder)):
        is_work = forest.is_level(Level.KERNEL, piece) & ~forest.replayed[piece] & (forest.parent[piece] >= 0)
        work = piece.start + np.flatnonzero(is_work & (holder[piece] >= 0))
        launched = forest.spans["start_ns"].gather(forest.parent[work]).alias("launched_ns")
        launches = pl.DataFrame({"at": holder[work].astype(np.int64)}).with_columns(launched)
        first.append(launches.group_by("at").agg(pl.col("launched_ns").min()))
    return pl.concat(first).group_by("at").agg(pl.col("launched_ns").min())


def _first_of(owner: Positions, count: int, mask: Bools | None = None) -> Ints:
    """The first of the rows in `mask` (None: all) that each owner (-1: nobody) has, by owner; of `count` spans."""
    first = no_refs(count)
    for piece in reversed(list(pieces(len(owner)))):  # what is written last stays
        rows = np.flatnonzero((owner[piece] >= 0) & (True if mask is None else mask[piece]))[::-1] + piece.start
        first[owner[rows]] = rows
    return first[true_indices(first >= 0)].astype(np.int64)


def _own_work(forest: Forest, holder: Positions) -> pl.DataFrame:
    is_owner = np.zeros(len(holder) + 1, dtype=np.bool_)
    for piece in pieces(len(holder)):
        is_kernel = forest.is_level(Level.KERNEL, piece) & ~forest.replayed[piece]
        is_owner[holder[piece][forest.is_level(Level.OPERATOR, piece) | is_kernel]] = True  # -1 marks the last entry
    at = np.flatnonzero(is_owner[:-1])
    return pl.DataFrame({"at": at, "has_work": np.ones(len(at), dtype=np.bool_)})


def _memory(forest: Forest, holder: Positions) -> pl.DataFrame:
    """Bytes allocated in a call outside its children: on devices, or on the host where no device memory was used."""
    taken = forest.allocations
    if taken["device_id"].is_not_null().any():
        taken = taken.filter(pl.col("device_id").is_not_null())
    owner = taken["owner"].to_numpy()
    call_at = np.where(owner >= 0, holder[owner], -1) if len(holder) else owner
    own = taken.select(pl.Series("at", call_at, dtype=pl.Int64), pl.col("bytes")).filter(pl.col("at") >= 0)
    return own.group_by("at").agg(pl.col("bytes").filter(pl.col("bytes") > 0).sum().alias("allocated_bytes"))


def with_recorded(calls: pl.DataFrame, spans: pl.DataFrame, recorded: pl.DataFrame) -> pl.DataFrame:
    """The calls with what the file itself says of them instead of what was worked out."""
    if recorded.is_empty():
        return calls
    texts, kinds = ("layer_type", "shapes", "dtypes"), calls.schema
    calls = calls.with_columns(pl.col(texts).cast(pl.String))
    facts = at_spans(spans, recorded).drop("row").with_columns(pl.col(texts).cast(pl.String))
    joined = calls.join(facts, on="at", how="left", maintain_order="left", suffix="_recorded")
    columns = [name for name in facts.columns if name in calls.columns and name != "at"]
    # As they were: the tables of several runs are put together, also of those of which nothing is said.
    better = (pl.coalesce(f"{name}_recorded", name).cast(kinds[name]).alias(name) for name in columns)
    return joined.with_columns(better).drop(f"{name}_recorded" for name in columns)


def with_compiled(calls: pl.DataFrame, attributions: pl.DataFrame) -> pl.DataFrame:
    """The calls, those that have a part of a compiled kernel as calls with work of their own."""
    parts = attributions.filter(pl.col("basis") == str(AttributionBasis.COMPILED_CODE))["layer"]
    if parts.is_empty():
        return calls
    return calls.with_columns(pl.col("has_work") | pl.col("at").is_in(parts.unique().implode()))


def with_index(tables: Sequence[pl.DataFrame], source: LayerSource) -> list[pl.DataFrame]:
    """Adds `layer_index` over all runs: layers with own work, in the file's order, else of first own operator.

    A layer is known by its name where names are instances (modules), else by its path.
    """
    key = "layer_name" if source is LayerSource.MODULE else "path"
    every = pl.concat([t.with_columns(pl.lit(n).alias("table")) for n, t in enumerate(tables)])
    counted = (
        every.filter(pl.col("source") == str(source))
        .group_by(key)
        .agg(
            (pl.col("has_work").any() | ~pl.col("is_container").any()).alias("counts"),
            pl.col("first_ns").filter(pl.col("has_work")).min().alias("work_ns"),
            pl.col("first_ns").min(),
            pl.col("sequence_index").min(),
        )
        .filter("counts")
        .sort("sequence_index", pl.coalesce("work_ns", "first_ns"), pl.col(key).cast(pl.String), nulls_last=True)
        .with_row_index("layer_index")
        .select(key, pl.col("layer_index").cast(pl.Int64), pl.lit(str(source)).alias("source"))
    )
    drop = ["has_work", "first_ns", "sequence_index", "table"]
    indexed = every.join(counted, on=[key, "source"], how="left", maintain_order="left")
    return [indexed.filter(pl.col("table") == n).drop(drop) for n in range(len(tables))]
