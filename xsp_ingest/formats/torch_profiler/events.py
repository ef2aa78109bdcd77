"""The columns that scanners fill, one row an event, and what the categories of events mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ANNOTATION",
    "ARGS",
    "CALL",
    "COUNTER",
    "DETAIL_COLUMNS",
    "DEVICE",
    "EVENT_COLUMNS",
    "FLOW",
    "FRAMEWORK_FRAMES",
    "FRAME_COLUMNS",
    "JSON_ARGS",
    "LAUNCH_FLOW",
    "LEFT_OUT",
    "LIBRARY",
    "MEMORY",
    "MODULE_PREFIX",
    "OPERATOR",
    "OTHER_CALL",
    "OVERHEAD",
    "OWN_COUNTER",
    "PROFILER_RANGE",
    "PYTHON",
    "RESTATED",
    "SYNC",
    "UNREAD_FLOWS",
    "Document",
]

_I = pl.Int64()
_W = pl.Categorical()
ARGS: Mapping[str, tuple[str, ...]] = {
    # column: the keys of `args` that may hold it, in order of preference (spelling changed over the years)
    "correlation": ("correlation",),
    "external_id": ("External id", "external id"),
    "record_function_id": ("Record function id",),
    "device": ("device",),
    "context": ("context",),
    "stream": ("stream",),
    "bytes": ("bytes", "Bytes"),
    "registers": ("registers per thread",),
    "shared_bytes": ("shared memory",),
    "graph_id": ("graph id",),
    "graph_node_id": ("graph node id",),
    "sequence_number": ("Sequence number",),
    "forward_thread_id": ("Fwd thread id",),
    "memory_device_type": ("Device Type",),
    "memory_device_id": ("Device Id",),
    "total_allocated": ("Total Allocated",),
    "total_reserved": ("Total Reserved",),
    "address": ("Addr",),
    "group_size": ("Group size",),
    "input_elements": ("In msg nelems",),
    "output_elements": ("Out msg nelems",),
    "peer_rank": ("Src Rank", "Dst Rank"),
}
"""Whole-number arguments; a value that is a string of digits counts as the number, anything else is null."""
JSON_ARGS: Mapping[str, tuple[str, ...]] = {  # likewise
    "input_dims": ("Input Dims", "Input dims"),
    "input_types": ("Input type",),
    "concrete_inputs": ("Concrete Inputs",),
    "input_strides": ("Input Strides",),
    "call_stack": ("Call stack",),  # innermost first
    "collective": ("Collective name",),
    "element_type": ("dtype",),
    "group_name": ("Process Group Name",),
    "group_ranks": ("Process Group Ranks",),
    "input_split": ("In split size",),
    "output_split": ("Out split size",),
    "annotation": ("module_fqn", "str", "annotation"),  # of a replayed graph's node, see `annotations.py`
}
"""Arguments of any type, kept as `json.dumps` would write them; null where absent."""
_OF_EVERY_EVENT = ("correlation", "external_id", "record_function_id", "sequence_number", "forward_thread_id")
EVENT_COLUMNS: Mapping[str, pl.DataType] = {
    "ph": _W,  # null where absent or not a string
    "cat": _W,  # null where absent or not a string
    "name": _W,  # "" where absent; a name that is no string is its JSON text
    "ts_ns": _I,  # exact: microseconds as written, times 1000, half to even; null where absent or no finite number
    "dur_ns": _I,  # likewise
    "pid": _I,  # a string of digits, or `stream 7`, counts as its number; else null
    "tid": _I,
    "flow_id": _I,  # the event's `id`
    **dict.fromkeys(_OF_EVERY_EVENT, _I),
    **dict.fromkeys(JSON_ARGS, _W),
}
"""Columns of `Document.events`, in this order, with these types."""
DETAIL_COLUMNS: Mapping[str, pl.DataType] = {
    "event": _I,  # the row of `Document.events`
    **{name: _I for name in ARGS if name not in _OF_EVERY_EVENT},
    **{f"{what}_{axis}": _I for what in ("grid", "block") for axis in "xyz"},
}
"""Columns of `Document.details`: a row for each event that has any of them. Most have none, and take no room."""
FRAME_COLUMNS: Mapping[str, pl.DataType] = {"name": _W, "ts_ns": _I, "dur_ns": _I, "pid": _I, "tid": _I}
"""Columns of `Document.frames`, as those of the events."""
MODULE_PREFIX = "nn.Module: "
FRAMEWORK_FRAMES = ("torch/", "<built-")
"""How the names of most frames start that are not the user's: scanners may leave those out."""
UNREAD_FLOWS = ("ac2g", "async_cpu_to_gpu")
"""Categories of flow arrows that restate the correlation id; up to a third of all events."""


@dataclass(frozen=True, slots=True)
class Document:
    """A scanned file: its events, and the other keys of the top-level object as Python values (empty for a list).

    Flow arrows of UNREAD_FLOWS are not kept. Frames of Python functions that are no modules are not among the events:
    of complete ones with a time the columns are apart, where they are asked for, but of FRAMEWORK_FRAMES any may lack.
    """

    events: pl.DataFrame
    details: pl.DataFrame
    frames: pl.DataFrame
    head: Mapping[str, object] = field(default_factory=dict)
    not_objects: int = 0  # entries of traceEvents that were no objects
    python_frames: int = 0  # complete events (ph X) that are frames of functions
    unread_flows: Mapping[str, int] = field(default_factory=dict)  # by category, where any were not kept


# What the categories of trace events mean, under all the names they have had.

DEVICE: Mapping[str, Kind] = {
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "Kernel": Kind.KERNEL,  # torch 1.8 and 1.9
    "Memcpy": Kind.MEMCPY,
    "Memset": Kind.MEMSET,
    "gpu_graph": Kind.GRAPH,  # so XSP's own export calls a replay that was recorded as one activity
}
OTHER_CALL = ("mtia_runtime", "glow_runtime", "hpu_op", "privateuse1_runtime", "privateuse1_driver")
"""Calls of other vendors' runtimes."""
_GPU_CALL = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "xpu_driver", "Runtime")
CALL = (*_GPU_CALL, *OTHER_CALL)
OPERATOR = ("cpu_op", "Operator")
ANNOTATION = ("user_annotation",)
SYNC = ("cuda_sync",)
PYTHON = ("python_function",)
OVERHEAD = ("overhead",)  # what the profiler recorded of its own work, and of code that the driver loads
LIBRARY = ("library",)  # likewise, calls of libraries
MEMORY = ("cpu_instant_event",)
OWN_COUNTER = "counter"  # of XSP's own export, which says unit and device
COUNTER = ("hardware_counters", "mtia_counters", OWN_COUNTER)  # samples (ph C), read by `raw_events`
FLOW = ("fwdbwd",)
LAUNCH_FLOW = ("async_npu",)  # from an operator to the work of a device that it issued
PROFILER_RANGE = ("cuda_profiler_range",)  # counters, read by `raw_events`; they take no time of their own
RESTATED = "sums and parts of device work"  # where a device's process holds such: no file has this category
LEFT_OUT: Mapping[str, str] = {
    "gpu_user_annotation": "they restate host annotations on the device's time line",
    "Trace": "it is the profiler's own window",
    **dict.fromkeys((*UNREAD_FLOWS, "async", "HostToDevice"), "they restate which call launched what"),
    **dict.fromkeys(("enqueue", "dequeue", "async_task_queue"), "they pass operators from one host thread to another"),
    RESTATED: "other device work that was read holds them",
}
"""Categories of events that are known and deliberately not read, with the reason."""
