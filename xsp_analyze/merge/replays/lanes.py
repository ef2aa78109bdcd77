"""Device work as units (a step, a graph launch, a run) of lanes: activities in an order that the device kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model.arrays import Bools, Ints

__all__ = ["NOT_ONE", "Lane", "Unit", "distinct_units"]

NOT_ONE = -1
"""The identity of an activity that is another one in each of several units of one content."""

_JITTER_NS = 1_000  # profilers let consecutive activities of a graph overlap by so much


@dataclass(frozen=True, slots=True)
class Lane:
    """The activities of one content of a lane, in order: key, identity and whether it is a replay's, of each.

    `spans` has a row a unit.
    """

    device_id: int
    key: Ints
    identity: Ints
    replayed: Bools
    spans: Ints  # units x activities


@dataclass(frozen=True, slots=True)
class Unit:
    """Units of the same content: lanes in a fixed order, in each the earliest unit first."""

    lanes: Sequence[Lane]

    @property
    def count(self) -> int:
        """How many activities one unit has."""
        return sum(len(lane.key) for lane in self.lanes)

    @property
    def replayed_count(self) -> int:
        """How many of them are a replay's."""
        return sum(int(lane.replayed.sum()) for lane in self.lanes)


_Content = tuple[tuple[int, bytes], ...]


def distinct_units(work: pl.DataFrame, by: Sequence[str]) -> list[Unit]:
    """The units that rows of one value of the columns `by` make, those of one content as one; by first start.

    Activities of a device's streams are in one order, that of their starts, where no two ran at the same time, as
    replays of one chain may be reported on several streams; else each stream is a lane.
    """
    if work.is_empty():
        return []
    rows = _in_lanes(work, by)
    key = rows["key"].to_numpy()
    bounds = np.append(np.flatnonzero(rows["starts_lane"].to_numpy()), len(key))
    units: dict[int, list[tuple[int, bytes, slice]]] = {}
    heads = rows.select("unit", "device_id")[bounds[:-1]]
    for (unit, device), first, end in zip(heads.iter_rows(), bounds[:-1], bounds[1:], strict=True):
        units.setdefault(unit, []).append(
            (-1 if device is None else device, key[first:end].tobytes(), slice(first, end))
        )
    by_content: dict[_Content, list[list[slice]]] = {}
    for unit in sorted(units):
        lanes = sorted(units[unit], key=lambda lane: lane[:2])
        by_content.setdefault(tuple(lane[:2] for lane in lanes), []).append([lane[2] for lane in lanes])
    columns = _Columns(key, *(rows[name].to_numpy() for name in ("identity", "replayed", "span_id")))
    return [columns.unit(content, members) for content, members in by_content.items()]


@dataclass(frozen=True, slots=True)
class _Columns:
    key: Ints
    identity: Ints
    replayed: Bools
    span: Ints

    def unit(self, content: _Content, members: Sequence[Sequence[slice]]) -> Unit:
        """The units of one content, each given by where its lanes stand."""
        return Unit([self._lane(device, [member[n] for member in members]) for n, (device, _) in enumerate(content)])

    def _lane(self, device: int, slices: Sequence[slice]) -> Lane:
        identities = np.stack([self.identity[each] for each in slices])
        agreed = np.where((identities == identities[0]).all(axis=0), identities[0], NOT_ONE)
        first, spans = slices[0], np.stack([self.span[each] for each in slices])
        return Lane(device, self.key[first], agreed, self.replayed[first], spans)


def _in_lanes(work: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The rows in order of unit, device, lane and start, with `unit` (numbered by first start) and `starts_lane`."""
    ordered = work.sort("start_ns", "span_id").with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    units = ordered.select(by).unique(maintain_order=True).with_row_index("unit")
    rows = ordered.join(units, on=by, how="left", nulls_equal=True, maintain_order="left")
    of_device = ("unit", "device_id")
    others_end = pl.col("end_ns").cum_max().shift(1).over(of_device)
    overlaps = ((pl.col("start_ns") + _JITTER_NS) < others_end).fill_null(value=False)
    rows = rows.with_columns(
        (overlaps.any().over(of_device) & (pl.col("stream_id").n_unique().over(of_device) > 1)).alias("concurrent")
    ).with_columns(pl.when("concurrent").then("stream_id").alias("lane"))
    rows = rows.sort("unit", "device_id", "lane", "start_ns", "span_id", nulls_last=True)
    changes = [pl.col(c).ne_missing(pl.col(c).shift(1)) for c in ("unit", "device_id", "lane")]
    return rows.with_columns((pl.any_horizontal(changes) | (pl.int_range(pl.len()) == 0)).alias("starts_lane"))
