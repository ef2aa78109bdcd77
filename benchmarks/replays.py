"""Launches of a CUDA graph as torch's exporter shows them: one call, and many kernels with its correlation id."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["graph_replays"]

_KERNELS = 40
_CALL_US, _KERNEL_US, _DELAY_US = Decimal("31.25"), Decimal("4.5"), Decimal("12.75")
_GAP_US = Decimal("0.875")


def graph_replays(events: Sequence[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    """`count` replays after all events, on the thread and stream of the last launch and kernel among them."""
    timed = [event for event in events if "dur" in event]
    kernels = [event for event in timed if event.get("cat") == "kernel"]
    call = next(event for event in reversed(timed) if event.get("cat") == "cuda_runtime")
    free = 1 + max(event.get("args", {}).get("correlation", 0) for event in timed)
    now = max(event["ts"] + event["dur"] for event in timed) + _DELAY_US
    for replay in range(count):
        launch = {"ts": now, "dur": _CALL_US, "args": {"cbid": 311, "correlation": free + replay}}
        yield call | {"name": "cudaGraphLaunch"} | launch
        yield from _flow(call, free + replay, now, "s")
        start = now + _DELAY_US
        yield from _flow(kernels[-1], free + replay, start, "f")
        for node in range(_KERNELS):
            kernel = kernels[node % len(kernels)]
            args = kernel["args"] | {"correlation": free + replay, "graph id": 1, "graph node id": node}
            yield kernel | {"ts": start, "dur": _KERNEL_US, "tid": kernels[-1]["tid"], "args": args}
            start += _KERNEL_US + _GAP_US
        now = start + _DELAY_US


def _flow(of: dict[str, Any], number: int, at: Decimal, phase: str) -> Iterator[dict[str, Any]]:
    flow = {"ph": phase, "id": number, "pid": of["pid"], "tid": of["tid"], "ts": at, "cat": "ac2g", "name": "ac2g"}
    yield flow | ({"bp": "e"} if phase == "f" else {})
