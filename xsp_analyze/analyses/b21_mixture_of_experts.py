"""B21: what a mixture of experts takes, by part: routing, dispatch, products, combine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.classification.experts import ExpertPart
from xsp_analyze.columns import COUNT, DURATION, MODEL_SHARE, STEP
from xsp_analyze.core import TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient, share_of_sum
from xsp_analyze.frames.kernels.expert_parts import PARTS, expert_parts
from xsp_analyze.frames.kernels.kernel_means import step_work
from xsp_analyze.frames.model_time import with_model_time

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["expert_blocks", "mixture_of_experts"]

_PART_COLUMNS = {part: f"{part.name.lower()}_ns" for part in ExpertPart}


@analysis(
    "B21",
    "mixture of experts",
    needs=("kernel", "experts"),
    additive=("count", "duration_ns", "expert_share", "device_share", "model_share"),
    read=(
        "The products are the work that is asked for; routing, dispatch and combine are what it costs to spread tokens"
        " over experts. With few tokens a step the rest may take as long as the products."
    ),
    columns=(
        STEP,
        Column(
            "part",
            pl.String(),
            "routing, dispatch, expert products, activation, combine, shared experts; exchange: an all-to-all of which"
            " it is not clear whether it dispatches or combines; other: nothing tells the part.",
            role=Role.KEY,
        ),
        Column("block_count", pl.Int64(), "Blocks that have it; null: no layer tells them apart.", role=Role.LABEL),
        COUNT,
        DURATION,
        Column("expert_share", pl.Float64(), "Of the device time of all parts."),
        Column("device_share", pl.Float64(), "Of all device time."),
        MODEL_SHARE,
    ),
    figure=FigureSpec("bars", x="part", y=("duration_ns",), title="Device time of a mixture of experts by part"),
)
def mixture_of_experts(frames: StepView) -> pl.LazyFrame:
    """One row a part, in the order in which a block runs them; those without work have none."""
    work = frames.once(_expert_work)
    total = (
        frames.once(step_work).group_by(*frames.by, maintain_order=True).agg(pl.col("work_ns").sum().alias("device_ns"))
    )
    blocks = pl.col("block").drop_nulls().n_unique().cast(pl.Int64)
    sums = (
        work.group_by(*frames.by, "part", maintain_order=True)
        .agg(
            pl.when(blocks > 0).then(blocks).alias("block_count"),
            pl.col("work_count").sum().alias("count"),
            pl.col("work_ns").sum().alias("duration_ns"),
        )
        .with_columns(share_of_sum("duration_ns", frames.by).alias("expert_share"))
        .lazy()
    )
    of_all = sums.join(total.lazy(), on=frames.by, how="left") if frames.by else sums.join(total.lazy(), how="cross")
    return (
        with_model_time(frames, of_all)
        .with_columns(
            *(
                pl.when(pl.col(f"{of}_ns") > 0)
                .then(quotient(pl.col("duration_ns"), pl.col(f"{of}_ns")))
                .alias(f"{of}_share")
                for of in ("device", "model")
            ),
        )
        .sort(*frames.by, "part")
        .with_columns(pl.col("part").cast(pl.String))
    )


@analysis(
    "B22",
    "mixture of experts by layer",
    needs=("kernel", "experts"),
    additive=("duration_ns", *_PART_COLUMNS.values()),
    columns=(
        STEP,
        Column("block", pl.String(), "Path of the block; null: work that no layer is known of.", role=Role.KEY),
        DURATION,
        *(Column(name, TIME_NS, f"Of that: {part}.", "ns") for part, name in _PART_COLUMNS.items()),
    ),
    figure=FigureSpec(
        "stacked_bars", x="block", y=tuple(_PART_COLUMNS.values()), title="Device time of each block of experts"
    ),
)
def expert_blocks(frames: StepView) -> pl.LazyFrame:
    """One row a block, in the order in which they first ran, last what belongs to none."""
    work = frames.once(_expert_work)
    of_part = {
        name: pl.col("work_ns").filter(pl.col("part") == str(part)).sum() for part, name in _PART_COLUMNS.items()
    }
    return (
        work.lazy()
        .group_by(*frames.by, "block")
        .agg(pl.col("start_ns").min(), pl.col("work_ns").sum().alias("duration_ns"), **of_part)
        .sort(*frames.by, pl.col("block").is_null(), "start_ns", "block")
        .drop("start_ns")
    )


def _expert_work(frames: StepView) -> pl.DataFrame:
    """The work of the steps chosen that is the experts', with part and block."""
    parts = expert_parts(frames.of_trace).with_columns(pl.col("part").cast(PARTS))
    return frames.once(step_work).join(parts, on="span_id", how="inner", maintain_order="left")
