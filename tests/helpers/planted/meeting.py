"""Ranks that meet: their programs run side by side, and wait for each other where they communicate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from tests.helpers.planted.device_queue import DeviceQueue

    Program = Generator["Meeting", int, None]

__all__ = ["Meeting", "collective", "run_side_by_side"]

_DTYPE_BYTES = 4


@dataclass(frozen=True)
class Meeting:
    """What a program yields when its kernel could start; it is sent the time at which all leave together."""

    key: tuple[object, ...]
    members: int
    start_ns: int
    transfer_ns: int


def run_side_by_side(programs: Sequence[Program]) -> None:
    """Runs the programs to their ends; a meeting ends its transfer after the last member came."""
    waiting: dict[int, Meeting] = {}
    sent: dict[int, int | None] = dict.fromkeys(range(len(programs)))
    while sent or waiting:
        for number, end_ns in list(sent.items()):
            del sent[number]
            try:
                waiting[number] = next(programs[number]) if end_ns is None else programs[number].send(end_ns)
            except StopIteration:
                continue
        sent |= _met(waiting)
        assert sent or not waiting, "programs wait for each other in a circle"


def _met(waiting: dict[int, Meeting]) -> dict[int, int]:
    """The members of meetings to which all came, with their end; they wait no longer."""
    ends: dict[int, int] = {}
    for key in {m.key for m in waiting.values()}:
        members = {number: m for number, m in waiting.items() if m.key == key}
        first = next(iter(members.values()))
        if len(members) == first.members:
            end_ns = max(m.start_ns for m in members.values()) + first.transfer_ns
            ends |= dict.fromkeys(members, end_ns)
    for number in ends:
        del waiting[number]
    return ends


def collective(
    queue: DeviceQueue,
    name: str,
    key: tuple[object, ...],
    message: tuple[int, int],
    stream_id: int,
    ranks: Sequence[int] = (),
) -> Program:
    """One NCCL kernel of the rank, among these ranks (all, where none are named), of so many bytes in so much time."""
    ranks = ranks or range(queue.ranks)
    elements, transfer_ns = message[0] // _DTYPE_BYTES, message[1]
    shown = {
        "Collective name": name,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "Group size": len(ranks),
        "dtype": "Float",
        "Process Group Name": "-".join(map(str, ranks)),
        "Process Group Ranks": str(list(ranks)),
    }
    kernel = {"all_reduce": "AllReduce_Sum_f32_RING_LL"}.get(name, "SendRecv")
    with queue.operator("record_param_comms", [[elements]]), queue.annotation(f"nccl:{name}"):
        correlation, start_ns = queue.launched(stream_id)
        end_ns = yield Meeting(key, len(ranks), start_ns, transfer_ns)
    queue.ran(f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<4096ul>)", (start_ns, end_ns), correlation,
              stream_id, **shown)  # fmt: skip
