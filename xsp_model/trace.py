"""A trace: the frozen Arrow tables of one or more runs, and its span tree as a networkx graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from xsp_model.columns.arrow import conform, read_parquet, row_groups, to_arrow
from xsp_model.errors import require
from xsp_model.schema import TABLES
from xsp_model.vocabulary import LEVELS, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import networkx as nx

    from xsp_model.schema import TableSpec

__all__ = ["Trace", "to_digraph"]


@dataclass(frozen=True)
class Trace:
    """Every table of `TABLES`, in memory or in the Parquet files of a bundle, read when asked for.

    Made by `TraceBuilder.build` and `bundle.read`, and of a few rows and columns, as frames, by `xsp_ingest.convert`;
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
        """A directed graph over the spans given, or over all; see `to_digraph`."""
        return to_digraph(self, span_ids)


def _arrow(rows: pl.DataFrame, spec: TableSpec) -> pa.Table:
    return to_arrow(conform(rows, spec).sort(spec.order, nulls_last=True, maintain_order=True), spec)


# The span tree as a networkx graph, for algorithms of one's own.

_ATTRIBUTES = (
    "level",
    "kind",
    "name",
    "start_ns",
    "duration_ns",
    "process_id",
    "thread_id",
    "device_id",
    "stream_id",
    "step",
    "phase",
)


class _Tables(Protocol):
    """What is taken of a trace."""

    def scan(self, name: str) -> pl.LazyFrame: ...


def to_digraph(trace: _Tables, span_ids: Sequence[int] | None = None) -> nx.DiGraph[int]:
    """A graph whose nodes are span ids with the span's columns as attributes.

    Edges carry `edge`: `child` (ran inside), `launch` (runtime call to device work), `backward_of`
    (backward operator to its forward twin) and `sync` (device work to the wait it was waited for by).
    An edge is there when both its ends are. About 700 bytes and 4 us a node: choose a part of a large trace.
    XspError where networkx is not installed.
    """
    networkx = require("networkx", purpose="a graph of spans", extra="networkx")
    spans = trace.scan("spans").select("span_id", "parent_id", "correlation_id", *_ATTRIBUTES)
    if span_ids is not None:
        spans = spans.filter(pl.col("span_id").is_in(list(span_ids)))
    chosen = spans.with_columns(pl.col(pl.Categorical).cast(pl.String)).collect()
    graph: nx.DiGraph[int] = networkx.DiGraph()
    graph.add_nodes_from(
        (row.pop("span_id"), _without_nulls(row)) for row in chosen.drop("parent_id").iter_rows(named=True)
    )
    _add_edges(graph, _tree_edges(chosen))
    twins = trace.scan("operators").select("span_id", "forward_id").drop_nulls().collect()
    _add_edges(graph, ((a, b, "backward_of") for a, b in twins.iter_rows()))
    _add_edges(graph, _sync_edges(chosen))
    return graph


def _without_nulls(row: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in row.items() if value is not None}


def _add_edges(graph: nx.DiGraph[int], edges: Iterable[tuple[int, int, str]]) -> None:
    graph.add_edges_from((a, b, {"edge": kind}) for a, b, kind in edges if a in graph and b in graph)


def _tree_edges(spans: pl.DataFrame) -> Iterable[tuple[int, int, str]]:
    launched = pl.when(pl.col("level") == Level.KERNEL).then(pl.lit("launch")).otherwise(pl.lit("child"))
    return spans.filter(pl.col("parent_id").is_not_null()).select("parent_id", "span_id", launched).iter_rows()


def _sync_edges(spans: pl.DataFrame) -> Iterable[tuple[int, int, str]]:
    """The last device work on a stream that ended before a wait on that stream did."""
    waits = spans.filter(
        pl.col("kind") == "sync", pl.col("stream_id").is_not_null(), pl.col("duration_ns").is_not_null()
    )
    work = spans.filter(pl.col("level") == Level.KERNEL, pl.col("duration_ns").is_not_null())
    if waits.is_empty() or work.is_empty():
        return ()
    key = ["process_id", "device_id", "stream_id"]
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    pairs = (
        waits.select("span_id", *key, end)
        .sort("end_ns")
        .join_asof(
            work.select(pl.col("span_id").alias("work_id"), *key, end).sort("end_ns"),
            on="end_ns",
            by=key,
            check_sortedness=False,
        )
    )
    return pairs.filter(pl.col("work_id").is_not_null()).select("work_id", "span_id", pl.lit("sync")).iter_rows()
