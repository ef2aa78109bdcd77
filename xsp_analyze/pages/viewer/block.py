"""What a page's viewer draws: the trace in levels, with launches, idle time, counters and steps, in a few megabytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.pages.viewer.boxes import NONE, levels_of
from xsp_analyze.pages.viewer.drawing import VIEWER_TONES, drawing_of
from xsp_analyze.pages.viewer.gaps import Gaps, causes, gaps_of
from xsp_analyze.pages.viewer.lanes import counter_lanes, thin
from xsp_analyze.pages.viewer.launches import Launches, launches_of
from xsp_analyze.text.units import count, duration
from xsp_model.columns.intervals import merge
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.pages.blocks import Block
    from xsp_analyze.pages.viewer.boxes import Boxes, Level
    from xsp_analyze.pages.viewer.drawing import Drawing
    from xsp_analyze.pages.viewer.lanes import CounterLane
    from xsp_analyze.trace.runs import Runs
    from xsp_analyze.trace.step_view import StepView
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "MAX_GAPS",
    "MAX_LAUNCHES",
    "SCRIPTS",
    "STYLES",
    "MedianStep",
    "Viewed",
    "about",
    "drawn_steps",
    "matching_spans",
    "median_step",
    "range_statistics",
    "unclosed_sentences",
    "view_of",
    "viewer",
]


# Where the viewer opens: the step whose length is nearest to the median.
@dataclass(frozen=True, slots=True)
class MedianStep:
    """A step with its latency and the basis of that; its spans, the host's among them, are from `begin` to `end` ns."""

    number: int
    latency_ns: int
    basis: str
    begin: int
    end: int


def median_step(frames: StepView) -> MedianStep | None:
    """Of the steps that the frames average, in the runs that kernels are taken from; None where there are none."""
    runs = frames.of_trace.kernel_runs
    taken = _nearest(frames, runs)
    if taken is None:
        return None
    end = (pl.col("start_ns") + pl.col("duration_ns")).max()
    of_step = runs.scan("spans").filter(pl.col("step") == taken["step"])
    begin, until = of_step.select(pl.col("start_ns").min(), end.alias("end")).collect().row(0)
    if begin is None or until is None:  # timed around the model's call, without a span
        begin, until = taken["begin_ns"], taken["end_ns"]
    return MedianStep(taken["step"], taken["duration_ns"], taken["basis"], begin, until)


def _nearest(frames: StepView, runs: Runs) -> dict[str, Any] | None:
    steps = runs.of(frames.steps) if frames.is_mean else frames.steps.head(0)
    if steps.is_empty():
        return None
    times = steps.group_by("step").agg(
        pl.col("duration_ns").max(), pl.col("begin_ns").min(), pl.col("end_ns").max(), pl.col("basis").last()
    )
    distance = (pl.col("duration_ns") - pl.col("duration_ns").median()).abs()
    return times.sort(distance, "step").row(0, named=True)


def drawn_steps(frames: StepView) -> list[dict[str, int]]:
    """Every step that a span marks: number, run, begin and end in ns, in order of time."""
    steps = frames.of_trace.process_steps.group_by("run_id", "step").agg(
        pl.col("begin_ns").min().alias("begin"), pl.col("end_ns").max().alias("end")
    )
    ordered = steps.sort("begin", "run_id", "step").rename({"run_id": "run", "step": "number"})
    return ordered.select("number", "run", "begin", "end").to_dicts()


MAX_LAUNCHES = 60_000
"""Arrows that a page, or an answer, has at most."""
MAX_GAPS = 40_000
"""Idle stretches that they have at most."""
_MAX_SAMPLES = 60_000  # over all counter lanes
_MAX_CELLS = 1_000  # a counter lane


@dataclass(frozen=True, slots=True)
class Viewed:
    """A trace as the viewer has it, whole: what a page takes its levels from, and `xsp view` its windows.

    `idle_known` are the first lanes of the devices of which `gaps` tells all idle time; `counters` stand by lane.
    `left_out` are sentences on lanes that had no room.
    """

    drawing: Drawing
    launches: Launches
    gaps: Gaps
    idle_known: frozenset[int]
    counters: Mapping[int, CounterLane]
    steps: Sequence[Mapping[str, int]]
    median: MedianStep | None
    left_out: Sequence[str] = ()

    @property
    def opening_window(self) -> tuple[int, int]:
        """The window to open at: the median step, else everything."""
        return (self.drawing.begin, self.drawing.end) if self.median is None else (self.median.begin, self.median.end)


