"""The JSON that `rocprofv3 --output-format json` writes, as far as it is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from xsp_ingest.files.json_window import EACH, Targets, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["APIS", "COPIES", "COUNTED", "DISPATCHES", "Agent", "Counted", "Process", "Record", "Symbol", "load"]

DISPATCHES, COPIES, COUNTED = "kernel_dispatch", "memory_copy", "counter_collection"
APIS = ("hip_api", "hsa_api", "rccl_api", "marker_api")


class _Handle(msgspec.Struct, frozen=True):
    handle: int = 0


class _Size(msgspec.Struct, frozen=True):
    x: int | None = None
    y: int | None = None
    z: int | None = None


class _Correlation(msgspec.Struct, frozen=True):
    internal: int = 0


class _Dispatch(msgspec.Struct, frozen=True):
    agent_id: _Handle = _Handle()
    queue_id: _Handle = _Handle()
    kernel_id: int = 0
    dispatch_id: int | None = None
    group_segment_size: int | None = None
    workgroup_size: _Size = _Size()
    grid_size: _Size = _Size()


class Record(msgspec.Struct, frozen=True):
    """A record of any kind; those that are no dispatch or copy lack most of the fields."""

    start_timestamp: int | None = None
    end_timestamp: int | None = None
    kind: int = 0
    operation: int = 0
    thread_id: int | None = None
    correlation_id: _Correlation = _Correlation()
    stream_id: _Handle | None = None
    dispatch_info: _Dispatch = _Dispatch()
    src_agent_id: _Handle = _Handle()
    dst_agent_id: _Handle = _Handle()
    bytes: int | None = None


class _Counted(msgspec.Struct, frozen=True):
    correlation_id: _Correlation = _Correlation()
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    dispatch_info: _Dispatch = _Dispatch()


class _Value(msgspec.Struct, frozen=True):
    counter_id: _Handle = _Handle()
    value: float | None = None


class Counted(msgspec.Struct, frozen=True):
    """A dispatch of which something was counted; a counter has a value for each of its instances."""

    thread_id: int | None = None
    dispatch_data: _Counted = _Counted()
    records: list[_Value] = []
    stream_id: _Handle | None = None


class _Counter(msgspec.Struct, frozen=True):
    id: _Handle = _Handle()
    name: str = ""


class Symbol(msgspec.Struct, frozen=True):
    """A kernel of a code object."""

    kernel_id: int = 0
    kernel_name: str = ""
    demangled_kernel_name: str = ""
    arch_vgpr_count: int | None = None
    accum_vgpr_count: int | None = None
    group_segment_size: int | None = None


class _Bank(msgspec.Struct, frozen=True):
    heap_type: int = 0
    size_in_bytes: int = 0


class Agent(msgspec.Struct, frozen=True):
    """A processor: type 1 is a CPU, 2 a GPU."""

    id: _Handle = _Handle()
    type: int = 0
    node_id: int = 0
    logical_node_id: int | None = None
    name: str = ""
    product_name: str = ""
    cu_count: int | None = None
    max_engine_clk_fcompute: int | None = None
    mem_banks: list[_Bank] = []


class _Kind(msgspec.Struct, frozen=True):
    operations: list[str] = []


class _Text(msgspec.Struct, frozen=True):
    key: int = 0
    value: str = ""


@dataclass
class Process:
    """What the tool wrote of one process besides its records: they are handed on as they come."""

    pid: int | None = None
    agents: list[Agent] = field(default_factory=list)
    kinds: list[_Kind] = field(default_factory=list)
    symbols: dict[int, Symbol] = field(default_factory=dict)
    markers: dict[str, str] = field(default_factory=dict)
    counters: dict[int, str] = field(default_factory=dict)


_ROOT = ("rocprofiler-sdk-tool", EACH)
_BUFFER = (*_ROOT, "buffer_records")
_PID, _AGENTS, _SYMBOLS = (*_ROOT, "metadata", "pid"), (*_ROOT, "agents"), (*_ROOT, "kernel_symbols")
_COUNTERS, _COUNTED_RECORDS = (*_ROOT, "counters"), (*_ROOT, "callback_records", COUNTED)
_KINDS, _MARKERS = (*_ROOT, "strings", "buffer_records"), (*_ROOT, "strings", "marker_api")
_TARGETS = Targets(
    "the rocprofv3 JSON",
    lists={
        _AGENTS: Agent,
        _SYMBOLS: Symbol,
        _KINDS: _Kind,
        _COUNTERS: _Counter,
        _COUNTED_RECORDS: Counted,
        **{(*_BUFFER, table): Record for table in (DISPATCHES, COPIES, *APIS)},
    },
    values={_PID: int | None, _MARKERS: list[_Text] | dict[str, Any]},
)


def load(path: Path, processes: dict[int, Process]) -> Iterator[tuple[int, str, Sequence[Any]]]:
    """Some records at a time: the process they are of, their table, and they; `processes` is filled meanwhile.

    They are `Counted` in the table COUNTED, else `Record`.

    What names a record's kernel, operation and agent may stand behind it. XspError where the file is cut off or not
    such JSON.
    """
    for part in walk(path, _TARGETS):
        number = part.numbers[0]
        process = processes.setdefault(number, Process())
        if part.location[:-1] == _BUFFER or part.location == _COUNTED_RECORDS:
            yield number, part.location[-1], part.content
        elif part.location == _PID:
            process.pid = part.content
        elif part.location == _AGENTS:
            process.agents += part.content
        elif part.location == _KINDS:
            process.kinds += part.content
        elif part.location == _COUNTERS:
            process.counters.update((counter.id.handle, counter.name) for counter in part.content)
        elif part.location == _SYMBOLS:
            process.symbols.update((symbol.kernel_id, symbol) for symbol in part.content)
        else:
            process.markers = _texts(part.content)


def _texts(texts: list[_Text] | dict[str, Any]) -> dict[str, str]:
    if isinstance(texts, list):
        return {str(text.key): text.value for text in texts}
    return {key: str(value) for key, value in texts.items()}
