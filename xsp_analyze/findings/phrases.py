"""Words that several sentences have in common."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import count

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RECORD_NODES", "give_captures", "times"]

RECORD_NODES = (
    "Record each node of a replay, from before the graphs are captured on (nsys profile --cuda-graph-trace=node): nodes"
    " tell where they were captured"
)
"""What to do about replays in traces that hold no PyTorch launches to pair them with."""


def times(number: float) -> str:
    """How often: `once`, `twice`, `17 times`, `0.5 times` (of a mean step)."""
    named = {1: "once", 2: "twice"}
    return named.get(round(number, 1), f"{count(round(number, 1))} times")  # type: ignore[call-overload, no-any-return]


def give_captures(paths: Sequence[str]) -> str:
    """What to do where traces of graphs' capture seem to lie beside the trace."""
    options = " ".join(f"--graph-capture {clean(quote(path))}" for path in paths)
    return f"Give the capture that lies beside the trace: {options}"
