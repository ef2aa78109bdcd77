"""How the time in which a device works is shared out to classes of work, in parts that add up to it exactly."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from xsp_analyze.frames.device_time import device_windows
from xsp_analyze.frames.idle import DEVICE
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION
from xsp_model import Kind
from xsp_model.intervals import merge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.step_view import StepView
    from xsp_model.arrays import Bools, Floats, Ints

__all__ = ["COMMUNICATION", "COMPUTE", "MEMORY", "class_time"]

COMPUTE, COMMUNICATION, MEMORY = range(3)
"""What hides what, as B03 has it: compute hides communication, and both hide copies and memsets."""

_COPIES = [str(Kind.MEMCPY), str(Kind.MEMSET)]
_SCHEMA = {"part": pl.Int64(), "kernel_class": pl.String(), "time_ns": pl.Float64()}


class _Segment(NamedTuple):
    """A part and class, and when it ran as disjoint sorted intervals."""

    part: int
    kernel_class: str
    union: tuple[Ints, Ints]


def class_time(frames: StepView) -> pl.DataFrame:
    """run_id, device_id, step, part, kernel_class, time_ns: one row a window of a device and class that ran in it.

    A moment is of the first part (COMPUTE, COMMUNICATION, MEMORY) of which work runs then; where several classes of
    that part run side by side it is shared out evenly among them. So the times of a window add up to its busy time, and
    those of a part to what B03 has: compute, exposed communication, exposed copies and memsets.
    """
    windows = device_windows(frames)
    work = frames.of_trace.all_activities.select(*DEVICE, "kind", "kernel_class", "start_ns", "duration_ns")
    by_device = work.partition_by(DEVICE, as_dict=True, include_key=False)
    schema = {**windows.select(*DEVICE, "step").schema, **_SCHEMA}
    pieces = [
        _class_time_of_device(by_device[key], rows) for key, rows in windows.group_by(DEVICE, maintain_order=True)
    ]
    return pl.concat([pl.DataFrame(schema=schema), *pieces])


def _class_time_of_device(work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """The rows of one device's windows."""
    keys = windows.select(*DEVICE, "step")
    begin, until = windows["begin_ns"].to_numpy(), windows["end_ns"].to_numpy()
    rows = []
    for segment, time in _times_in_windows(_segments(work), begin, until):
        at = np.flatnonzero(time)
        rows.append(
            keys[at].with_columns(
                pl.lit(segment.part, pl.Int64).alias("part"),
                pl.lit(segment.kernel_class).alias("kernel_class"),
                pl.Series("time_ns", time[at]),
            )
        )
    return pl.concat([keys.head(0).with_columns(pl.lit(None, t).alias(n) for n, t in _SCHEMA.items()), *rows])


def _segments(work: pl.DataFrame) -> list[_Segment]:
    """What ran of each part and class."""
    is_copy = pl.col("kind").cast(pl.String).is_in(_COPIES)
    part = pl.when(is_copy).then(MEMORY).when(IS_COMMUNICATION).then(COMMUNICATION).otherwise(COMPUTE)
    rows = work.with_columns(part.cast(pl.Int64).alias("part"), pl.col("kernel_class").cast(pl.String))
    groups = rows.sort("part", "kernel_class", maintain_order=True).group_by(
        "part", "kernel_class", maintain_order=True
    )
    return [_segment(part, name, rows_of) for (part, name), rows_of in groups]


def _segment(part: object, name: object, work: pl.DataFrame) -> _Segment:
    start = work["start_ns"].to_numpy()
    return _Segment(int(str(part)), str(name), merge(start, start + work["duration_ns"].to_numpy()))


def _times_in_windows(segments: list[_Segment], begin: Ints, until: Ints) -> Iterator[tuple[_Segment, Floats]]:
    """Each segment with its time in every window."""
    edges = np.unique(np.concatenate([begin, until, *(edge for s in segments for edge in s.union)]))
    first, last = np.searchsorted(edges, begin), np.searchsorted(edges, until)
    length = np.diff(edges)
    taken = np.zeros(len(length), dtype=bool)
    for part in (COMPUTE, COMMUNICATION, MEMORY):
        of_part = [s for s in segments if s.part == part]
        running = [_runs(s.union, edges) for s in of_part]
        beside = np.zeros(len(length), dtype=np.int64)
        for mask in running:
            beside += mask
        common = lcm(*np.unique(beside[beside > 0]).tolist())  # so that even shares are integers, and sums exact
        share = np.where(taken, 0, length * (common // np.maximum(beside, 1)))
        for segment, mask in zip(of_part, running, strict=True):
            before = np.concatenate(([0], np.cumsum(np.where(mask, share, 0))))
            yield segment, (before[last] - before[first]) / common
        taken |= beside > 0


def _runs(union: tuple[Ints, Ints], edges: Ints) -> Bools:
    """Whether the union covers each interval between two edges, all of its own among them."""
    depth = np.zeros(len(edges), dtype=np.int8)
    depth[np.searchsorted(edges, union[0])] += 1
    depth[np.searchsorted(edges, union[1])] -= 1
    return np.asarray(np.cumsum(depth)[:-1] > 0)
