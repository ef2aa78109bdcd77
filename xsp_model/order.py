"""The total order of spans: by start, then outer levels first, longer spans first, and by place and name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import scratch
from xsp_model.arrays import nowhere
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from xsp_model.arrays import Bools, Ints, Positions

__all__ = ["tied", "total_order"]

_LEVEL_ENUM = pl.Enum([str(level) for level in LEVELS])
_TIES = (
    "rank",
    "longest_first",
    "run_id",
    "process_id",
    "thread_id",
    "device_id",
    "stream_id",
    "correlation_id",
    "name",
    "kind",
    "span_id",
)

_PIECE = 1 << 20
_WORDS = ("name", "kind")  # compared as texts, however they are held


def total_order(spans: pl.DataFrame) -> Positions | None:
    """The rows of `spans` in their total order; None where they stand in it already. Without `run_id` it is one run.

    By start first, which settles nearly all; only spans that start together are compared column by column, and those
    alike in every column keep the order they have (or that of their `span_id`).
    """
    start = spans["start_ns"].to_numpy()
    is_sorted = bool((start[1:] >= start[:-1]).all())
    order = None if is_sorted else _by_start(start)
    together = np.flatnonzero(tied(start) if order is None else _tied_in(start, order))
    places = together if order is None else order[together]
    given = [name for name in _TIES[2:] if name in spans.columns]
    keys = spans[places].select(
        pl.Series("place", places),
        "start_ns",
        pl.col("level").cast(pl.String).cast(_LEVEL_ENUM).to_physical().alias("rank"),
        (-pl.col("duration_ns")).alias("longest_first"),
        *(pl.col(name).cast(pl.String) if name in _WORDS else name for name in given),
    )
    by = ["start_ns", *_TIES[:2], *given]
    sorted_places = keys.sort(by, nulls_last=True, maintain_order=True)["place"].to_numpy()
    if order is None:
        if (sorted_places == places).all():
            return None
        order = _counted(len(start))
    order[together] = sorted_places
    return order


def _by_start(start: Ints) -> Positions:
    order = np.argsort(start, kind="stable")
    out = nowhere(len(order))
    out[:] = order
    return out


def _counted(count: int) -> Positions:
    out = nowhere(count)
    out[:] = np.arange(count)
    return out


def _tied_in(values: Ints, order: Positions) -> Bools:
    """As `tied` of `values[order]`, a part of them at a time."""
    out = np.zeros(len(order), dtype=np.bool_)
    for first in range(0, len(order), _PIECE):
        last = min(first + _PIECE + 1, len(order))  # one more, to be compared with
        out[first:last] |= tied(values[order[first:last]])
        scratch.release()
    return out


def tied(values: Ints) -> Bools:
    """Which of the sorted values have an equal neighbour."""
    same = values[1:] == values[:-1]
    out: Bools = np.concatenate((same, [False]))
    out[1:] |= same
    return out[: len(values)]
