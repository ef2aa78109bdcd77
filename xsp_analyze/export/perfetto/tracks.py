"""Which track a span goes to, each described when it is first used."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from xsp_analyze.export.chrome_tracks import Tracks
from xsp_analyze.export.perfetto.lanes import Lanes
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.export.perfetto.packets import Packets
    from xsp_analyze.export.rows import Row
    from xsp_model import Trace

__all__ = ["OnTracks"]

_INT32 = 1 << 31
_AS_RECORDED = ""


class OnTracks:
    """Puts spans on tracks: of a process its threads, of a device its streams, each with what its work is of below."""

    def __init__(self, trace: Trace, packets: Packets) -> None:
        self._packets = packets
        self._numbers = Tracks(trace)
        self._uuid = count(1)
        names = {e["pid"]: e["args"]["name"] for e in self._numbers.names() if e["name"] == "process_name"}
        self._groups = {pid: self._group(pid, str(name), rank) for rank, (pid, name) in enumerate(names.items())}
        self._lanes: dict[tuple[int, int, str], Lanes] = {}
        self._counters: dict[tuple[int, str, str], int] = {}

    def _group(self, pid: int, name: str, rank: int) -> int:
        uuid = next(self._uuid)
        if pid in self._numbers.device_pids or pid >= _INT32:
            self._packets.track(uuid, name, None, rank)
        else:
            self._packets.process(uuid, name, pid)
        return uuid

    def of(self, row: Row, derived: str = _AS_RECORDED) -> Lanes:
        """The tracks of a span's thread or stream; of a stream also those of what its work is of."""
        pid, tid = self._numbers.of(row)
        lanes = self._lanes.get((pid, tid, derived))
        if lanes is None:
            number = row["stream_id"] if _is_on_device(row) else row["thread_id"]
            shown = "unknown" if number is None else number
            name = f"{'stream' if _is_on_device(row) else 'thread'} {shown}{f', {derived}' if derived else ''}"
            lanes = Lanes(self._packets.end, lambda lane: self._lane(pid, tid, name, lane))
            self._lanes[pid, tid, derived] = lanes
        return lanes

    def _lane(self, pid: int, tid: int, name: str, lane: int) -> int:
        uuid = next(self._uuid)
        is_thread = name.startswith("thread") and lane == 0 and max(pid, tid) < _INT32
        if is_thread and pid not in self._numbers.device_pids:
            self._packets.thread(uuid, name, pid, tid)
        else:
            shown = f"{name} ({lane + 1})" if lane else name
            self._packets.track(uuid, shown, self._groups[pid], uuid)
        return uuid

    def counter(self, row: Mapping[str, object]) -> int:
        """The track of a counter's samples."""
        pid, _ = self._numbers.of_counter(dict(row))
        key = (pid, str(row["counter"]), str(row["unit"]))
        if key not in self._counters:
            self._counters[key] = next(self._uuid)
            self._packets.counter(self._counters[key], key[1], self._groups[pid], key[2])
        return self._counters[key]

    def close(self) -> None:
        """Ends what is open at the end of the trace."""
        for lanes in self._lanes.values():
            for uuid, end in lanes.rest():
                self._packets.end(uuid, end)


def _is_on_device(row: Row) -> bool:
    return bool(row["level"] == Level.KERNEL or row["kind"] == Kind.SYNC)
