"""speedscope JSON: a profile for each host thread, and one that sums device time by layer, operator and kernel.

Format: https://www.speedscope.app/file-format-schema.json. Values are nanoseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl

from xsp_analyze.export.stacks import device_stacks
from xsp_analyze.export.target import Exporter
from xsp_analyze.trace.timed_runs import timed_runs, without_captures
from xsp_model import Kind, Level, XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = ["SPEEDSCOPE"]

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_DEVICE_TIME = "device time by layer, operator and kernel"
_THREAD = ("run_id", "process_id", "thread_id")


class _Frames:
    """Numbers names in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __getitem__(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    @property
    def names(self) -> list[dict[str, str]]:
        return [{"name": name} for name in self._numbers]


def _write(trace: Trace, file: Sink) -> None:
    frames = _Frames()
    profiles = [*_device_profile(trace, frames), *_thread_profiles(trace, frames)]
    if not profiles:
        raise XspError("the trace has neither host spans nor device work to show")
    head = {"$schema": _SCHEMA, "exporter": "xsp", "name": _name(trace), "activeProfileIndex": 0}
    file.write(msgspec.json.encode(head)[:-1] + b',"shared":{"frames":' + msgspec.json.encode(frames.names))
    file.write(b'},"profiles":[')
    for number, profile in enumerate(profiles):
        file.write((b",\n" if number else b"\n") + profile)
    file.write(b"\n]}\n")


def _name(trace: Trace) -> str:
    return ", ".join(path for path in timed_runs(trace)["source_path"] if path) or "trace"


def _device_profile(trace: Trace, frames: _Frames) -> Iterator[bytes]:
    """Time of device activities, whenever they ran; an activity's stack is its layers, operators and its own name."""
    stacks, weights = device_stacks(trace)
    if not weights:
        return
    profile = {
        "type": "sampled",
        "name": _DEVICE_TIME,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [[frames[name] for name in stack] for stack in stacks],
        "weights": weights,
    }
    yield msgspec.json.encode(profile)


def _thread_profiles(trace: Trace, frames: _Frames) -> Iterator[bytes]:
    """What each thread ran; an end that overhangs the span around it is drawn in."""
    for key, spans in _host_spans(trace).partition_by(_THREAD, as_dict=True, maintain_order=True).items():
        times = spans.select("name", "start_ns", "end_ns").rows()
        last = max(end for _, _, end in times)
        events = list(_open_and_close(times, frames))
        profile = {
            "type": "evented",
            "name": _thread_name(trace, key),
            "unit": "nanoseconds",
            "startValue": times[0][1],
            "endValue": last,
            "events": events,
        }
        yield msgspec.json.encode(profile)


def _host_spans(trace: Trace) -> pl.DataFrame:
    """Spans of threads, outer ones first; ranges that another thread closed nest nowhere and are left out."""
    last = pl.max_horizontal(pl.col("start_ns").max(), (pl.col("start_ns") + pl.col("duration_ns")).max())
    elsewhere = trace.scan("ranges").filter(pl.col("end_thread_id").is_not_null()).select("span_id")
    return (
        without_captures(trace, trace.scan("spans"))
        .with_columns(
            (pl.col("start_ns") + pl.col("duration_ns")).fill_null(last).alias("end_ns"),
            pl.col("name").cast(pl.String),
        )
        .filter(pl.col("level").cast(pl.String) != Level.KERNEL, pl.col("kind").cast(pl.String) != Kind.SYNC)
        .join(elsewhere, on="span_id", how="anti", maintain_order="left")
        .select(*_THREAD, "span_id", "name", "start_ns", "end_ns")
        .collect()
        .sort(*_THREAD, "span_id", nulls_last=True)  # ids follow start, then level, then length
    )


def _open_and_close(times: Sequence[tuple[str, int, int]], frames: _Frames) -> Iterator[dict[str, object]]:
    open_spans: list[tuple[int, int]] = []
    for name, start, end in times:
        while open_spans and open_spans[-1][1] <= start:
            yield _event("C", *open_spans.pop())
        frame = frames[name]
        held = min(end, open_spans[-1][1]) if open_spans else end
        yield _event("O", frame, start)
        open_spans.append((frame, held))
    while open_spans:
        yield _event("C", *open_spans.pop())


def _event(kind: str, frame: int, at: int) -> dict[str, object]:
    return {"type": kind, "frame": frame, "at": at}


def _thread_name(trace: Trace, key: tuple[object, ...]) -> str:
    run, process, thread = ("unknown" if part is None else part for part in key)
    several = timed_runs(trace).height > 1
    return f"{f'run {run}, ' if several else ''}process {process}, thread {thread}"


SPEEDSCOPE = Exporter("speedscope", "speedscope profiles: each thread, and device time by layer and operator", _write)
"""The format, as the registry lists it."""
