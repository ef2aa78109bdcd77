"""Which captured launch each piece of a replay is of, where its work ran on several streams."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from xsp_model.arrays import Ints

__all__ = ["Ambiguous", "Order", "launches_on_streams", "order_on_streams"]


class Ambiguous(Enum):
    """There is more than one way."""

    YES = True


Order: TypeAlias = "Ints | Ambiguous | None"


def order_on_streams(captured: Ints, tokens: Ints, stream: Ints) -> Order:
    """For each captured launch the place of its work among `tokens`; None: they cannot be of these launches.

    Within a stream work runs in the order of the capture. Across streams the next launch is on the one stream whose
    next work is of its name: where two streams have it next, nothing says which, least of all when each started.
    """
    queues = [np.flatnonzero(stream == each).tolist()[::-1] for each in np.unique(stream)]
    out = np.empty(len(captured), dtype=np.int64)
    for number, token in enumerate(captured):
        heads = [queue for queue in queues if queue and tokens[queue[-1]] == token]
        if len(heads) != 1:
            return Ambiguous.YES if heads else None
        out[number] = heads[0].pop()
    return out


def launches_on_streams(captured: Ints, tokens: Ints, stream: Ints) -> Ints:
    """For each piece of work, in order of start, the number of its launch; of work that was paired by that order."""
    if (stream == stream[0]).all():
        return np.arange(len(tokens))
    order = order_on_streams(captured, tokens, stream)
    assert isinstance(order, np.ndarray)  # noqa: S101 (it was paired by that)
    out = np.empty(len(tokens), dtype=np.int64)
    out[order] = np.arange(len(order))
    return out
