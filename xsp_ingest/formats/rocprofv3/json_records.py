"""From the JSON document to the common columns, some records at a time."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.rocprofv3.agents import devices, gpus
from xsp_ingest.formats.rocprofv3.columns import API, COPY, COUNT, DEVICE, KERNEL, Records, column, empty
from xsp_ingest.formats.rocprofv3.counters import with_counted
from xsp_ingest.formats.rocprofv3.document import COPIES, COUNTED, DISPATCHES, Process, Record, load
from xsp_ingest.formats.rocprofv3.names import plain_kernel_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.formats.rocprofv3.document import Counted

__all__ = ["from_json"]

_MARKERS = "marker_api"
_I, _S = pl.Int64(), pl.String()


def from_json(path: Path) -> Records:
    """The records of all processes of the file; XspError where it is cut off or not such JSON."""
    processes: dict[int, Process] = {}
    parts: dict[tuple[int, str], list[pl.DataFrame]] = defaultdict(list)
    for number, table, records in load(path, processes):
        if table == COUNTED and records:
            parts[number, _BESIDE].append(_numbers(DISPATCHES, [_dispatched(record) for record in records]))
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
            frames_of[table].append(_joined(rows, "counter_id", "counter", process.counters.items(), _S).select(*COUNT))
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


def _dispatched(counted: Counted) -> Record:
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


def _joined(
    rows: pl.DataFrame, own: str, name: str, pairs: Iterable[tuple[object, object]], kind: pl.DataType
) -> pl.DataFrame:
    """Adds column `name`: what the pairs have for the number in column `own`, null where they have nothing."""
    value_of = {key: value for key, value in pairs if isinstance(key, int) and _fits(key)}
    values = pl.DataFrame(
        {own: column(own, list(value_of)), name: pl.Series(name, list(value_of.values()), dtype=kind)}
    )
    return rows.join(values, on=own, how="left", maintain_order="left")


def _agents(process: Process, rows: pl.DataFrame, own: str, name: str) -> pl.DataFrame:
    return _joined(rows, own, name, _gpus(process).items(), _I)


def _kernels(process: Process, rows: pl.DataFrame) -> pl.DataFrame:
    symbols = process.symbols
    names = {n: plain_kernel_name(s.demangled_kernel_name or s.kernel_name) for n, s in symbols.items()}
    placed = _agents(process, rows, "agent_handle", "agent")
    named = _joined(placed, "kernel_id", "name", names.items(), _S)
    counts = {
        "registers": [symbol.arch_vgpr_count for symbol in symbols.values()],
        "accumulation_registers": [symbol.accum_vgpr_count for symbol in symbols.values()],
    }
    for name, values in counts.items():
        named = _joined(named, "kernel_id", name, zip(symbols, column(name, values).to_list(), strict=True), _I)
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
