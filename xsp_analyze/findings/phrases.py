"""Words for numbers within sentences."""

from __future__ import annotations

from xsp_analyze.render.units import count

__all__ = ["times"]


def times(number: float) -> str:
    """How often: `once`, `twice`, `17 times`, `0.5 times` (of a mean step)."""
    named = {1: "once", 2: "twice"}
    return named.get(round(number, 1), f"{count(round(number, 1))} times")  # type: ignore[call-overload, no-any-return]
