"""The nearest and the farthest wanted span above each span, for as many spans as there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xsp_ingest.machine.functions import NUMBER, CompiledFunction
from xsp_ingest.machine.sweep import dual
from xsp_model.columns import tree
from xsp_model.columns.arrays import no_refs, release
from xsp_model.limits import limits

if TYPE_CHECKING:
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = ["CLIMB", "innermost", "outermost"]

CLIMB = CompiledFunction("climb", "_climb", ("int32", "uint8", *(NUMBER,) * 3, "int32", "int32"), (__name__,))

_CYCLE = "the span tree has a cycle"


def innermost(parent: Positions, mask: Bools) -> Positions:
    """As `tree.innermost`."""
    return _climb_all(parent, mask, farthest=0) if _is_worth_it(parent) else tree.innermost(parent, mask)


def outermost(parent: Positions, mask: Bools) -> Positions:
    """As `tree.outermost`."""
    return _climb_all(parent, mask, farthest=1) if _is_worth_it(parent) else tree.outermost(parent, mask)


def _is_worth_it(parent: Positions) -> bool:
    return len(parent) >= limits().climb_min_spans


def _climb_all(parent: Positions, mask: Bools, farthest: int) -> Positions:
    nearest, cycle = no_refs(len(parent)), np.full(1, -1, dtype=parent.dtype)
    spans = limits().climb_piece_spans
    for first in range(0, len(parent), spans):
        _climb.into((nearest, cycle), parent, mask, farthest, first, min(first + spans, len(parent)))
        release()
    if cycle[0] >= 0:
        raise ValueError(_CYCLE)
    return nearest


@dual(CLIMB)
def _climb(parent: Ints, mask: Ints, farthest: int, first: int, last: int, nearest: Ints, cycle: Ints) -> None:
    """Upwards from each span as far as an earlier one, whose answer is known: parents mostly come before children."""
    for i in range(first, last):
        j = i
        steps = 0
        while j >= 0 and j < len(parent):
            if mask[j] != 0:
                nearest[i] = j
                if farthest == 0:
                    break
            j = parent[j]
            if j >= 0 and j < i:
                if nearest[j] >= 0:
                    nearest[i] = nearest[j]
                break
            steps += 1
            if steps > len(parent):
                cycle[0] = i
                return
