"""GPU metrics that MLModelScope wrote as log fields: CUPTI's names, with the units CUPTI documents for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.files.json_values import finite

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_ingest.formats.jaeger.document import Log

__all__ = ["FRAMEWORK_MEMORY", "SOURCE", "logged"]

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


def logged(logs: Sequence[Log] | None) -> list[tuple[str, float, str]]:
    """Name, value and unit of each metric in the logs, in their order; one logged several times is the mean.

    A metric that needs several passes is logged once a pass. Percentages become shares of 0..1.
    """
    values: dict[str, list[float]] = {}
    for log in logs or ():
        for field in log.fields:
            value = finite(field.value)
            if value is not None and field.key not in _NOT_METRICS:
                values.setdefault(field.key, []).append(value)
    return [_at_rest(name, sum(samples) / len(samples)) for name, samples in values.items()]


def _at_rest(name: str, value: float) -> tuple[str, float, str]:
    if _PERCENT.search(name):
        return name, value / 100, "1"
    return name, value, next((unit for pattern, unit in _UNITS if pattern.search(name)), "unknown")
