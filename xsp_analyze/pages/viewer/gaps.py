"""When devices had nothing to do, and why: the stretches that B03's causes of idle time are the sums of."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_analyze.frames.device_time import with_start_up, working_times
from xsp_analyze.frames.idle import CAUSES, idle_by_device
from xsp_analyze.pages.blocks import IDLE_TONES
from xsp_analyze.pages.viewer.boxes import encoded_columns
from xsp_analyze.text.units import IDLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.pages.viewer.lanes import Lane
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model.columns.arrays import Bools, Ints

__all__ = ["Gaps", "causes", "gaps_of"]


@dataclass(frozen=True, slots=True)
class Gaps:
    """Disjoint stretches of each device, in order; `lane` is the first of the device, `cause` a position in CAUSES."""

    lane: Ints
    start: Ints
    duration: Ints
    cause: Ints

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Ints | Bools) -> Gaps:
        """Some of them."""
        return Gaps(*(getattr(self, field.name)[rows] for field in fields(self)))

    def overlapping(self, begin: int, until: int) -> Gaps:
        """The gaps with some of their time in the window."""
        return self.take((self.start < until) & (self.start + self.duration > begin))

    def longest(self, limit: int, before: Bools | None = None) -> Gaps:
        """Of more than `limit` the longest, after those that go `before` all others."""
        if len(self) <= limit:
            return self
        length = (
            self.duration if before is None else np.where(before, self.duration + self.duration.max(), self.duration)
        )
        return self.take(np.sort(np.argpartition(-length, limit)[:limit]))

    def encode(self) -> dict[str, Any]:
        """The columns as the viewer reads them."""
        return encoded_columns({field.name: getattr(self, field.name) for field in fields(self)})


def causes() -> list[dict[str, str]]:
    """What `cause` counts in: the tone of each cause, and what it is in words."""
    return [{"tone": IDLE_TONES[name], "text": IDLE[name]} for name in CAUSES]


def gaps_of(frames: TraceView, lanes: Sequence[Lane]) -> tuple[Gaps, frozenset[int]]:
    """The idle time of every device over its run, and the first lanes of the devices of which it is known.

    It is known of none where kernels ran one by one for their counters.
    """
    parts = [np.empty((4, 0), dtype=np.int64)]
    explained = set()
    first = {(lane.run, lane.device): at for at, lane in reversed(list(enumerate(lanes))) if lane.side == "device"}
    by_device = {} if frames.is_one_by_one else frames.once(idle_by_device)
    for (run, device), its_idle in by_device.items():
        if (run, device) in first:
            idle = with_start_up(its_idle, frames.once(working_times).get(run))
            lane = np.full(len(idle.start), first[run, device])
            parts.append(np.stack((lane, idle.start, idle.end - idle.start, idle.cause)))
            explained.add(first[run, device])
    return Gaps(*np.concatenate(parts, axis=1)), frozenset(explained)
