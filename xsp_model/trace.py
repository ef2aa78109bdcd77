"""A trace: the frozen Arrow tables of one or more runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from xsp_model.columns.arrow import conform, read_parquet, row_groups, to_arrow
from xsp_model.schema import TABLES
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import networkx as nx

    from xsp_model.schema import TableSpec

__all__ = ["Trace"]


@dataclass(frozen=True)
class Trace:
    """Every table of `TABLES`, in memory or in the Parquet files of a bundle, read when asked for.

    Made by `TraceBuilder.build` and `bundle.read`, and of a few rows and columns, as frames, by `xsp_ingest.excerpt`;
    nothing else should construct one: `with_tables` gives one with other tables.
    """

    parts: Mapping[str, pa.Table | pl.DataFrame | Path]
    origin: Path | None = field(default=None, compare=False)
    kept: object = field(default=None, compare=False, repr=False)  # what keeps the files of parts in being
    check: Callable[[str, Collection[str] | None], None] | None = field(
        default=None, compare=False, repr=False
    )  # before a file is first used

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))

    def part(self, name: str, only: Collection[str] | None = None) -> pa.Table | pl.DataFrame | Path:
        """One of the parts, for use: where it is a bundle's file, XspError unless its rows are what a trace's are.

        `only`: the columns that will be used; None: any.
        """
        part = self.parts[name]
        if self.check is not None and isinstance(part, Path):
            self.check(name, only)
        return part

    def table(self, name: str) -> pa.Table:
        """The whole table in memory, with exactly the declared schema."""
        part = self.part(name)
        if isinstance(part, pl.DataFrame):
            return part.to_arrow()
        return read_parquet(part).cast(TABLES[name].schema) if isinstance(part, Path) else part

    def with_tables(self, tables: Mapping[str, pl.DataFrame]) -> Trace:
        """The same trace with these tables in place of its own, put into their declared order and schema."""
        parts = {name: _arrow(rows, TABLES[name]) for name, rows in tables.items()}
        return Trace({**self.parts, **parts}, self.origin, self.kept, self.check)

    def scan(self, name: str, only: Collection[str] | None = None) -> pl.LazyFrame:
        """The table as a lazy frame; a bundle's columns are read only where used. `only`: as `part` has it."""
        part = self.part(name, only)
        if isinstance(part, Path):
            return pl.scan_parquet(part)
        if isinstance(part, pl.DataFrame):
            return part.lazy()
        if name not in self._frames:
            self._frames[name] = pl.DataFrame(part)
        return self._frames[name].lazy()

    def pieces(self, name: str, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """These columns some rows at a time, in order: for what takes most columns of most rows.

        Words of a bundle are taken over as they are stored, which costs less than a scan's looking each of them up.
        """
        part = self.part(name)
        if not isinstance(part, Path):
            yield self.scan(name).select(columns).collect()
            return
        for group in self.row_groups(name, columns):
            yield pl.DataFrame(group)

    def row_groups(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The table, or these columns of it, as Arrow tables that may be held at once, in order; at least one."""
        part = self.part(name)
        if not isinstance(part, Path):
            table = self.table(name)
            yield table if columns is None else table.select(columns)
            return
        yield from row_groups(part, TABLES[name], columns)

    def frame(self, name: str) -> pl.DataFrame:
        """The whole table as a polars frame (shares memory with the Arrow table)."""
        return self.scan(name).collect()

    @cached_property
    def _frames(self) -> dict[str, pl.DataFrame]:
        return {}

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """The levels that occur, outermost first."""
        present = set(self.scan("spans").select(pl.col("level").unique().cast(pl.String)).collect()["level"])
        return tuple(str(level) for level in LEVELS if level in present)

    def has_level(self, level: str) -> bool:
        """Whether it is one of `levels`, which takes less to find out."""
        rows = self.scan("spans").filter(pl.col("level") == level).select("level").head(1)
        return not rows.collect().is_empty()

    def height(self, name: str) -> int:
        """Number of rows of a table."""
        part = self.parts[name]
        if isinstance(part, pl.DataFrame):
            return part.height
        return int(pq.read_metadata(part).num_rows) if isinstance(part, Path) else int(part.num_rows)

    @property
    def row_count(self) -> int:
        """Number of spans."""
        return self.height("spans")

    def to_networkx(self, span_ids: Sequence[int] | None = None) -> nx.DiGraph[int]:
        """A directed graph over the spans given, or over all; see `graph.to_digraph`."""
        from xsp_model.graph import to_digraph  # noqa: PLC0415 (networkx is slow to import and seldom wanted)

        return to_digraph(self, span_ids)


def _arrow(rows: pl.DataFrame, spec: TableSpec) -> pa.Table:
    return to_arrow(conform(rows, spec).sort(spec.order, nulls_last=True, maintain_order=True), spec)
