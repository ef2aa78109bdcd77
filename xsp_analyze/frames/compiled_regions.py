"""Calls of what torch.compile made, and where such a call leaves compiled code: at a graph break.

Dynamo names each call `Torch-Compiled Region: F/V`, F the number of the function that it compiled and V of the version
of it; PyTorch before 2.5 has no numbers. Where it cannot compile a function whole, the rest after the break is a
function of its own that the first part calls: a region within a region, but not within the call of a compiled graph.
A graph that a backend splits on purpose (vLLM's piecewise graphs, DDP's buckets) is several calls of compiled graphs in
one region, and no break.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.host_blocks import COMPILATIONS
from xsp_model import Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xsp_model import Trace

__all__ = ["CompiledRegions", "compiled_regions"]

_REGION_CALL = r"^Torch-Compiled Region(?:$|: (\d{1,18})/(\d{1,18}))"
_GRAPH = r"^## Call CompiledFxGraph|^CompiledFunction$"
_LOOKUP = r"^TorchDynamo Cache Lookup"
_OWN = r"^TorchDynamo |^Pregraph bytecode|^PythonDispatchMode|^AOTDispatcher "  # calls of Dynamo's, no operators
_MARKS = {"region": _REGION_CALL, "graph": _GRAPH, "compilation": rf"^dynamo$|{COMPILATIONS}", "lookup": _LOOKUP}
_THREAD = ("run_id", "process_id", "thread_id")
_SWEPT = ("mark", "start_ns", "end_ns", "function")
_CALLS = ("run_id", "start_ns", "duration_ns", "function", "version")
_BREAK_COLUMNS = {
    "start_ns": pl.Int64, "end_ns": pl.Int64, "from_function": pl.Int64, "to_function": pl.Int64,
    "from_graph": pl.Boolean,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CompiledRegions:
    """What was called and where it was left; each in order of run, thread and start.

    `calls`: run_id, start_ns, duration_ns, function, version. `breaks`: run_id, process_id, thread_id, start_ns (end of
    the compiled graph before, else begin of the region), end_ns (the next region is looked up), from_function,
    to_function, from_graph (whether calls of compiled graphs are recorded). `eager`: operators in such breaks that are
    in no other operator: run_id, name, start_ns, duration_ns.
    """

    calls: pl.DataFrame
    breaks: pl.DataFrame
    eager: pl.DataFrame


def compiled_regions(trace: Trace, runs: Sequence[int], names: pl.Series) -> CompiledRegions:
    """Those of the runs; `names` are all names of spans, each once."""
    marks = _marks(trace, runs, names)
    pieces = [
        pl.DataFrame(_breaks(rows.select(_SWEPT).iter_rows()), schema=_BREAK_COLUMNS, orient="row").select(
            *(pl.lit(value, pl.Int64).alias(column) for column, value in zip(_THREAD, key, strict=True)), pl.all()
        )
        for key, rows in marks.group_by(_THREAD, maintain_order=True)
    ]
    none = pl.DataFrame(schema={**dict.fromkeys(_THREAD, pl.Int64), **_BREAK_COLUMNS})
    breaks = pl.concat([none, *pieces])
    return CompiledRegions(marks.filter(pl.col("mark") == "region").select(_CALLS), breaks, _eager(trace, breaks))


def _marks(trace: Trace, runs: Sequence[int], names: pl.Series) -> pl.DataFrame:
    """The spans that say where compiled code begins, ends and is made, outer ones first; none without regions."""
    text = pl.col("name").cast(pl.String)
    mark = pl.coalesce(pl.when(text.str.contains(pattern)).then(pl.lit(name)) for name, pattern in _MARKS.items())
    named = names.to_frame("name").select(
        "name",
        mark.alias("mark"),
        text.str.extract(_REGION_CALL, 1).cast(pl.Int64, strict=False).alias("function"),
        text.str.extract(_REGION_CALL, 2).cast(pl.Int64, strict=False).alias("version"),
    )
    named = named.drop_nulls("mark") if (named["mark"] == "region").any() else named.clear()
    end = pl.col("start_ns") + pl.col("duration_ns")
    return (
        trace.scan("spans")
        .filter(
            pl.col("name").is_in(named["name"].implode()),
            pl.col("run_id").is_in(list(runs)),
            pl.col("duration_ns").is_not_null(),
            pl.col("attribution").is_null(),
        )
        .select(*_THREAD, "name", "start_ns", "duration_ns", end.alias("end_ns"))
        .join(named.lazy(), on="name")
        .sort(*_THREAD, "start_ns", -pl.col("end_ns"))
        .collect()
    )


@dataclass(slots=True)
class _Open:
    """A region whose call has not ended: where its compiled code last ended, and when Dynamo looked for more of it."""

    function: int | None
    end: int
    left: int
    from_graph: bool = False
    until: int | None = None

    def leaves_at(self, time: int) -> None:
        self.left, self.until = time, None


def _breaks(marks: Iterable[tuple[str, int, int, int | None]]) -> list[tuple[int, int, int | None, int | None, bool]]:
    """The breaks on one thread, in the columns of `_BREAK_COLUMNS`; marks stand in order of start, outer ones first."""
    regions: list[_Open] = []
    breaks, covered = [], -1  # until `covered` all lies within a compiled graph or a compilation
    for mark, start, end, function in marks:
        if start < covered:
            continue
        while regions and regions[-1].end <= start:
            inner = regions.pop()
            if regions:
                regions[-1].leaves_at(inner.end)
        outer = regions[-1] if regions else None
        if mark == "region":
            if outer is not None:
                until = start if outer.until is None else outer.until
                breaks.append((outer.left, until, outer.function, function, outer.from_graph))
            regions.append(_Open(function, end, start))
            continue
        covered = covered if mark == "lookup" else end
        if outer is not None and mark == "graph":
            outer.from_graph = True
            outer.leaves_at(end)
        elif outer is not None and (mark == "lookup" or outer.until is None):
            outer.until = start
    return breaks


def _eager(trace: Trace, breaks: pl.DataFrame) -> pl.DataFrame:
    """The outermost operators that begin in a break after a compiled graph."""
    windows = breaks.filter("from_graph").select(*_THREAD, pl.col("start_ns").alias("from_ns"), "end_ns").lazy()
    name = pl.col("name").cast(pl.String)
    rows = (
        trace.scan("spans")
        .filter(pl.col("level") == str(Level.OPERATOR), pl.col("duration_ns").is_not_null())
        .select(*_THREAD, name, "start_ns", "duration_ns")
        .filter(~name.str.contains(_OWN))
        .join(windows.select(_THREAD).unique(), on=_THREAD, how="semi", nulls_equal=True)
        .sort("start_ns")
        .join_asof(windows.sort("from_ns"), left_on="start_ns", right_on="from_ns", by=_THREAD, check_sortedness=False)
        .filter(pl.col("start_ns") < pl.col("end_ns"))
        .sort(*_THREAD, "start_ns", -pl.col("duration_ns"))
        .collect()
    )
    end = (pl.col("start_ns") + pl.col("duration_ns")).cum_max().shift().over(_THREAD)
    outermost = rows.filter((pl.col("start_ns") >= end).fill_null(value=True))
    return outermost.select("run_id", "name", "start_ns", "duration_ns")
