"""The lanes of a trace: one a thread, one a stream, and which spans stand on each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import groups
from xsp_analyze.pages.viewer.boxes import NONE
from xsp_analyze.text.shown import clean
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.arrays import Ints

__all__ = ["Lane", "Titles", "lanes_of", "timed_spans"]

_SIDE = pl.when(pl.col("attribution").is_not_null()).then(2).when(pl.col("kind") == str(Kind.SYNC)).then(1).otherwise(0)
_HOST, _WAITS, _DEVICE = range(3)
_COLUMNS = ("span_id", "run_id", "level", "kind", "name", "start_ns", "duration_ns", "layer_id")
_PLACE_COLUMNS = ("process_id", "thread_id", "device_id", "stream_id")
_KEYS = ("run_id", "is_of_device", "process_id", "device_id", "side", "thread_id", "stream_id")


@dataclass(frozen=True, slots=True)
class Lane:
    """A thread, a stream or a counter: `rows` is how deep its boxes stand, `device` null on the host."""

    key: str
    group: str
    title: str
    side: str
    rows: int
    run: int
    device: int | None

    def encode(self) -> dict[str, Any]:
        """As the viewer reads it."""
        return {name: getattr(self, name) for name in self.__slots__}


class Titles:
    """What lanes and their groups are called: by rank where the files tell it, else by run, else by neither."""

    def __init__(self, view: TraceView) -> None:
        runs = view.timed_runs.table.select("run_id", "rank").rows()
        self._several = len(runs) > 1
        self._rank = {run: rank for run, rank in runs if rank is not None}
        self._devices = {
            (run, number): name
            for run, number, name in view.timed_runs.frame("devices").select("run_id", "device_id", "name").rows()
        }

    def of_run(self, run: int) -> str:
        """The run, with a comma behind it; nothing where there is but one."""
        if not self._several:
            return ""
        return f"rank {self._rank[run]}, " if run in self._rank else f"run {run}, "

    def of_host(self, run: int, process: int | None = None) -> str:
        """The host of a run, with its process where there are several."""
        return self.of_run(run) + ("host" if process is None else f"host, process {process}")

    def of_device(self, run: int, device: int | None) -> str:
        """A device with its name."""
        name = self._devices.get((run, device)) if device is not None else None
        number = "-" if device is None else device
        return f"{self.of_run(run)}device {number}" + (f" ({clean(name)})" if name else "")


def timed_spans(view: TraceView) -> pl.LazyFrame:
    """Every span that was closed, of the runs of which times tell: its columns, place and side, in order of start.

    Of millions of spans some columns are to be held at a time. `is_work`: it stands on a stream, as its work.
    """
    closed = view.timed_runs.scan("spans").filter(pl.col("duration_ns").is_not_null())
    side = _SIDE.cast(pl.Int8).alias("side")
    of_host, of_device = pl.col("side") == _HOST, pl.col("side") != _HOST
    return (
        closed.select(*_COLUMNS, *_PLACE_COLUMNS, "attribution", side)
        .drop("attribution")
        .with_columns(
            of_device.alias("is_of_device"),
            (pl.col("side") == _DEVICE).alias("is_work"),
            *(pl.when(of_host).then(name).alias(name) for name in ("process_id", "thread_id")),
            *(pl.when(of_device).then(name).alias(name) for name in ("device_id", "stream_id")),
        )
    )


def lanes_of(view: TraceView, spans: pl.LazyFrame) -> tuple[list[Lane], Ints, Ints]:
    """The lanes of spans (as `timed_spans` has them), their rows in order of the lanes, and where each lane begins.

    Of a run first its threads, the one that began first first, then its devices. `rows` is 1 until boxes are placed.
    """
    keys = spans.select(*_KEYS, "start_ns").collect()
    table, order, limits = groups(keys, _KEYS)
    began = keys["start_ns"].gather(order[limits[:-1]])
    titles = Titles(view)
    processes = table.filter(~pl.col("is_of_device")).group_by("run_id").agg(pl.col("process_id").n_unique())
    several = {run for run, count in processes.iter_rows() if count > 1}
    rows = list(table.with_columns(began.alias("began")).iter_rows(named=True))
    in_order = sorted(range(len(rows)), key=lambda at: _position(rows[at]))
    pieces = [order[limits[at] : limits[at + 1]] for at in in_order]
    placed = np.concatenate([order[:0], *pieces])
    return [_lane(rows[at], titles, several) for at in in_order], placed, np.cumsum([0, *map(len, pieces)])


def _position(row: Mapping[str, Any]) -> tuple[int, ...]:
    keys = ("process_id", "device_id", "stream_id")
    process, device, stream = (NONE if row[name] is None else row[name] for name in keys)
    if row["side"] == _HOST:
        return row["run_id"], 0, process, row["began"], 0
    return row["run_id"], 1, device, -row["side"], stream


def _lane(row: Mapping[str, Any], titles: Titles, several: set[int]) -> Lane:
    run, side = row["run_id"], row["side"]
    if side == _HOST:
        thread = "no thread" if row["thread_id"] is None else f"thread {row['thread_id']}"
        group = titles.of_host(run, row["process_id"] if run in several else None)
        return Lane(
            f"{run}/p{_number_text(row['process_id'])}/t{_number_text(row['thread_id'])}",
            group,
            thread,
            "host",
            1,
            run,
            None,
        )
    stream = "no stream" if row["stream_id"] is None else f"stream {row['stream_id']}"
    key = f"{run}/d{_number_text(row['device_id'])}/s{_number_text(row['stream_id'])}"
    group = titles.of_device(run, row["device_id"])
    if side == _WAITS:
        return Lane(f"{key}/waits", group, f"waits on {stream}", "host", 1, run, row["device_id"])
    return Lane(key, group, stream, "device", 1, run, row["device_id"])


def _number_text(value: int | None) -> str:
    return "-" if value is None else str(value)
