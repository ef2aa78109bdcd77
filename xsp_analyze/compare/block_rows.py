"""Rows of a comparison for repeated blocks: one position of a block in all its repetitions, on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.compare.level_rows import layers_under_first
from xsp_analyze.compare.levels import Measured
from xsp_analyze.compare.rows import rows_of
from xsp_analyze.frames.repeated_blocks import repeated_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.compare.layer_pairs import Pairs
    from xsp_analyze.compare.rows import Assumed, Row
    from xsp_analyze.compare.side import Side

__all__ = ["block_rows"]

_POSITION = ["block_index", "position"]


def block_rows(one: Side, two: Side, pairs: Pairs, assumed: Assumed) -> list[Row]:
    """A row a position that both sides have: all its layers that have a partner have it at one position of the other.

    Blocks of a single layer are left out, as their type's row says as much.
    """
    members = _members(one), _members(two)
    if members[0].is_empty() or members[1].is_empty():
        return []
    keys = _pair_keys(one, two, members, pairs)
    labels = [{row["key"]: row for row in _block_labels(side).iter_rows(named=True)} for side in members]

    def describe(a: Any, b: Any) -> dict[str, object]:  # noqa: ANN401 (keys, whatever they are)
        before, after = labels[0][a], labels[1][b]
        return {
            "name": before["name"],
            "after_name": after["name"] if after["name"] != before["name"] else None,
            "layer_type": before["layer_type"],
        }

    measured = _measure_positions(one, members[0]), _measure_positions(two, members[1])
    return rows_of("layer_block", *measured, keys, describe, assumed)[0]


def _members(side: Side) -> pl.DataFrame:
    """`repeated_blocks` of the side's first capture with a `key` a position, of blocks with several positions."""
    members = side.views[0].of_trace.once(repeated_blocks)
    several = pl.col("position").max().over("block_index") > 0
    key = pl.format("{} {}", *_POSITION).alias("key")
    return members.filter(several).with_columns(key)


def _block_labels(members: pl.DataFrame) -> pl.DataFrame:
    """One row a key: `Attention of 24 x layers.{0..23}`, and the type."""
    name = pl.format("{} of {} x {}", pl.col("position_name").first(), pl.len(), pl.col("block").first())
    return members.group_by("key", maintain_order=True).agg(
        name.alias("name"), pl.col("position_type").first().alias("layer_type")
    )


def _pair_keys(one: Side, two: Side, members: tuple[pl.DataFrame, pl.DataFrame], pairs: Pairs) -> list[tuple[str, str]]:
    """Keys of positions that are one and the same, by the pairs of their layers."""
    of_layer = [dict(m.select("layer_index", "key").iter_rows()) for m in members]
    layers = one.layers[0].keys, two.layers[0].keys
    joint = [(layers[0][i], layers[1][j]) for i, j in pairs.rows if i is not None and j is not None]
    there = {(of_layer[0].get(a), of_layer[1].get(b)) for a, b in joint}
    ours, theirs = _partners(there), _partners((b, a) for a, b in there)
    return [
        (key, other)
        for key in dict.fromkeys(members[0]["key"])
        if (other := ours.get(key)) is not None and theirs.get(other) == key
    ]


def _partners(joint: Any) -> Mapping[Any, Any]:  # noqa: ANN401 (pairs of keys or null)
    """For each key its one partner; None where it has several, or layers outside of blocks."""
    partners: dict[Any, Any] = {}
    for key, other in joint:
        partners[key] = other if key not in partners else None
    return partners


def _measure_positions(side: Side, members: pl.DataFrame) -> Sequence[Measured]:
    """The sums over the layers of each position in each capture."""
    at = dict(members.select("layer_index", "key").iter_rows())
    keys = members["key"].unique(maintain_order=True)
    sums = []
    for layers in layers_under_first(side):
        own = np.array([at.get(key) for key in layers.keys], dtype=object)
        of_key = (keys.to_numpy()[:, None] == own[None, :]).astype(np.float64)
        is_known = np.isfinite(layers.mean_ns)
        total = of_key @ np.where(is_known, layers.mean_ns, 0.0)
        mean = np.where((of_key * is_known).any(axis=1), total, np.nan)
        labels = pl.DataFrame({"key": keys})
        sums.append(Measured(labels, mean, of_key @ np.nan_to_num(layers.count), of_key @ layers.steps))
    return sums
