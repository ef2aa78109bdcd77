"""The tracks of a Chrome trace: a process for each process and each device, a thread for each thread and stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.trace.timed_runs import timed_runs, without_captures
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from xsp_analyze.export.rows import Row
    from xsp_model import Trace

__all__ = ["Tracks"]

_NOBODY = 0  # the thread or stream of what has none
_DEVICES_AFTER = 1_000_000  # sort index: devices below all processes

_Key = tuple[int, int | None]  # run, process or device


class Tracks:
    """Process and device numbers where they are unlike each other over all runs, else numbers above them."""

    def __init__(self, trace: Trace) -> None:
        spans = without_captures(trace, trace.scan("spans")).with_columns(_on_device().alias("on_device"))
        keys = ("run_id", "process_id", "device_id", "thread_id", "stream_id", "on_device")
        lanes = spans.select(keys).unique().sort(keys, nulls_last=True).collect()
        runs = timed_runs(trace).select("run_id", "rank").rows()
        self._rank = {run: rank for run, rank in runs if rank is not None} if len(runs) > 1 else {}
        self._several = len(runs) > 1
        host = lanes.filter(~pl.col("on_device"))
        device = lanes.filter(pl.col("on_device"))
        moments = trace.scan("counters").select("run_id", "device_id").unique().sort("run_id", "device_id").collect()
        on_device = moments.filter(pl.col("device_id").is_not_null())
        self._pids: dict[tuple[str, int, int | None], int] = {}
        processes = host.select("run_id", "process_id").unique(maintain_order=True).rows()
        sampled = moments.filter(pl.col("device_id").is_null())["run_id"].to_list()
        processes += [(run, None) for run in sampled if run not in {with_spans for with_spans, _ in processes}]
        self._number("process", processes)
        self._number("device", [*device.select("run_id", "device_id").rows(), *on_device.rows()])
        self._device_pids = frozenset(pid for (kind, _, _), pid in self._pids.items() if kind == "device")
        self._threads = host.select("run_id", "process_id", "thread_id").unique(maintain_order=True).rows()
        self._streams = device.select("run_id", "device_id", "stream_id").unique(maintain_order=True).rows()
        self._device_names = {
            (run, number): name
            for run, number, name in trace.frame("devices").select("run_id", "device_id", "name").rows()
        }

    def _number(self, kind: str, keys: list[_Key]) -> None:
        for run, device in dict.fromkeys(keys):
            taken = set(self._pids.values())
            free = device is not None and device not in taken
            number = device if free and device is not None else max(taken, default=0) + 1
            self._pids[kind, run, device] = number

    @property
    def device_pids(self) -> frozenset[int]:
        """The pids that stand for devices."""
        return self._device_pids

    def of(self, row: Row) -> tuple[int, int]:
        """The pid and tid of a span."""
        if row["level"] == Level.KERNEL or row["kind"] == Kind.SYNC:
            return self._pids["device", row["run_id"], row["device_id"]], _or_nobody(row["stream_id"])
        return self.host(row)

    def host(self, row: Mapping[str, Any]) -> tuple[int, int]:
        """The pid and tid of a thread."""
        return self._pids["process", row["run_id"], row["process_id"]], _or_nobody(row["thread_id"])

    def of_counter(self, row: Row) -> tuple[int, int]:
        """The pid and tid of a sample; host samples go to the run's first process."""
        if row["device_id"] is not None:
            return self._pids["device", row["run_id"], row["device_id"]], _NOBODY
        own = [pid for (kind, run, _), pid in self._pids.items() if kind == "process" and run == row["run_id"]]
        return (own[0] if own else _NOBODY), _NOBODY

    def names(self) -> Iterator[dict[str, Any]]:
        """The metadata events that name and order the tracks."""
        for position, ((kind, run, number), pid) in enumerate(self._pids.items()):
            yield _metadata("process_name", pid, _NOBODY, name=self._process_name(kind, run, number))
            order = position + (_DEVICES_AFTER if kind == "device" else 0)
            yield _metadata("process_sort_index", pid, _NOBODY, sort_index=order)
        for run, process, thread in self._threads:
            pid = self._pids["process", run, process]
            yield _metadata("thread_name", pid, _or_nobody(thread), name=f"thread {_number_or_unknown(thread)}")
        for run, device, stream in self._streams:
            pid = self._pids["device", run, device]
            yield _metadata("thread_name", pid, _or_nobody(stream), name=f"stream {_number_or_unknown(stream)}")

    def _process_name(self, kind: str, run: int, number: int | None) -> str:
        called = self._device_names.get((run, number)) if kind == "device" else None
        name = f"{kind} {_number_or_unknown(number)}{f' ({called})' if called else ''}"
        if not self._several:
            return name
        return f"rank {self._rank[run]}: {name}" if run in self._rank else f"run {run}: {name}"


def _on_device() -> pl.Expr:
    return (pl.col("level").cast(pl.String) == Level.KERNEL) | (pl.col("kind").cast(pl.String) == Kind.SYNC)


def _or_nobody(number: int | None) -> int:
    return _NOBODY if number is None else number


def _number_or_unknown(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _metadata(event: str, pid: int, tid: int, **args: object) -> dict[str, Any]:
    return {"ph": "M", "name": event, "pid": pid, "tid": tid, "ts": 0, "args": args}
