"""Ranges of tools of which little is known: paired begins and ends, and what they are by their names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from xsp_ingest.link.range_rules import NVTX, classify
from xsp_ingest.staging.raw import RAW_TABLES, frame_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_ingest.ingester import Options

__all__ = ["RANGE_COLUMNS", "BeginsAndEnds", "Mark", "Pair", "tables_of_ranges"]


# Begins and ends of ranges as Chrome's format has them (B and E, b and e), paired by time.


class Mark(NamedTuple):
    """A begin or an end, with whatever is to be remembered of it."""

    time_ns: int
    is_end: bool
    what: Any


class Pair(NamedTuple):
    """A begin and its end."""

    key: tuple[Any, ...]
    begin: Mark
    end: Mark


@dataclass(slots=True)
class BeginsAndEnds:
    """Marks by lane. Their order in the file counts at equal times alone: the format lets events come in any.

    An end closes the last begin of its lane that is open.
    """

    unpaired: int = 0
    open: int = 0
    """Begins without an end among what was read so far, if every end has a begin."""
    _marks: dict[tuple[Any, ...], list[Mark]] = field(default_factory=dict)

    def add(self, key: tuple[Any, ...], mark: Mark) -> None:
        """Takes a mark of the lane `key`."""
        self._marks.setdefault(key, []).append(mark)
        self.open += -1 if mark.is_end else 1

    def pairs(self) -> Iterator[Pair]:
        """Every pair, lane by lane, in order of the ends; what is left is counted in `unpaired`."""
        for key, marks in self._marks.items():
            begun: list[Mark] = []
            for mark in sorted(marks, key=lambda each: each.time_ns):
                if not mark.is_end:
                    begun.append(mark)
                elif begun:
                    yield Pair(key, begun.pop(), mark)
                else:
                    self.unpaired += 1
            self.unpaired += len(begun)


# Ranges of tools of which nothing more is known: steps and layers by their names, else what somebody named.

RANGE_COLUMNS: Mapping[str, pl.DataType] = {
    "name": pl.String(),
    "domain": pl.String(),  # a category or a scope
    "style": pl.String(),
    "start_ns": pl.Int64(),
    "duration_ns": pl.Int64(),
    "process_id": pl.Int64(),
    "thread_id": pl.Int64(),
    "end_thread_id": pl.Int64(),
}


def tables_of_ranges(ranges: pl.DataFrame, options: Options) -> Mapping[str, pl.DataFrame]:
    """The staging tables of these ranges, whose columns are RANGE_COLUMNS; `row` is the position."""
    named = ranges.with_row_index("row").with_columns(
        pl.col("row").cast(pl.Int64),
        pl.when(pl.col("name") != "").then("name").otherwise(pl.lit("[unnamed]")).alias("name"),
        pl.col("name").alias("text"),
        pl.lit(value=False).alias("numbered"),
    )
    kinds = classify(named, NVTX, model_ranges=options.model_ranges, layer_ranges=options.layer_ranges)
    placed = named.hstack(kinds)
    tables = {
        "spans": frame_of("spans", placed),
        "ranges": frame_of("ranges", placed.with_columns(pl.col("row").alias("range_id"))),
    }
    return tables | {name: frame_of(name) for name in RAW_TABLES if name not in tables}
