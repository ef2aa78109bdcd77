"""Words that several sentences have in common."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from xsp_analyze.render.shown import clean
from xsp_analyze.render.units import count

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["give_captures", "times"]


def times(number: float) -> str:
    """How often: `once`, `twice`, `17 times`, `0.5 times` (of a mean step)."""
    named = {1: "once", 2: "twice"}
    return named.get(round(number, 1), f"{count(round(number, 1))} times")  # type: ignore[call-overload, no-any-return]


def give_captures(paths: Sequence[str]) -> str:
    """What to do where traces of graphs' capture seem to lie beside the trace."""
    options = " ".join(f"--graph-capture {clean(quote(path))}" for path in paths)
    return f"Give the capture that lies beside the trace: {options}"