def view_of(frames: StepView, max_lanes: int | None = None) -> Viewed:
    """All that is drawn of a trace; of more than `max_lanes` threads and streams, or counters, the fullest."""
    everything, sampled = drawing_of(frames.of_trace), counter_lanes(frames.of_trace)
    room = max(len(everything.lanes), len(sampled)) if max_lanes is None else max_lanes
    busiest = everything.busiest(room)
    fullest = sorted(sorted(range(len(sampled)), key=lambda at: -len(sampled[at].times))[:room])
    drawing, counters = _with_counters(busiest, [sampled[at] for at in fullest])
    gaps, idle_known = gaps_of(frames.of_trace, drawing.lanes)
    return Viewed(
        drawing,
        launches_of(frames.trace, drawing),
        gaps,
        idle_known,
        counters,
        drawn_steps(frames),
        median_step(frames),
        [*_missing_lanes(everything, busiest), *_missing_counters(len(sampled), len(fullest))],
    )


def _missing_lanes(everything: Drawing, busiest: Drawing) -> list[str]:
    if len(everything.lanes) == len(busiest.lanes):
        return []
    spans = f"{count(len(everything.boxes) - len(busiest.boxes))} of {count(len(everything.boxes))} spans"
    lanes = f"{count(len(busiest.lanes))} of {count(len(everything.lanes))} threads and streams are in this page"
    return [f"{lanes}, the busiest; {spans} stand on the others."]


def _missing_counters(all_of_them: int, kept: int) -> list[str]:
    return [f"{count(kept)} of {count(all_of_them)} counters are in this page."] if kept < all_of_them else []


def _with_counters(drawing: Drawing, counters: Sequence[CounterLane]) -> tuple[Drawing, dict[int, CounterLane]]:
    """The drawing with the lane of each counter below those of its device or host; counters by the lane of each."""
    owners = [(lane.run, lane.device) for lane in drawing.lanes]
    last = {owner: at for at, owner in enumerate(owners)}
    after = [last.get((each.lane.run, each.lane.device), len(owners)) for each in counters]
    order = sorted(
        range(len(owners) + len(counters)), key=lambda at: at if at < len(owners) else after[at - len(owners)]
    )
    lanes = [*drawing.lanes, *(each.lane for each in counters)]
    position = np.argsort(np.array(order, dtype=np.int64), kind="stable")
    boxes = replace(drawing.boxes, lane=position.astype(np.int32)[drawing.boxes.lane])
    drawn = replace(drawing, lanes=[lanes[at] for at in order], boxes=boxes)
    return drawn, {int(position[len(owners) + at]): each for at, each in enumerate(counters)}


