"""What the work of a stream is of, as slices: work in a row of one call of a layer, or of one operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xsp_analyze.export.perfetto.packets import Packets
    from xsp_analyze.export.perfetto.tracks import OnTracks
    from xsp_analyze.export.rows import Row

__all__ = ["Stretches"]


@dataclass
class _Stretch:
    """Work in a row: the first of it, and what it comes to."""

    first: Row
    end_ns: int
    activities: int
    device_ns: int


class Stretches:
    """Gathers the work of each stream in order of its start; a slice lasts until the last of its work ends."""

    def __init__(self, tracks: OnTracks, packets: Packets, what: str, columns: tuple[str, str]) -> None:
        self._tracks = tracks
        self._packets = packets
        self._what = what
        self._id, self._name = columns
        self._current: dict[tuple[object, ...], _Stretch] = {}

    def add(self, row: Row) -> None:
        """The next work; what is of nothing ends what the stream's work before it was of."""
        stream = (row["run_id"], row["device_id"], row["stream_id"])
        current = self._current.get(stream)
        duration = row["duration_ns"] or 0
        if current is not None and current.first[self._id] == row[self._id]:
            current.end_ns = max(current.end_ns, row["start_ns"] + duration)
            current.activities += 1
            current.device_ns += duration
            return
        if current is not None:
            self._put(self._current.pop(stream))
        if row[self._id] is not None:
            self._current[stream] = _Stretch(row, row["start_ns"] + duration, 1, duration)

    def close(self) -> None:
        """Writes what every stream ended with."""
        for stretch in self._current.values():
            self._put(stretch)
        self._current.clear()

    def _put(self, stretch: _Stretch) -> None:
        first, start = stretch.first, stretch.first["start_ns"]
        uuid = self._tracks.of(first, self._what).put(start, stretch.end_ns)
        details = (("span", first[self._id]), ("activities", stretch.activities), ("device sum ns", stretch.device_ns))
        self._packets.begin(uuid, start, f"{self._what} of device work", first[self._name], arguments=details)
