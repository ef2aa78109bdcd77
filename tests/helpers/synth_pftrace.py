"""Writes the run of `synth_rocprof` as rocprofv3's Perfetto trace, field by field.

As ROCm 7 writes it: a track for each stream, `stream_ID`, registers and counters annotated on kernels; `older`: tracks
for each agent and stream (`COMPUTE AGENT [1] STREAM [3] (GPU)`), and fewer annotations.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.helpers.synth_hlo import length_delimited, number
from tests.helpers.synth_rocprof import COPY_BYTES, PROCESS, STREAM
from xsp_ingest.formats.rocprofv3.records import plain_kernel_name

if TYPE_CHECKING:
    from tests.helpers.synth_rocprof import RocprofRun

__all__ = ["Perfetto", "pftrace"]

_CATEGORIES = {"HIP": "hip_api", "MAR": "marker_api", "RCC": "rccl_api", "HSA": "hsa_api"}
_SEQUENCE = 1
_MAIN, _FIRST_TRACK = 7, 100


@dataclass
class Perfetto:
    """A trace of one sequence of packets; what is interned is written with the first event that uses it."""

    data: bytes = b""
    ids: dict[tuple[int, str], int] = field(default_factory=dict)
    tracks: dict[str, int] = field(default_factory=dict)
    new: bytes = b""

    def packet(self, content: bytes, flags: int = 2) -> None:
        """A packet of the sequence."""
        self.data += length_delimited(1, content + number(10, _SEQUENCE) + number(13, flags))

    def begin(self, process: int) -> None:
        """What stands in front: a packet without a sequence, then the main thread's track, state cleared."""
        self.data += length_delimited(1, length_delimited(33, b""))
        track = number(1, _MAIN) + length_delimited(4, number(1, process) + number(2, process))
        self.packet(length_delimited(60, track), flags=1)

    def iid(self, table: int, text: str) -> int:
        """The number of an interned text: table 1 categories, 2 names, 3 annotations."""
        if (table, text) not in self.ids:
            self.ids[table, text] = len(self.ids) + 1
            self.new += length_delimited(table, number(1, self.ids[table, text]) + length_delimited(2, text))
        return self.ids[table, text]

    def track(self, name: str) -> int:
        """The uuid of the track of this name, described when it is first used."""
        if name not in self.tracks:
            self.tracks[name] = _FIRST_TRACK + len(self.tracks)
            self.packet(length_delimited(60, number(1, self.tracks[name]) + length_delimited(2, name)))
        return self.tracks[name]

    def slice(self, category: str, name: str, track: int, times: tuple[int, int], **annotated: object) -> None:
        """A slice as two events; packets have no time here, as readers have it from annotations."""
        annotations = {"begin_ns": times[0], "end_ns": times[1], "delta_ns": times[1] - times[0], **annotated}
        event = number(3, self.iid(1, category)) + number(9, 1) + number(10, self.iid(2, name)) + number(11, track)
        event += b"".join(length_delimited(4, self._annotation(key, value)) for key, value in annotations.items())
        interned, self.new = self.new, b""
        self.packet(length_delimited(12, interned) + length_delimited(11, event))
        self.packet(length_delimited(11, number(9, 2) + number(11, track)))

    def _annotation(self, name: str, value: object) -> bytes:
        """Counters are named in place, others by number; fractions are of 8 bytes."""
        if isinstance(value, float):
            return length_delimited(10, name) + bytes([5 << 3 | 1]) + struct.pack("<d", value)
        key = number(1, self.iid(3, name))
        return key + (length_delimited(6, value) if isinstance(value, str) else number(3, int(str(value))))


def pftrace(run: RocprofRun, *, older: bool = False) -> bytes:
    """The trace; agents are named `Agent-1` and on, as the CSV has them."""
    trace = Perfetto()
    trace.begin(PROCESS)
    for start, end, name, correlation, domain in run.calls:
        call = {"tid": PROCESS, "kind": 1, "operation": 2, "corr_id": correlation}
        trace.slice(_CATEGORIES[domain[:3]], name, _MAIN, (start, end), **call)
    for start, end, direction, correlation in run.copies:
        ends = {f"{end}_agent": f"Agent-{int(is_gpu)}" for end, is_gpu in _ends(direction).items()}
        track = trace.track(f"COPY to AGENT [1] STREAM [{STREAM}] (GPU)" if older else f"STREAM [{STREAM}]")
        annotations: dict[str, object] = {
            "kind": 3,
            **ends,
            "copy_bytes": COPY_BYTES,
            "corr_id": correlation,
            "tid": PROCESS,
        }
        stream = {} if older else {"stream_ID": STREAM}
        trace.slice("memory_copy", f"MEMORY_COPY_{direction}", track, (start, end), **annotations, **stream)
    for dispatch, (start, end, name, correlation, gpu) in enumerate(run.kernels, 1):
        track = trace.track(f"COMPUTE AGENT [{gpu + 1}] STREAM [{STREAM}] (GPU)" if older else f"STREAM [{STREAM}]")
        annotations = {"kind": 4, "agent": f"Agent-{gpu + 1}", "corr_id": correlation, "queue": 1, "tid": PROCESS}
        sizes: dict[str, object] = {"workgroup_size": 256, "grid_size": 2_000}
        if older:
            sizes |= {"group_segment_size": 1_024}
        else:
            sizes |= {"LDS_Block_Size": 1_024, "VGPR_Count": 32, "Accum_VGPR_Count": 0, "stream_ID": STREAM}
            sizes |= {counter: float(sum(values)) for counter, values in run.counts.get(dispatch, {}).items()}
        shown = plain_kernel_name(name)
        trace.slice("kernel_dispatch", shown, track, (start, end), **annotations, **sizes)
    return trace.data


def _ends(direction: str) -> dict[str, bool]:
    return {"src": direction.startswith("DEVICE"), "dst": direction.endswith("DEVICE")}
