"""speedscope JSON: a profile for each host thread, and one that sums device time by layer, operator and kernel."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import polars as pl

from xsp_analyze.export.target import Exporter
from xsp_analyze.trace.timed_runs import timed_runs, without_captures
from xsp_model import Attribution, Kind, Level, XspError
from xsp_model.columns.tree import depths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.export.target import Sink
    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints

__all__ = ["SPEEDSCOPE", "device_stacks"]

# Device time summed over stacks of names: layers, operators, kernel.

_ROOT = 0


class _Stacks:
    """Stacks of names; stack 0 is empty, every other one is a stack with a name on top."""

    def __init__(self) -> None:
        self.below: Ints = np.array([-1], dtype=np.int64)
        self.name: Ints = np.array([-1], dtype=np.int64)

    def push(self, below: Ints, name: Ints) -> Ints:
        """The stack that each name on each stack makes."""
        pairs, which = np.unique(np.stack([below, name], axis=1), axis=0, return_inverse=True)
        first = len(self.below)
        self.below = np.append(self.below, pairs[:, 0])
        self.name = np.append(self.name, pairs[:, 1])
        return np.asarray(which.reshape(-1) + first, dtype=np.int64)

    def names(self, stack: int) -> list[int]:
        """The names of a stack, outermost first."""
        path = []
        while stack != _ROOT:
            path.append(int(self.name[stack]))
            stack = int(self.below[stack])
        return path[::-1]


def device_stacks(trace: Trace) -> tuple[list[list[str]], list[int]]:
    """Stacks and the device time in ns of each, in order of their names; times add up to all device time.

    Work of a layer stands under the layer's callers and it; other work under `[model only]` or why it is an orphan.
    """
    columns = ("parent_id", "layer_id", "level", "name", "duration_ns", "attribution")
    spans = trace.scan("spans").select(columns).with_columns(pl.col(pl.Categorical).cast(pl.String)).collect()
    work = spans.with_row_index("at").filter(pl.col("level") == Level.KERNEL, pl.col("duration_ns") > 0)
    if work.is_empty():
        return [], []
    stacks, name_ids = _Stacks(), _NameIds(spans["name"])
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    layers = _stack_of_each(
        stacks, parent, _is(spans, Level.LAYER), name_ids.ids, np.zeros(spans.height, dtype=np.int64)
    )
    label = work["attribution"].fill_null("").to_numpy()
    base = np.where(label == str(Attribution.LAYER), layers[work["layer_id"].fill_null(-1).to_numpy()], _ROOT)
    other = base == _ROOT
    base[other] = stacks.push(base[other], name_ids.add([f"[{w.replace('_', ' ')}]" for w in label[other]]))
    total = _with_operators(stacks, spans, work, base, name_ids)
    sums = pl.DataFrame({"stack": total, "ns": work["duration_ns"]}).group_by("stack").agg(pl.col("ns").sum())
    named: dict[tuple[str, ...], int] = {}
    for stack, ns in sums.rows():
        names = tuple(name_ids[n] for n in stacks.names(stack))
        named[names] = named.get(names, 0) + ns
    return [list(names) for names in sorted(named)], [named[names] for names in sorted(named)]


class _NameIds:
    """Names as numbers."""

    def __init__(self, names: pl.Series) -> None:
        distinct = names.unique(maintain_order=True)
        self._names: list[str] = distinct.to_list()
        self._numbers = {name: n for n, name in enumerate(self._names)}
        self.ids: Ints = names.replace_strict(distinct, np.arange(len(distinct)), return_dtype=pl.Int64).to_numpy()

    def add(self, names: Sequence[str]) -> Ints:
        """The numbers of names, new ones included."""
        for name in names:
            if name not in self._numbers:
                self._numbers[name] = len(self._names)
                self._names.append(name)
        return np.array([self._numbers[name] for name in names], dtype=np.int64)

    def __getitem__(self, number: int) -> str:
        return self._names[number]


def _is(spans: pl.DataFrame, level: Level) -> Bools:
    return (spans["level"] == str(level)).to_numpy()


def _stack_of_each(stacks: _Stacks, parent: Ints, counts: Bools, ids: Ints, base: Ints) -> Ints:
    """The stack of the spans that count among each span and its ancestors, on top of the root's base."""
    stack_of = base.copy()
    depth = depths(parent)
    order = np.argsort(depth, kind="stable")
    edges = np.searchsorted(depth[order], np.arange(depth.max(initial=0) + 2))
    for first, end in pairwise(edges.tolist()):
        at = order[first:end]
        inside = at[parent[at] >= 0]
        stack_of[inside] = stack_of[parent[inside]]
        own = at[counts[at]]
        stack_of[own] = stacks.push(stack_of[own], ids[own])
    return stack_of


def _with_operators(stacks: _Stacks, spans: pl.DataFrame, work: pl.DataFrame, base: Ints, name_ids: _NameIds) -> Ints:
    """The operators around each activity, and its own name, on top of its base: one stack for each activity."""
    operators = _Stacks()
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    empty = np.zeros(spans.height, dtype=np.int64)
    chain = _stack_of_each(operators, parent, _is(spans, Level.OPERATOR), name_ids.ids, empty)[work["at"].to_numpy()]
    pairs, which = np.unique(np.stack([base, chain], axis=1), axis=0, return_inverse=True)
    joined = np.empty(len(pairs), dtype=np.int64)
    for index, (below, over) in enumerate(pairs.tolist()):
        stack = np.array([below], dtype=np.int64)
        for name in operators.names(over):
            stack = stacks.push(stack, np.array([name], dtype=np.int64))
        joined[index] = stack[0]
    return stacks.push(joined[which.reshape(-1)], name_ids.ids[work["at"].to_numpy()])


# Format: https://www.speedscope.app/file-format-schema.json. Values are nanoseconds.

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
