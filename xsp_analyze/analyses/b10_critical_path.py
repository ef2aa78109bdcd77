"""B10: the longest chain of host, launches, device work and waits, and what it consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.critical_path import Link, Timeline, walk
from xsp_analyze.launches import STREAM, waits_of
from xsp_analyze.layer_occupancy import innermost_calls, overlaps
from xsp_analyze.layer_time import LAYER_KEY, layer_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.critical_path import Chain
    from xsp_analyze.view import View

__all__ = ["critical_path"]

_ROW = {"run_id": pl.Int64, "link": pl.String, "kind": pl.String, "layer_index": pl.Int64, "layer_name": pl.String,
        "layer_type": pl.String, "duration_ns": pl.Int64}  # fmt: skip
_KEYS = ("run_id", "link", "kind", *LAYER_KEY)
_NO_LAYER = (None, None, None)


@analysis(
    "B10",
    "critical path",
    needs=("kernel", "runtime"),
    read=(
        "Only what is on the path can shorten the run: with device work on most of it the kernels count, with host "
        "time and launch latency on it the device waits for the program."
    ),
    columns=(
        Column("run_id", pl.Int64(), "The run whose path it is.", role=Role.KEY),
        Column(
            "link", pl.String(), "device, launch latency, device gap, synchronisation, host or unknown.", role=Role.KEY
        ),
        Column("kind", pl.String(), "Of device work: kernel, memcpy, memset or graph.", role=Role.KEY),
        Column(
            "layer_index", pl.Int64(), "The layer whose work it is; of host time, that the host was in.", role=Role.KEY
        ),
        Column("layer_name", pl.String(), "Its name; null: no layer.", role=Role.LABEL),
        Column("layer_type", pl.String(), "What kind of layer it is.", role=Role.LABEL),
        Column("piece_count", pl.Int64(), "Pieces of the path."),
        Column("duration_ns", pl.Int64(), "Time on the path.", "ns"),
        Column("path_share", pl.Float64(), "Of the whole path, which is as long as the run's steps together."),
    ),
    figure=FigureSpec("bars", x="link", y=("duration_ns",), title="The critical path", color="layer_type", top=20),
    by_step=False,
)
def critical_path(view: View) -> pl.LazyFrame:
    """One row a run, link, kind and layer, by run, then longest first, then in order of the keys.

    From the first step's start to the last end of a step or of work launched in one; without steps, the whole run.
    """
    rows = [row for run in view.roles.kernels for row in _of_run(view, run)]
    found = pl.DataFrame(rows, schema=_ROW, orient="row")
    return (
        found.group_by(_KEYS, maintain_order=True)
        .agg(pl.len().cast(pl.Int64).alias("piece_count"), pl.col("duration_ns").sum())
        .with_columns((pl.col("duration_ns") / pl.col("duration_ns").sum().over("run_id")).alias("path_share"))
        .sort("run_id", -pl.col("duration_ns"), *_KEYS[1:], nulls_last=True)
        .lazy()
    )


def _of_run(view: View, run: int) -> Iterator[tuple[object, ...]]:
    """The pieces of the run's path; those of the host cut where it went from layer to layer."""
    work = _work(view, run)
    if work.is_empty():
        return
    chain = walk(_timeline(view, run, work))
    kinds = work["kind"].cast(pl.String)
    layers = work.select(LAYER_KEY).rows()
    for link, start, end, row in _pieces(chain):
        if link is Link.DEVICE:
            yield run, str(link), kinds[row], *layers[row], end - start
        elif link is not Link.HOST:
            yield run, str(link), None, *_NO_LAYER, end - start
    yield from _on_host(view, run, chain)


def _pieces(chain: Chain) -> Iterator[tuple[Link, int, int, int]]:
    return zip(chain.kinds, chain.starts, chain.ends, chain.rows, strict=True)


def _on_host(view: View, run: int, chain: Chain) -> Iterator[tuple[object, ...]]:
    calls = layer_calls(view.trace).filter(pl.col("run_id") == run, pl.col("end_ns").is_not_null())
    stretches, names = innermost_calls(calls), calls.select(LAYER_KEY).rows()
    for link, start, end, _ in _pieces(chain):
        if link is Link.HOST:
            for row, duration in overlaps(stretches, start, end):
                if duration:
                    yield run, str(link), None, *(names[row] if row >= 0 else _NO_LAYER), duration


def _work(view: View, run: int) -> pl.DataFrame:
    """The run's device work, of its steps where it has some, in order of end."""
    work = view.all_activities.filter(pl.col("run_id") == run)
    if (view.all_steps["run_id"] == run).any():
        work = work.filter(pl.col("step").is_not_null())
    end = (pl.col("start_ns") + pl.col("duration_ns")).alias("end_ns")
    return work.with_columns(end).sort("end_ns", "start_ns", "span_id")


def _timeline(view: View, run: int, work: pl.DataFrame) -> Timeline:
    waits = waits_of(view.trace, run)
    first, last = _extent(view, run)
    streams = work.select(pl.struct(STREAM).rank("dense").cast(pl.Int64).alias("stream"))["stream"]
    return Timeline(
        work["start_ns"].to_numpy(),
        work["end_ns"].to_numpy(),
        streams.to_numpy(),
        work["call_end_ns"].fill_null(-1).to_numpy(),
        waits["start_ns"].to_numpy(),
        waits["end_ns"].to_numpy(),
        first,
        max(last, int(np.max(work["end_ns"].to_numpy()))),
    )


def _extent(view: View, run: int) -> tuple[int, int]:
    """From the first to the last step; of a run without steps from the first to the last of all its spans."""
    steps = view.all_steps.filter(pl.col("run_id") == run)
    spans = steps.lazy() if steps.height else view.trace.scan("spans").filter(pl.col("run_id") == run)
    end = pl.col("start_ns") + pl.col("duration_ns")
    first, last = spans.select(pl.col("start_ns").min(), end.max().alias("end_ns")).collect().row(0)
    return int(first), int(last)
