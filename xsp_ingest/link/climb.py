"""The nearest and the farthest wanted span above each span, for as many spans as there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xsp_ingest.machine.functions import CLIMB
from xsp_ingest.machine.sweep import dual
from xsp_model import scratch, tree
from xsp_model.arrays import no_refs

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints, Positions

__all__ = ["innermost", "outermost"]

_PIECE = 1 << 20
_FEW = 100_000  # below, whole columns at a time take no longer
_CYCLE = "the span tree has a cycle"


def innermost(parent: Positions, wanted: Bools) -> Positions:
    """As `tree.innermost`."""
    return _climbed(parent, wanted, farthest=0) if len(parent) >= _FEW else tree.innermost(parent, wanted)


def outermost(parent: Positions, wanted: Bools) -> Positions:
    """As `tree.outermost`."""
    return _climbed(parent, wanted, farthest=1) if len(parent) >= _FEW else tree.outermost(parent, wanted)


def _climbed(parent: Positions, wanted: Bools, farthest: int) -> Positions:
    found, cycle = no_refs(len(parent)), np.full(1, -1, dtype=parent.dtype)
    for first in range(0, len(parent), _PIECE):
        _climb.into((found, cycle), parent, wanted, farthest, first, min(first + _PIECE, len(parent)))
        scratch.release()
    if cycle[0] >= 0:
        raise ValueError(_CYCLE)
    return found


@dual(CLIMB)
def _climb(parent: Ints, wanted: Ints, farthest: int, first: int, last: int, found: Ints, cycle: Ints) -> None:
    """Upwards from each span as far as an earlier one, whose answer is known: parents mostly come before children."""
    for i in range(first, last):
        j = i
        steps = 0
        while j >= 0 and j < len(parent):
            if wanted[j] != 0:
                found[i] = j
                if farthest == 0:
                    break
            j = parent[j]
            if j >= 0 and j < i:
                if found[j] >= 0:
                    found[i] = found[j]
                break
            steps += 1
            if steps > len(parent):
                cycle[0] = i
                return
