"""The JSON that `rocprofv3 --output-format json` writes, as far as it is read, and the common columns of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_ingest.files.json_window import EACH, Targets, walk
from xsp_ingest.formats.rocprofv3.records import (
    API,
    COPY,
    COUNT,
    DEVICE,
    KERNEL,
    Records,
    column,
    empty,
    plain_kernel_name,
    with_counted,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["Agent", "devices", "from_json"]

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
_KINDS, _MARKER_TEXTS = (*_ROOT, "strings", "buffer_records"), (*_ROOT, "strings", "marker_api")
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
    values={_PID: int | None, _MARKER_TEXTS: list[_Text] | dict[str, Any]},
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


# From the JSON document to the common columns, some records at a time.

_GPU = 2
_DEVICE_HEAPS = {1, 2}  # frame buffer, public and private
_HZ_PER_MHZ = 1_000_000
_MARKERS = "marker_api"
_I, _S = pl.Int64(), pl.String()


def from_json(path: Path) -> Records:
    """The records of all processes of the file; XspError where it is cut off or not such JSON."""
    processes: dict[int, Process] = {}
    parts: dict[tuple[int, str], list[pl.DataFrame]] = defaultdict(list)
    for number, table, records in load(path, processes):
        if table == COUNTED and records:
            parts[number, _BESIDE].append(_numbers(DISPATCHES, [_record_of_dispatch(record) for record in records]))
            parts[number, COUNTED].append(_values(records))
        elif records:
            parts[number, table].append(_numbers(table, records))
    frames_of: dict[str, list[pl.DataFrame]] = {name: [empty(of)] for name, of in _SHAPES.items()}
    for (number, table), frames in sorted(parts.items(), key=lambda part: part[0][0]):
        rows, process = pl.concat(frames), processes[number]
        rows = rows.with_columns(pl.lit(process.pid, _I).alias("process") if _fits(process.pid) else _NO_PROCESS)
        if table in {DISPATCHES, _BESIDE}:
            frames_of[table].append(_kernels(process, rows))
        elif table == COPIES:
            frames_of[table].append(_copies(process, rows))
        elif table == COUNTED:
            frames_of[table].append(
                _with_column(rows, "counter_id", "counter", process.counters.items(), _S).select(*COUNT)
            )
        else:
            frames_of["calls"].append(_calls(process, rows, table))
        frames.clear()
    gpus_of = [dict(enumerate(gpus(processes[number].agents))) for number in sorted(processes)]
    described = [devices(one, processes[number].pid) for one, number in zip(gpus_of, sorted(processes), strict=True)]
    return Records(
        with_counted(pl.concat(frames_of[DISPATCHES]), pl.concat(frames_of[_BESIDE])),
        pl.concat(frames_of[COPIES]),
        pl.concat(frames_of["calls"]),
        pl.concat([empty(DEVICE), *described]),
        pl.concat(frames_of[COUNTED]),
    )


_BESIDE = "dispatches that were counted"
_SHAPES = {DISPATCHES: KERNEL, _BESIDE: KERNEL, COPIES: COPY, COUNTED: COUNT, "calls": API}


def _record_of_dispatch(counted: Counted) -> Record:
    data = counted.dispatch_data
    return Record(
        start_timestamp=data.start_timestamp,
        end_timestamp=data.end_timestamp,
        thread_id=counted.thread_id,
        correlation_id=data.correlation_id,
        stream_id=counted.stream_id,
        dispatch_info=data.dispatch_info,
    )


def _values(records: Sequence[Counted]) -> pl.DataFrame:
    """One row an instance of a counter, with its id and dispatch."""
    rows = [
        (record.dispatch_data.dispatch_info.dispatch_id, value.counter_id.handle, value.value)
        for record in records
        for value in record.records
    ]
    dispatches, ids, values = zip(*rows, strict=True) if rows else ((), (), ())
    numbers = {"dispatch": column("dispatch", dispatches), "counter_id": column("counter_id", ids)}
    return pl.DataFrame({**numbers, "value": pl.Series("value", values, dtype=pl.Float64)})


_NO_PROCESS = pl.lit(None, _I).alias("process")


def _fits(number: int | None) -> bool:
    return number is not None and -(1 << 63) <= number < 1 << 63


_TIMES: Mapping[str, Callable[[Record], int | None]] = {
    "thread": lambda r: r.thread_id,
    "correlation": lambda r: r.correlation_id.internal,
    "start": lambda r: r.start_timestamp,
    "end": lambda r: r.end_timestamp,
}
_DISPATCH: Mapping[str, Callable[[Record], int | None]] = {
    **_TIMES,
    "agent_handle": lambda r: r.dispatch_info.agent_id.handle,
    # The stream, or where the tool did not record it the queue.
    "stream": lambda r: r.dispatch_info.queue_id.handle if r.stream_id is None else r.stream_id.handle,
    "kernel_id": lambda r: r.dispatch_info.kernel_id,
    "dispatch": lambda r: r.dispatch_info.dispatch_id,
    "threads_x": lambda r: r.dispatch_info.grid_size.x,
    "threads_y": lambda r: r.dispatch_info.grid_size.y,
    "threads_z": lambda r: r.dispatch_info.grid_size.z,
    "block_x": lambda r: r.dispatch_info.workgroup_size.x,
    "block_y": lambda r: r.dispatch_info.workgroup_size.y,
    "block_z": lambda r: r.dispatch_info.workgroup_size.z,
    "shared": lambda r: r.dispatch_info.group_segment_size,
}
_OPERATION: Mapping[str, Callable[[Record], int | None]] = {
    "kind": lambda r: r.kind,
    "operation": lambda r: r.operation,
}
_COPY: Mapping[str, Callable[[Record], int | None]] = {
    **_TIMES,
    **_OPERATION,
    "source": lambda r: r.src_agent_id.handle,
    "destination": lambda r: r.dst_agent_id.handle,
    "stream": lambda r: None if r.stream_id is None else r.stream_id.handle,
    "bytes": lambda r: r.bytes,
}
_CALL: Mapping[str, Callable[[Record], int | None]] = {**_TIMES, **_OPERATION}


def _numbers(table: str, records: Sequence[Record]) -> pl.DataFrame:
    """What is in the records themselves; ids stay ids until the whole file is read."""
    fields = _DISPATCH if table == DISPATCHES else _COPY if table == COPIES else _CALL
    return pl.DataFrame({name: column(name, [of(record) for record in records]) for name, of in fields.items()})


def _gpus(process: Process) -> dict[int, int]:
    """Numbers of the GPUs by their handles."""
    return {agent.id.handle: number for number, agent in enumerate(gpus(process.agents))}


def _with_column(
    rows: pl.DataFrame, own: str, name: str, pairs: Iterable[tuple[object, object]], kind: pl.DataType
) -> pl.DataFrame:
    """Adds column `name`: what the pairs have for the number in column `own`, null where they have nothing."""
    value_of = {key: value for key, value in pairs if isinstance(key, int) and _fits(key)}
    values = pl.DataFrame(
        {own: column(own, list(value_of)), name: pl.Series(name, list(value_of.values()), dtype=kind)}
    )
    return rows.join(values, on=own, how="left", maintain_order="left")


def _agents(process: Process, rows: pl.DataFrame, own: str, name: str) -> pl.DataFrame:
    return _with_column(rows, own, name, _gpus(process).items(), _I)


def _kernels(process: Process, rows: pl.DataFrame) -> pl.DataFrame:
    symbols = process.symbols
    names = {n: plain_kernel_name(s.demangled_kernel_name or s.kernel_name) for n, s in symbols.items()}
    placed = _agents(process, rows, "agent_handle", "agent")
    named = _with_column(placed, "kernel_id", "name", names.items(), _S)
    counts = {
        "registers": [symbol.arch_vgpr_count for symbol in symbols.values()],
        "accumulation_registers": [symbol.accum_vgpr_count for symbol in symbols.values()],
    }
    for name, values in counts.items():
        named = _with_column(named, "kernel_id", name, zip(symbols, column(name, values).to_list(), strict=True), _I)
    return named.select(*KERNEL)


def _copies(process: Process, rows: pl.DataFrame) -> pl.DataFrame:
    """A copy is its source's; where that is the host, its destination's."""
    ends = _agents(process, _agents(process, rows, "source", "from"), "destination", "to")
    named = _operations(process, ends, "direction")
    return named.with_columns(pl.coalesce("from", "to").alias("agent")).select(*COPY)


def _calls(process: Process, rows: pl.DataFrame, api: str) -> pl.DataFrame:
    named = _operations(process, rows, "operation_name")
    if api == _MARKERS:
        marker_texts = pl.DataFrame(
            {"correlation_text": list(process.markers), "marker_text": list(process.markers.values())},
            schema={"correlation_text": _S, "marker_text": _S},
        )
        keyed = named.with_columns(pl.col("correlation").fill_null(0).cast(_S).alias("correlation_text"))
        named = keyed.join(marker_texts, on="correlation_text", how="left", maintain_order="left")
        named = named.with_columns(pl.when(pl.col("marker_text") != "").then("marker_text"))
    else:
        named = named.with_columns(pl.lit(None, _S).alias("marker_text"))
    domain = pl.lit(api.upper()).alias("domain")
    return named.select(
        *(c for c in API if c not in {"domain", "name"}),
        domain,
        pl.coalesce("marker_text", "operation_name").alias("name"),
    )


def _operations(process: Process, rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """Adds column `name`: the operation's name, by its kind's list."""
    listed = [
        (kind, n, operation) for kind, one in enumerate(process.kinds) for n, operation in enumerate(one.operations)
    ]
    columns = {"kind": _I, "operation": _I, name: _S}
    names = pl.DataFrame(listed, schema=columns, orient="row")
    return rows.join(names, on=["kind", "operation"], how="left", maintain_order="left")


def gpus(agents: Iterable[Agent]) -> list[Agent]:
    """The GPUs in the order of their nodes, as HIP numbers them from 0."""
    return sorted((agent for agent in agents if agent.type == _GPU), key=lambda a: (a.node_id, a.id.handle))


def devices(numbered: Mapping[int, Agent], process: int | None) -> pl.DataFrame:
    """One row a GPU, by its number."""
    agents = list(numbered.values())
    memory = [sum(b.size_in_bytes for b in a.mem_banks if b.heap_type in _DEVICE_HEAPS) or None for a in agents]
    clocks = [a.max_engine_clk_fcompute and a.max_engine_clk_fcompute * _HZ_PER_MHZ for a in agents]
    return pl.DataFrame(
        {
            "device_id": column("device_id", list(numbered)),
            "process_id": column("process_id", [process] * len(agents)),
            "name": pl.Series("name", [a.product_name or a.name or None for a in agents], dtype=pl.String),
            "multiprocessor_count": column("multiprocessor_count", [a.cu_count for a in agents]),
            "clock_hz": column("clock_hz", [clock or None for clock in clocks]),
            "memory_bytes": column("memory_bytes", memory),
        },
        schema=dict(DEVICE),
    )
