"""The part of a trace that one wants to export: a step, some levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.frames.group_ids import positions_in
from xsp_analyze.frames.serving_steps import of_phase, parsed_phase, serving_steps
from xsp_analyze.frames.steps import marked_steps
from xsp_model import Attribution, Finding, LedgerKind, Trace, TraceBuilder, XspError
from xsp_model.columns.tree import ancestors, innermost
from xsp_model.schema import TABLES
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model.columns.arrays import Bools

__all__ = ["part_of"]

_REFERENCES = {"operators": "forward_id", "kernels": "captured_in_id", "allocations": "owner_id"}


def part_of(
    trace: Trace, *, step: int | None = None, levels: Sequence[str] = (), serving_phase: str | None = None
) -> Trace:
    """The spans of one step, of the levels given (empty: all) and of a phase's steps; times stay as they are.

    A span whose parent is left out becomes a child of its nearest ancestor that is not. Layers of work in the step
    are kept even where they were called outside it. Device work whose layer's level is left out counts as the
    model's. XspError where no such span is in the trace.
    """
    if step is None and not levels and serving_phase is None:
        return trace
    spans = trace.frame("spans")
    keep = _spans_to_keep(spans, step, levels, None if serving_phase is None else _of_phase(trace, serving_phase))
    if not keep.any():
        raise XspError(
            _nothing(spans, step, levels, serving_phase), advice="`xsp info` says which steps and levels there are"
        )
    builder = TraceBuilder()
    for name in TABLES:
        if name != "spans":
            builder.add(name, _rows(trace.frame(name), name, keep))
    builder.add("spans", _attach_to_what_is_kept(spans, keep))
    left_out = int((~keep).sum())
    builder.note([Finding(LedgerKind.PART_OF_TRACE, count=left_out)])
    return builder.build()


def _of_phase(trace: Trace, serving_phase: str) -> pl.DataFrame:
    return of_phase(marked_steps(trace), serving_steps(trace), parsed_phase(serving_phase))


def _spans_to_keep(spans: pl.DataFrame, step: int | None, levels: Sequence[str], steps: pl.DataFrame | None) -> Bools:
    unknown = sorted(set(levels) - {str(level) for level in LEVELS})
    if unknown:
        raise XspError(f"there is no level {unknown[0]!r}", advice=f"Levels: {', '.join(map(str, LEVELS))}")
    keep: Bools = np.ones(spans.height, dtype=np.bool_)
    if step is not None:
        keep = (spans["step"] == step).fill_null(value=False).to_numpy(writable=True)
    if steps is not None:
        keep &= positions_in(steps, spans, ("run_id", "step")) >= 0
    if step is not None or steps is not None:
        keep |= _layers_of(spans, keep)
    if levels:
        keep &= spans["level"].cast(pl.String).is_in(list(levels)).to_numpy()
    return keep


def _layers_of(spans: pl.DataFrame, keep: Bools) -> Bools:
    """The layers that kept spans belong to, with what holds them."""
    mask: Bools = np.zeros(spans.height, dtype=np.bool_)
    mask[spans["layer_id"].filter(pl.Series(keep)).drop_nulls().unique().to_numpy()] = True
    held = np.flatnonzero(mask)
    for up in ancestors(spans["parent_id"].fill_null(-1).to_numpy()):
        mask[up[held][up[held] >= 0]] = True
    return mask


def _nothing(spans: pl.DataFrame, step: int | None, levels: Sequence[str], serving_phase: str | None) -> str:
    if step is not None and not (spans["step"] == step).any():
        return f"the trace has no step {step}"
    if serving_phase is not None and not levels:
        return f"step {step} is no {serving_phase} step"
    return f"the trace has no spans of level {' or '.join(levels)}{f' in step {step}' if step is not None else ''}"


def _rows(frame: pl.DataFrame, name: str, keep: Bools) -> pl.DataFrame:
    kept = frame.filter(pl.Series(keep[frame["span_id"].to_numpy()])) if "span_id" in frame.columns else frame
    if name == "attributions":
        return kept.filter(pl.Series(keep[kept["layer_id"].to_numpy()]))
    column = _REFERENCES.get(name)
    return kept if column is None else kept.with_columns(_within(kept[column], keep))


def _within(reference: pl.Series, keep: Bools) -> pl.Series:
    there = pl.Series(keep[reference.fill_null(0).to_numpy()]) & reference.is_not_null()
    return pl.select(pl.when(there).then(reference).alias(reference.name)).to_series()


def _attach_to_what_is_kept(spans: pl.DataFrame, keep: Bools) -> pl.DataFrame:
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    above = np.append(innermost(parent, keep), -1)[parent]
    layer = _within(spans["layer_id"], keep)
    lost = (pl.col("attribution").cast(pl.String) == Attribution.LAYER) & layer.is_null()
    attribution = (
        pl.when(lost).then(pl.lit(str(Attribution.MODEL_ONLY))).otherwise(pl.col("attribution").cast(pl.String))
    )
    return spans.with_columns(
        pl.select(pl.when(pl.lit(pl.Series(above >= 0))).then(pl.lit(pl.Series(above)))).to_series().alias("parent_id"),
        layer,
        attribution.cast(pl.Categorical).alias("attribution"),
    ).filter(pl.Series(keep))