def about(viewed_trace: Viewed) -> dict[str, Any]:
    """What does not depend on what is looked at: extents, names, lanes, steps, counters."""
    drawing = viewed_trace.drawing
    cells = min(_MAX_CELLS, _MAX_SAMPLES // (4 * max(len(viewed_trace.counters), 1)))
    extent = (drawing.begin, drawing.end)
    sampled = {at: thin(counter, max(cells, 1), extent) for at, counter in sorted(viewed_trace.counters.items())}
    return {
        "begin": drawing.begin,
        "end": drawing.end,
        "open": list(viewed_trace.opening_window),
        "names": list(drawing.names),
        "tones": list(VIEWER_TONES),
        "causes": causes(),
        "lanes": [lane.encode() for lane in drawing.lanes],
        "steps": list(viewed_trace.steps),
        "counters": [counter.encode(at) for at, counter in sampled.items()],
    }


def viewer(viewed_trace: Viewed, title: str) -> Block:
    """The block of a page."""
    levels = levels_of(viewed_trace.drawing.boxes, viewed_trace.opening_window, limits().viewer_page_box_bytes)
    exact = levels[0]
    launches = _nearest_launches(viewed_trace, exact)
    gaps = _kept_gaps(viewed_trace, exact)
    names, kept = _used_names(viewed_trace.drawing.names, levels)
    return {
        "type": "viewer",
        **about(viewed_trace),
        "title": title,
        "names": names,
        "levels": [_with_names_at(level, kept).encode() for level in levels],
        "flows": launches.encode(),
        "gaps": gaps.encode(),
        "left_out": _omitted_sentence(viewed_trace, levels, launches, gaps),
    }


def _nearest_launches(viewed_trace: Viewed, exact: Level) -> Launches:
    """The launches of work that is drawn exactly; of too many the ones nearest to where the viewer opens."""
    time = viewed_trace.launches.to_time
    inside = viewed_trace.launches.take((time >= exact.begin) & (time < exact.end))
    return inside.nearest(*viewed_trace.opening_window, MAX_LAUNCHES)


def _kept_gaps(viewed_trace: Viewed, exact: Level) -> Gaps:
    """The gaps where spans are drawn exactly, as far as there is room, and the longest of all others."""
    gaps = viewed_trace.gaps
    return gaps.longest(MAX_GAPS, (gaps.start < exact.end) & (gaps.start + gaps.duration > exact.begin))


def _used_names(names: Sequence[str], levels: Sequence[Level]) -> tuple[list[str], Positions]:
    """The names that boxes of these levels have, and the new position of each; NONE of those left out."""
    used = np.zeros(len(names) + 1, dtype=np.bool_)
    for level in levels:
        used[level.boxes.name] = True
        used[level.boxes.layer] = True
    used[-1] = False  # where NONE points to
    position = np.where(used, np.cumsum(used) - 1, NONE).astype(np.int32)
    return [names[at] for at in np.flatnonzero(used).tolist()], position


def _with_names_at(level: Level, position: Positions) -> Level:
    boxes = level.boxes
    return replace(level, boxes=replace(boxes, name=position[boxes.name], layer=position[boxes.layer]))


def _omitted_sentence(viewed_trace: Viewed, levels: Sequence[Level], launches: Launches, gaps: Gaps) -> str | None:
    parts = [*viewed_trace.left_out]
    begin = viewed_trace.drawing.begin
    if len(levels) > 1:
        exact, all_of_it = levels[0], levels[-1]
        parts.append(
            f"Every span is drawn as it is from {duration(exact.begin - begin)} to {duration(exact.end - begin)};"
            f" elsewhere spans shorter than {duration(all_of_it.resolution)} or less are drawn merged, and counted."
        )
    if len(launches) < len(viewed_trace.launches):
        parts.append(f"{count(len(launches))} of {count(len(viewed_trace.launches))} launch arrows are in this page.")
    if len(gaps) < len(viewed_trace.gaps):
        marked = f"{count(len(gaps))} of {count(len(viewed_trace.gaps))}"
        parts.append(f"{marked} idle stretches are marked, the longest and the nearest.")
    if parts:
        parts.append("xsp view, given the trace, shows all of it.")
    return " ".join([*parts, *unclosed_sentences(viewed_trace.drawing)]) or None


def unclosed_sentences(drawing: Drawing) -> list[str]:
    """A sentence on spans without a length, where there are any."""
    if not drawing.unclosed:
        return []
    many = drawing.unclosed > 1
    who = f"{count(drawing.unclosed)} spans were" if many else "1 span was"
    return [f"{who} never closed: without a length {'they are' if many else 'it is'} not drawn."]


# The scripts and styles that draw the viewer, in the order in which a page holds them.
SCRIPTS: tuple[str, ...] = (
    "viewer/data.js",
    "viewer/scene.js",
    "viewer/around.js",
    "viewer/input.js",
    "viewer/panel.js",
    "viewer/viewer.js",
)
STYLES: tuple[str, ...] = ("viewer/viewer.css",)


# What ran in a range of time: by name, by class, by device, exact to the nanosecond.

_MAX_NAMES = 1_000  # of an answer


def range_statistics(viewed_trace: Viewed, inside: Boxes, begin: int, until: int) -> dict[str, Any]:
    """Sums over what overlaps [begin, until), cut to it: device work by name and by class, calls of the host, devices.

    `inside` are the spans that overlap it. Of the host each call counts with all that ran within it. A device is busy
    while at least one of its streams works, and idle (as B03 says) for the rest of its run.
    """
    time = np.minimum(inside.end, until) - np.maximum(inside.start, begin)
    side = np.array([lane.side == "device" for lane in viewed_trace.drawing.lanes], dtype=np.bool_)
    is_device = side[inside.lane]
    names = viewed_trace.drawing.names
    return {
        "exact": True,
        "by_name": _by_name(names, inside, time, is_device),
        "by_class": _by_class(inside, time, is_device),
        "host": _by_name(names, inside, time, ~is_device),
        "devices": _devices(viewed_trace, inside, begin, until),
    }


def _by_name(names: Sequence[str], inside: Boxes, time: Ints, rows: Bools) -> list[dict[str, Any]]:
    tones = len(VIEWER_TONES)
    keys, at = np.unique(inside.name[rows] * tones + inside.tone[rows], return_inverse=True)
    sums, counts = _sums(at, time[rows], len(keys)), np.bincount(at, minlength=len(keys))
    order = np.lexsort((keys, -sums))[:_MAX_NAMES]
    return [
        {
            "name": names[int(keys[i]) // tones],
            "tone": VIEWER_TONES[int(keys[i]) % tones],
            "count": int(counts[i]),
            "duration": int(sums[i]),
        }
        for i in order
    ]


def _by_class(inside: Boxes, time: Ints, rows: Bools) -> list[dict[str, Any]]:
    tone = inside.tone[rows]
    sums, counts = _sums(tone, time[rows], len(VIEWER_TONES)), np.bincount(tone, minlength=len(VIEWER_TONES))
    order = np.lexsort((np.arange(len(sums)), -sums))
    rows_of = [(VIEWER_TONES[at], int(counts[at]), int(sums[at])) for at in order if counts[at]]
    return [{"name": name, "tone": name, "count": count, "duration": total} for name, count, total in rows_of]


def _sums(at: Ints, time: Ints, size: int) -> Ints:
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, at, time)
    return sums


def _devices(viewed_trace: Viewed, inside: Boxes, begin: int, until: int) -> list[dict[str, Any]]:
    gaps = viewed_trace.gaps.overlapping(begin, until)
    length = np.minimum(gaps.start + gaps.duration, until) - np.maximum(gaps.start, begin)
    lanes: dict[tuple[int, int | None], list[int]] = {}
    for at, lane in enumerate(viewed_trace.drawing.lanes):
        if lane.side == "device":
            lanes.setdefault((lane.run, lane.device), []).append(at)
    return [
        {
            "title": viewed_trace.drawing.lanes[numbers[0]].group,
            "busy": _busy(inside.take(np.isin(inside.lane, numbers)), begin, until),
            "idle": int(length[gaps.lane == numbers[0]].sum()) if numbers[0] in viewed_trace.idle_known else None,
            "gaps": _by_cause(gaps.cause[gaps.lane == numbers[0]], length[gaps.lane == numbers[0]]),
        }
        for numbers in lanes.values()
    ]


def _busy(work: Boxes, begin: int, until: int) -> int:
    first, last = merge(np.maximum(work.start, begin), np.minimum(work.end, until))
    return int((last - first).sum())


def _by_cause(cause: Ints, length: Ints) -> list[dict[str, int]]:
    sums = [(int(each), int((cause == each).sum()), int(length[cause == each].sum())) for each in np.unique(cause)]
    return [{"cause": each, "count": count, "duration": total} for each, count, total in sorted(sums, key=_by_time)]


def _by_time(row: tuple[int, int, int]) -> tuple[int, int]:
    return -row[2], row[0]


# Spans whose name holds a text, in order of time.
_MAX_RESULTS = 20_000


def matching_spans(drawing: Drawing, text: str) -> dict[str, Any]:
    """`results` (the first of them, see the bound) and the `count` of all; upper and lower case are alike."""
    part = text.strip().lower()
    matches = np.array([bool(part) and part in name.lower() for name in drawing.names], dtype=np.bool_)
    boxes = drawing.boxes
    rows = np.flatnonzero(matches[boxes.name]) if len(boxes) else np.empty(0, dtype=np.int64)
    kept = boxes.take(rows[np.argsort(boxes.start[rows], kind="stable")][:_MAX_RESULTS])
    columns = ("lane", "row", "start", "duration", "name", "tone", "span", "layer")
    lists = [getattr(kept, name).tolist() for name in columns]
    return {
        "results": [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)],
        "count": len(rows),
    }
