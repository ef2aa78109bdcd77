"""From the JSON document to the common columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.rocprofv3.columns import API, COPY, DEVICE, KERNEL, Records, column, empty
from xsp_ingest.rocprofv3.names import plain_kernel_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_ingest.rocprofv3.document import Agent, Process, Record

__all__ = ["from_processes"]

_GPU = 2
_DEVICE_HEAPS = {1, 2}  # frame buffer, public and private
_HZ_PER_MHZ = 1_000_000
_APIS = ("hip_api", "hsa_api", "rccl_api", "marker_api")


def from_processes(processes: Sequence[Process]) -> Records:
    """The records of all processes."""
    return Records(
        pl.concat([_kernels(one) for one in processes] or [empty(KERNEL)]),
        pl.concat([_copies(one) for one in processes] or [empty(COPY)]),
        pl.concat([_calls(one, api) for one in processes for api in _APIS] or [empty(API)]),
        pl.concat([_devices(one) for one in processes] or [empty(DEVICE)]),
    )


def _gpus(process: Process) -> dict[int, tuple[int, Agent]]:
    """GPUs by handle, numbered from 0 in the order of their nodes, as HIP numbers them."""
    gpus = sorted((agent for agent in process.agents if agent.type == _GPU), key=lambda a: (a.node_id, a.id.handle))
    return {agent.id.handle: (number, agent) for number, agent in enumerate(gpus)}


def _times(process: Process, records: Sequence[Record]) -> dict[str, pl.Series]:
    return {
        "process": column("process", [process.metadata.pid] * len(records)),
        "thread": column("thread", [r.thread_id for r in records]),
        "correlation": column("correlation", [r.correlation_id.internal for r in records]),
        "start": column("start", [r.start_timestamp for r in records]),
        "end": column("end", [r.end_timestamp for r in records]),
    }


def _kernels(process: Process) -> pl.DataFrame:
    records = process.buffer_records.kernel_dispatch
    gpus = _gpus(process)
    symbols = {symbol.kernel_id: symbol for symbol in process.kernel_symbols}
    names = {n: plain_kernel_name(s.demangled_kernel_name or s.kernel_name) for n, s in symbols.items()}
    info = [record.dispatch_info for record in records]
    sizes = {
        f"{ours}_{axis}": column(f"{ours}_{axis}", [getattr(getattr(i, theirs), axis) for i in info])
        for ours, theirs in (("threads", "grid_size"), ("block", "workgroup_size"))
        for axis in "xyz"
    }
    own = [symbols.get(i.kernel_id) for i in info]
    return pl.DataFrame(
        {
            **_times(process, records),
            "agent": column("agent", [_number(gpus, i.agent_id.handle) for i in info]),
            "stream": column("stream", [_stream(record) for record in records]),
            "name": pl.Series("name", [names.get(i.kernel_id) for i in info], dtype=pl.String),
            **sizes,
            "registers": column("registers", [None if s is None else s.arch_vgpr_count for s in own]),
            "shared": column("shared", [i.group_segment_size for i in info]),
        },
        schema=dict(KERNEL),
    )


def _stream(record: Record) -> int:
    """The stream, or where the tool did not record it the queue."""
    return record.dispatch_info.queue_id.handle if record.stream_id is None else record.stream_id.handle


def _number(gpus: Mapping[int, tuple[int, Agent]], handle: int) -> int | None:
    return gpus[handle][0] if handle in gpus else None


def _copies(process: Process) -> pl.DataFrame:
    records = process.buffer_records.memory_copy
    gpus = _gpus(process)
    ends = [[_number(gpus, end.handle) for end in (r.src_agent_id, r.dst_agent_id)] for r in records]
    return pl.DataFrame(
        {
            **_times(process, records),
            "agent": column("agent", [destination if source is None else source for source, destination in ends]),
            "stream": column("stream", [None if r.stream_id is None else r.stream_id.handle for r in records]),
            "direction": pl.Series("direction", [_operation(process, r) for r in records], dtype=pl.String),
            "bytes": column("bytes", [r.bytes for r in records]),
        },
        schema=dict(COPY),
    )


def _calls(process: Process, api: str) -> pl.DataFrame:
    records: Sequence[Record] = getattr(process.buffer_records, api)
    said = process.strings.marker_api
    texts = {str(t.key): t.value for t in said} if isinstance(said, list) else {k: str(v) for k, v in said.items()}
    names = [
        (texts.get(str(r.correlation_id.internal)) if api == "marker_api" else None) or _operation(process, r)
        for r in records
    ]
    return pl.DataFrame(
        {
            **_times(process, records),
            "domain": pl.Series("domain", [api.upper()] * len(records), dtype=pl.String),
            "name": pl.Series("name", names, dtype=pl.String),
        },
        schema=dict(API),
    )


def _operation(process: Process, record: Record) -> str | None:
    kinds = process.strings.buffer_records
    if not 0 <= record.kind < len(kinds):
        return None
    operations = kinds[record.kind].operations
    return operations[record.operation] if 0 <= record.operation < len(operations) else None


def _devices(process: Process) -> pl.DataFrame:
    gpus = list(_gpus(process).values())
    agents = [agent for _, agent in gpus]
    memory = [sum(b.size_in_bytes for b in a.mem_banks if b.heap_type in _DEVICE_HEAPS) or None for a in agents]
    clocks = [a.max_engine_clk_fcompute and a.max_engine_clk_fcompute * _HZ_PER_MHZ for a in agents]
    return pl.DataFrame(
        {
            "device_id": column("device_id", [number for number, _ in gpus]),
            "process_id": column("process_id", [process.metadata.pid] * len(gpus)),
            "name": pl.Series("name", [a.product_name or a.name or None for a in agents], dtype=pl.String),
            "multiprocessor_count": column("multiprocessor_count", [a.cu_count for a in agents]),
            "clock_hz": column("clock_hz", [clock or None for clock in clocks]),
            "memory_bytes": column("memory_bytes", memory),
        },
        schema=dict(DEVICE),
    )
