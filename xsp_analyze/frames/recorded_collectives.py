"""What a trace records of collectives: which operation a communication kernel is, of which process group, how large."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import Level
from xsp_model.arrays import nullable_index
from xsp_model.tree import innermost

if TYPE_CHECKING:
    from xsp_model import Trace
    from xsp_model.arrays import Bools, Ints, Positions

__all__ = ["group_label", "recorded_facts"]

_RANGE = r"^(?:nccl|rccl|gloo|ucc):_?(\w+?)_*$"
_FACTS = ("operation", "group_name", "group_ranks", "group_size", "input_bytes", "output_bytes")
_GROUP = ("group_name", "group_ranks", "group_size")


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
    around = [_around(parents, kernels, facts, (name,)) for name in ("operation", "input_bytes", "output_bytes")]
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
    """What the range of the framework around each launch names, else null."""
    names = spans["name"].unique()
    of_ranges = names.filter(names.cast(pl.String).str.contains(_RANGE))
    is_range: Bools = ((spans["level"] == str(Level.LIBRARY)) & spans["name"].is_in(of_ranges.implode())).to_numpy()
    around = innermost(parents, is_range)[kernels]
    return spans["name"].gather(nullable_index(around)).cast(pl.String).str.extract(_RANGE)
