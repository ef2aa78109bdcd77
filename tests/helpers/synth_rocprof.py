"""Builds rocprofv3 outputs for tests and fixtures: one run as JSON and as CSV files; others build on its lists."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["COPY_BYTES", "PROCESS", "STREAM", "RocprofRun", "agent"]

PROCESS = 908
STREAM = 3
COPY_BYTES = 4_096
_HANDLE = 5000  # of the first GPU's agent; the CPU's is one less
_KINDS = ["NONE", "HIP_RUNTIME_API", "MARKER_CORE_API", "MEMORY_COPY", "KERNEL_DISPATCH", "RCCL_API"]
_APIS = {"hip": 1, "marker": 2, "rccl": 5}
_KERNEL_COLUMNS = (
    *("Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name"),
    *("Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size", "Scratch_Size", "VGPR_Count"),
    *("Accum_VGPR_Count", "SGPR_Count", "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z"),
    *("Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"),
)
_COUNT_COLUMNS = (
    *("Correlation_Id", "Dispatch_Id", "Agent_Id", "Queue_Id", "Process_Id", "Thread_Id", "Grid_Size", "Kernel_Id"),
    *("Kernel_Name", "Workgroup_Size", "LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count"),
    *("SGPR_Count", "Counter_Name", "Counter_Value", "Start_Timestamp", "End_Timestamp"),
)
_COPY_COLUMNS = (
    *("Kind", "Stream_Id", "Direction", "Source_Agent_Id", "Destination_Agent_Id", "Correlation_Id"),
    *("Start_Timestamp", "End_Timestamp"),
)
_CALL_COLUMNS = (
    *("Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp"),
)
_AGENT_COLUMNS = (
    *("Node_Id", "Logical_Node_Id", "Agent_Type", "Cu_Count", "Max_Engine_Clk_Fcompute", "Name", "Product_Name"),
)


@dataclass
class RocprofRun:
    """One process with two GPUs; times in ns."""

    kernels: list[tuple[int, int, str, int, int]] = field(default_factory=list)  # start, end, name, correlation, gpu
    copies: list[tuple[int, int, str, int]] = field(default_factory=list)  # start, end, direction, correlation
    calls: list[tuple[int, int, str, int, str]] = field(default_factory=list)  # start, end, name, correlation, domain
    counts: dict[int, dict[str, list[float]]] = field(default_factory=dict)  # by dispatch, counted from 1: instances

    def call(self, start: int, end: int, name: str, correlation: int, domain: str = "HIP_RUNTIME_API") -> None:
        """A call, or a marker (domain MARKER_CORE_API)."""
        self.calls.append((start, end, name, correlation, domain))

    def launch(self, start: int, name: str, correlation: int, busy: tuple[int, int], gpu: int = 0) -> None:
        """HipLaunchKernel and its kernel."""
        self.call(start, start + 5_000, "hipLaunchKernel", correlation)
        self.kernels.append((*busy, name, correlation, gpu))

    def count(self, dispatch: int, **values: float | list[float]) -> None:
        """What was counted of a kernel, which is the n-th of `kernels`, n counted from 1; a list is of instances."""
        listed = {name: value if isinstance(value, list) else [value] for name, value in values.items()}
        self.counts.setdefault(dispatch, {}).update(listed)

    @property
    def counter_names(self) -> list[str]:
        """Every counter, in order; its number here is its id."""
        return sorted({name for one in self.counts.values() for name in one})

    def copy(self, start: int, direction: str, correlation: int, busy: tuple[int, int]) -> None:
        """HipMemcpyAsync and its copy, `HOST_TO_DEVICE` or the like."""
        self.call(start, start + 5_000, "hipMemcpyAsync", correlation)
        self.copies.append((*busy, direction, correlation))

    def json(self, *, traced: bool = True) -> bytes:
        """As `--output-format json` writes it; not traced: with `--pmc` alone, which records no dispatches."""
        names = list(dict.fromkeys(name for _, _, name, _, _ in self.kernels))
        operations = list(dict.fromkeys(name for _, _, name, _, _ in self.calls))
        directions = list(dict.fromkeys(f"MEMORY_COPY_{direction}" for _, _, direction, _ in self.copies))
        strings = [operations if n in {1, 2, 5} else directions if n == 3 else [] for n in range(len(_KINDS))]
        process = {
            "metadata": {"node": {"hostname": "made-up"}, "pid": PROCESS, "init_time": 0, "command": ["made-up"]},
            "agents": [agent(number) for number in range(-1, 2)],
            "counters": [{"id": {"handle": n}, "name": name} for n, name in enumerate(self.counter_names)],
            "strings": {
                "buffer_records": [{"kind": k, "operations": o} for k, o in zip(_KINDS, strings, strict=True)],
                "marker_api": [{"key": c, "value": n} for _, _, n, c, d in self.calls if d.startswith("MARKER")],
            },
            "kernel_symbols": [
                {"kernel_id": n, "kernel_name": name, "demangled_kernel_name": "", "arch_vgpr_count": 32}
                for n, name in enumerate(names)
            ],
            "callback_records": {"counter_collection": self._counted(names)},
            "buffer_records": {
                "kernel_dispatch": [
                    {
                        **_record(4, 0, start, end, correlation),
                        "dispatch_info": _dispatch(names.index(name), gpu, number),
                        "stream_id": {"handle": STREAM},
                    }
                    for number, (start, end, name, correlation, gpu) in enumerate(self.kernels, 1)
                    if traced
                ],
                "memory_copy": [
                    {
                        **_record(3, directions.index(f"MEMORY_COPY_{direction}"), start, end, correlation),
                        "dst_agent_id": {"handle": _HANDLE - 1 + direction.endswith("DEVICE")},
                        "src_agent_id": {"handle": _HANDLE - 1 + direction.startswith("DEVICE")},
                        "bytes": COPY_BYTES,
                        "stream_id": {"handle": STREAM},
                    }
                    for start, end, direction, correlation in self.copies
                ],
                **{
                    f"{api}_api": self._calls(api, kind, operations)
                    for api, kind in (("hip", 1), ("marker", 2), ("rccl", 5))
                },
                "hsa_api": [],
            },
        }
        return json.dumps({"rocprofiler-sdk-tool": [process]}, separators=(",", ":")).encode()

    def _counted(self, names: list[str]) -> list[dict[str, object]]:
        out: list[dict[str, object]] = []
        for dispatch, values in self.counts.items():
            start, end, name, correlation, gpu = self.kernels[dispatch - 1]
            data = {
                "correlation_id": {"internal": correlation, "external": 0},
                "start_timestamp": start,
                "end_timestamp": end,
                "dispatch_info": _dispatch(names.index(name), gpu, dispatch),
            }
            records = [
                {"counter_id": {"handle": self.counter_names.index(counter)}, "value": value}
                for counter, instances in values.items()
                for value in instances
            ]
            stream = {"handle": STREAM}
            out.append({"thread_id": PROCESS, "dispatch_data": data, "records": records, "stream_id": stream})
        return out

    def _calls(self, api: str, kind: int, operations: list[str]) -> list[dict[str, object]]:
        return [
            _record(kind, operations.index(name), start, end, correlation)
            for start, end, name, correlation, domain in self.calls
            if domain.lower().startswith(api)
        ]

    def tables(self) -> dict[str, bytes]:
        """As `--output-format csv` writes it, by file name."""
        kernels = [
            (
                *("KERNEL_DISPATCH", f"Agent {gpu + 1}", 1, STREAM, PROCESS, number, 1, name, correlation, start, end),
                *(1_024, 0, 32, 0, 16, 256, 1, 1, 1_000, 2, 1),
            )
            for number, (start, end, name, correlation, gpu) in enumerate(self.kernels, 1)
        ]
        copies = [
            ("MEMORY_COPY", STREAM, f"MEMORY_COPY_{how}", *_agents(how), correlation, start, end)
            for start, end, how, correlation in self.copies
        ]
        calls = {
            api: [
                (domain, name, PROCESS, PROCESS, correlation, start, end)
                for start, end, name, correlation, domain in self.calls
                if domain.lower().startswith(api)
            ]
            for api in ("hip", "marker", "rccl")
        }
        agents = [
            (0, 0, "CPU", 128, 0, "made-up CPU", "made-up CPU"),
            (1, 1, "GPU", 304, 2_100, "gfx942", "AMD Instinct MI300X (synthetic)"),
            (2, 2, "GPU", 304, 2_100, "gfx942", "AMD Instinct MI300X (synthetic)"),
        ]
        written = {
            "7_kernel_trace.csv": _table(_KERNEL_COLUMNS, kernels),
            "7_memory_copy_trace.csv": _table(_COPY_COLUMNS, copies),
            **{f"7_{api}_api_trace.csv": _table(_CALL_COLUMNS, rows) for api, rows in calls.items() if rows},
            "7_agent_info.csv": _table(_AGENT_COLUMNS, agents),
            "7_counter_collection.csv": _table(_COUNT_COLUMNS, self._count_rows()),
        }
        return {name: content for name, content in written.items() if content.count(b"\n") > 1}

    def _count_rows(self) -> list[tuple[object, ...]]:
        """Of each dispatch and counter one row: the sum over instances."""
        rows: list[tuple[object, ...]] = []
        for dispatch, values in self.counts.items():
            start, end, name, correlation, gpu = self.kernels[dispatch - 1]
            where = (correlation, dispatch, f"Agent {gpu + 1}", 1, PROCESS, PROCESS, 2_000, 1, name, 256, 1_024)
            rows += [
                (*where, 0, 32, 0, 16, counter, sum(instances), start, end) for counter, instances in values.items()
            ]
        return rows


def _agents(direction: str) -> tuple[str, str]:
    ends = (direction.startswith("DEVICE"), direction.endswith("DEVICE"))
    return f"Agent {int(ends[0])}", f"Agent {int(ends[1])}"


def agent(number: int) -> dict[str, object]:
    """What the tool says of a GPU, or of the CPU (-1)."""
    gpu = {"type": 2, "name": "gfx942", "product_name": "AMD Instinct MI300X (synthetic)", "cu_count": 304}
    cpu = {"type": 1, "name": "made-up CPU", "product_name": "made-up CPU", "cu_count": 128}
    shared = {"id": {"handle": _HANDLE + number}, "node_id": number + 1, "max_engine_clk_fcompute": 2_100}
    return {**shared, **(gpu if number >= 0 else cpu)}


def _record(kind: int, operation: int, start: int, end: int, correlation: int) -> dict[str, object]:
    return {
        "size": 64,
        "kind": kind,
        "operation": operation,
        "thread_id": PROCESS,
        "correlation_id": {"internal": correlation, "external": 0},
        "start_timestamp": start,
        "end_timestamp": end,
    }


def _dispatch(kernel: int, gpu: int, number: int) -> dict[str, object]:
    return {
        "agent_id": {"handle": _HANDLE + gpu},
        "queue_id": {"handle": 1},
        "kernel_id": kernel,
        "dispatch_id": number,
        "group_segment_size": 1_024,
        "workgroup_size": {"x": 256, "y": 1, "z": 1},
        "grid_size": {"x": 1_000, "y": 2, "z": 1},
    }


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue().encode()
