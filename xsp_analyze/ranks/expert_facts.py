"""What one rank leaves for the job on its experts: their products, and the communication that combines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.classification import KernelClass
from xsp_analyze.classification.experts import ExpertPart
from xsp_analyze.frames.expert_parts import expert_parts, has_experts
from xsp_analyze.frames.kernel_classes import IS_COMMUNICATION
from xsp_analyze.frames.recorded_collectives import group_label, recorded_facts

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["experts_of_rank"]

_SCHEMA = {
    "step": pl.Int64,
    "block": pl.String,
    "process_group": pl.String,
    "products_ns": pl.Int64,
    "combine_ns": pl.Int64,
}
_ONE = ["step", "block"]
_BACK = [str(ExpertPart.COMBINE), str(ExpertPart.EXCHANGE)]


def experts_of_rank(frames: StepView) -> pl.DataFrame:
    """One row a step and block that the rank ran any part of: products_ns, and combine_ns in communication, or null.

    The block is null where no layer is known of the work. `process_group` has name and ranks of the group that
    exchanges its tokens, of all its steps the first; null where none is recorded.
    """
    if not has_experts(frames.of_trace):
        return pl.DataFrame(schema=_SCHEMA)
    duration, communicates = pl.col("duration_ns"), pl.col("kernel_class") == str(KernelClass.COMMUNICATION)
    back = duration.filter(communicates & pl.col("part").cast(pl.String).is_in(_BACK))
    work = frames.of_trace.all_activities.join(expert_parts(frames.of_trace), on="span_id", maintain_order="left")
    group = pl.when(communicates).then("process_group").drop_nulls().first()
    work = work.join(_groups(frames), on="span_id", how="left", maintain_order="left")
    return (
        work.with_columns(group.over("block"))
        .group_by(*_ONE, "process_group")
        .agg(
            duration.filter(pl.col("part") == str(ExpertPart.PRODUCTS)).sum().alias("products_ns"),
            pl.when(back.count() > 0).then(back.sum()).alias("combine_ns"),
        )
        .sort(*_ONE, nulls_last=True)
        .select(pl.col(name).cast(kind) for name, kind in _SCHEMA.items())
    )


def _groups(frames: StepView) -> pl.DataFrame:
    """span_id of communication of which a process group is recorded, and the group's name and ranks."""
    kernels = frames.of_trace.all_activities.filter(IS_COMMUNICATION)["span_id"]
    facts = recorded_facts(frames.trace, kernels.to_numpy())
    return pl.DataFrame([kernels]).hstack(facts).select("span_id", group_label()).drop_nulls()
