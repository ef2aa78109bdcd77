"""The lengths of the requests in the serving step that a call ran in, which attention's work follows from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.modelled_calls import LENGTHS
from xsp_model import Level
from xsp_model.step_annotations import is_serving_step, parse_step_annotation
from xsp_model.tree import innermost

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["lengths_of"]

_Sums = tuple[int | None, ...]

_MARKED = (str(Level.APPLICATION), str(Level.MODEL))


def lengths_of(trace: Trace, ids: pl.Series) -> pl.DataFrame:
    """span_id and the columns of LENGTHS: of the innermost range around each span that a serving engine named.

    Null where there is none, or its name does not say.
    """
    taking = ids.alias("span_id").to_frame()
    lengths = (
        taking.with_columns(_ranges(trace, ids)) if len(ids) else taking.with_columns(range=pl.lit(None, pl.String))
    )
    sums = {text: _sums(text) for text in lengths["range"].unique().drop_nulls()}
    columns = [
        pl.col("range").replace_strict({t: s[i] for t, s in sums.items()}, default=None, return_dtype=pl.Int64).alias(c)
        for i, c in enumerate(LENGTHS)
    ]
    return lengths.select("span_id", *columns)


def _ranges(trace: Trace, ids: pl.Series) -> pl.Series:
    """For each span the name of the innermost serving step around it; null: there is none."""
    spans = trace.scan("spans")
    marked = spans.filter(pl.col("level").cast(pl.String).is_in(_MARKED))
    ranges = marked.select("span_id", pl.col("name").cast(pl.String).alias("range")).collect()
    engines = [name for name in ranges["range"].unique() if is_serving_step(name)]
    steps = ranges.filter(pl.col("range").is_in(engines))
    if steps.is_empty():
        return pl.Series("range", [None] * len(ids), dtype=pl.String)
    parents = spans.select(pl.col("parent_id").fill_null(-1)).collect().to_series().to_numpy()
    is_step = np.zeros(len(parents), dtype=bool)
    is_step[steps["span_id"].to_numpy()] = True
    around = pl.DataFrame({"span_id": innermost(parents, is_step)[ids.to_numpy()]}, schema={"span_id": pl.Int64})
    return around.join(steps, on="span_id", how="left", maintain_order="left")["range"]


def _sums(text: str) -> _Sums:
    """The values of LENGTHS; where every request has one token, as in decoding, the products need no saying."""
    step = parse_step_annotation(text)
    if step is None:
        return (None,) * len(LENGTHS)
    if step.tokens is not None and step.tokens == step.requests:
        return (step.tokens, step.kv_tokens, step.tokens, step.kv_tokens)
    return (step.tokens, step.kv_tokens, step.tokens_squared, step.tokens_by_kv_tokens)
