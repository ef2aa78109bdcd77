"""The work of many calls of operators at once, each distinct one modelled once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.modelled_work import Work, modelled, tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CALL", "following_shapes", "modelled_calls"]

CALL = ("name", "input_shapes", "input_dtypes", "concrete_inputs", "next_shapes", "next_dtypes")
"""What the work of a call follows from."""

_NO_TENSOR = r"^\s*\[\s*(\[\s*\]|\])"  # the first input is a scalar, or there is none


def following_shapes() -> Iterator[pl.Expr]:
    """Shapes and types of the next call of the thread that takes a tensor; of calls in order of start.

    Batch normalisation counts its batches before it starts: that call takes none.
    """
    takes_tensor = pl.col("input_dtypes").is_not_null() & ~pl.col("input_shapes").str.contains(_NO_TENSOR)
    for column in ("shapes", "dtypes"):
        own = pl.when(takes_tensor).then(f"input_{column}")
        yield own.shift(-1).backward_fill().over("run_id", "process_id", "thread_id").alias(f"next_{column}")


def modelled_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls (columns of CALL) with flop, elements, input_bytes and output_bytes; null: not modelled."""
    works = [_work(*row) for row in calls.select(CALL).iter_rows()]
    fields = ("flop", "elements", "input_bytes", "output_bytes")
    columns = [pl.Series(name, [getattr(work, name) for work in works], dtype=pl.Float64) for name in fields]
    return calls.with_columns(columns)


def _work(
    name: str,
    shapes: str | None,
    dtypes: str | None,
    concrete: str | None,
    next_shapes: str | None,
    next_dtypes: str | None,
) -> Work:
    following = tensors(next_shapes, next_dtypes)
    return modelled(name, tensors(shapes, dtypes), concrete, following[0] if following else None)
