"""What the categories of trace events mean, under all the names they have had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.formats.torch_profiler.events import MODULE_PREFIX, UNREAD_FLOWS
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ANNOTATION",
    "CALL",
    "COUNTER",
    "DEVICE",
    "FLOW",
    "LAUNCH_FLOW",
    "LEFT_OUT",
    "MEMORY",
    "MODULE_PREFIX",
    "OPERATOR",
    "OTHER_CALL",
    "OVERHEAD",
    "PROFILER_RANGE",
    "PYTHON",
    "RESTATED",
    "SYNC",
]

DEVICE: Mapping[str, Kind] = {
    "kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "Kernel": Kind.KERNEL,  # torch 1.8 and 1.9
    "Memcpy": Kind.MEMCPY,
    "Memset": Kind.MEMSET,
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
MEMORY = ("cpu_instant_event",)
COUNTER = ("hardware_counters", "mtia_counters")  # samples (ph C), read by `raw_events`
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
