"""Members of a cohort, of facts put together by hand."""

from __future__ import annotations

from dataclasses import replace

from xsp_analyze.cohort.cohort import Member
from xsp_analyze.cohort.facts import Speed, TraceFacts

__all__ = ["member"]

_MS = 1_000_000


def member(model: str, system: str = "gpu", name: str = "", **more: object) -> Member:
    """A trace of the model; `more` are its facts: batch and latency_ns among them."""
    batch, latency = more.pop("batch", 1), more.pop("latency_ns", 10 * _MS)
    rate = batch * 1e9 / latency if batch else None  # type: ignore[operator]
    speed = Speed(batch, latency, None, None, rate, int(more.pop("steps", 3)))  # type: ignore[arg-type,call-overload]
    facts = TraceFacts(model, system, "pytorch 2", ["torch_profiler"], ["model"], 1, 9, [speed])
    return Member(name or f"{model}-{system}-{batch}", replace(facts, **more))  # type: ignore[arg-type]
