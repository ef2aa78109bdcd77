"""What MLModelScope's trace levels and operation names mean as levels and kinds of spans, its log fields as metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xsp_ingest.files.values import finite, text
from xsp_ingest.link.range_rules import one_of
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_ingest.formats.jaeger.document import Log
    from xsp_ingest.ingester import Options

__all__ = [
    "DEVICE_WORK",
    "FRAMEWORK_MEMORY",
    "LEFT_OUT",
    "SOURCE",
    "Meaning",
    "depth_of",
    "is_level",
    "meaning",
    "metrics_of_logs",
]

DEVICE_WORK: Mapping[str, Kind] = {
    "gpu_kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
}
"""Operation names of executions on the device; their trace level has been HARDWARE and SYSTEM_LIBRARY."""
LEFT_OUT: Mapping[str, str] = {"gpu_overhead": "it is the profiler's own work"}
"""Operation names that are known and not read, with the reason."""
_LEVELS: Mapping[str, Level] = {
    "NO_TRACE": Level.APPLICATION,  # NO and FULL are thresholds; a span that carries one says nothing of its level
    "FULL_TRACE": Level.APPLICATION,
    "APPLICATION_TRACE": Level.APPLICATION,
    "MODEL_TRACE": Level.MODEL,
    "FRAMEWORK_TRACE": Level.LAYER,
    "LIBRARY_TRACE": Level.LIBRARY,
    "ML_LIBRARY_TRACE": Level.LIBRARY,
    "SYSTEM_LIBRARY_TRACE": Level.RUNTIME,
    "HARDWARE_TRACE": Level.RUNTIME,
}
_DEPTHS = {
    f"{name}_TRACE": depth
    for depth, name in enumerate(
        ("NO", "APPLICATION", "MODEL", "FRAMEWORK", "ML_LIBRARY", "LIBRARY", "SYSTEM_LIBRARY", "HARDWARE", "FULL")
    )
}
_STEPS = (r"^(?i:c_predict)$",)
_KIND = {Level.LIBRARY: Kind.CALL, Level.RUNTIME: Kind.CALL}
_LAYER_TAGS = ("layer_sequence_index", "op_name")


@dataclass(frozen=True, slots=True)
class Meaning:
    """A span's level and kind, its name, and whether its own trace level was a known one (None: it had none)."""

    level: Level
    kind: Kind
    name: str
    has_known_level: bool | None


def is_level(value: object) -> bool:
    """Whether it is one of the tracer's levels."""
    return value in _LEVELS


def depth_of(trace_level: str) -> int:
    """How deep a level is, among those of the tracer from NO_TRACE on; of one that it does not have 0."""
    return _DEPTHS.get(trace_level, 0)


def meaning(operation: str, tags: Mapping[str, Any], options: Options) -> Meaning:
    """What a span is; a span of no known level stays, as a range of the application."""
    trace_level = text(tags.get("trace_level"))
    has_known_level = None if trace_level is None else is_level(trace_level)
    if operation in DEVICE_WORK:
        return Meaning(Level.KERNEL, DEVICE_WORK[operation], operation, has_known_level)
    level = _LEVELS.get(trace_level or "", Level.APPLICATION)
    if level is Level.MODEL and re.search(one_of(options.model_ranges or _STEPS), operation):
        return Meaning(level, Kind.STEP, operation, has_known_level)
    if level is Level.LAYER and not _is_layer(operation, tags, options):
        return Meaning(Level.OPERATOR, Kind.OPERATOR, operation, has_known_level)
    if level is Level.RUNTIME:
        operation = text(tags.get("function_name")) or operation
    return Meaning(level, _KIND.get(level, Kind.RANGE), operation or "(no name)", has_known_level)


def _is_layer(operation: str, tags: Mapping[str, Any], options: Options) -> bool:
    if options.layer_ranges:
        return bool(re.search(one_of(options.layer_ranges), operation))
    return any(tag in tags for tag in _LAYER_TAGS)


# GPU metrics that MLModelScope wrote as log fields: CUPTI's names, with the units CUPTI documents for them.

SOURCE = "cupti"
FRAMEWORK_MEMORY = {
    "temp_memory_size": "host_temporary_bytes",
    "persistent_memory_size": "host_persistent_bytes",
    "device_temp_memory_size": "device_temporary_bytes",
    "device_persistent_memory_size": "device_persistent_bytes",
}
"""Tags of a layer, in bytes, and the metrics they become."""
_NOT_METRICS = frozenset({"event", "message", "level", "error", "error.kind", "error.object", "stack", "timestamp"})
_PERCENT = re.compile(r"(?:_efficiency|_hit_rate|_utilization_pct)\Z")
_UNITS = (
    (re.compile(r"^flop_count_"), "flop"),
    (re.compile(r"_bytes\Z"), "byte"),
    (re.compile(r"_throughput\Z"), "byte/s"),
    (re.compile(r"^(?:achieved_occupancy|ipc|issued_ipc)\Z"), "1"),
)


def metrics_of_logs(logs: Sequence[Log] | None) -> list[tuple[str, float, str]]:
    """Name, value and unit of each metric in the logs, in their order; one logged several times is the mean.

    A metric that needs several passes is logged once a pass. Percentages become shares of 0..1.
    """
    values: dict[str, list[float]] = {}
    for log in logs or ():
        for one in log.fields:
            value = finite(one.value)
            if value is not None and one.key not in _NOT_METRICS:
                values.setdefault(one.key, []).append(value)
    return [_at_rest(name, sum(samples) / len(samples)) for name, samples in values.items()]


def _at_rest(name: str, value: float) -> tuple[str, float, str]:
    if _PERCENT.search(name):
        return name, value / 100, "1"
    return name, value, next((unit for pattern, unit in _UNITS if pattern.search(name)), "unknown")
