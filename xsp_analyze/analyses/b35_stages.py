"""B35: pre-processing, inference and post-processing beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_analyze.classification.experts import Stage
from xsp_analyze.columns import RUN
from xsp_analyze.core import Column, FigureSpec, Role, analysis
from xsp_analyze.frames.host_ranges import RunStages, stages_of_runs
from xsp_model.intervals import intersection, union_length

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.step_view import StepView

__all__ = ["NO_STAGE", "SEVERAL_STAGES", "UNKNOWN_LAUNCH", "stages"]

SEVERAL_STAGES = "several at once"
NO_STAGE = "outside of stages"
UNKNOWN_LAUNCH = "launch not recorded"
_MAX_NAMES = 5
_NUMBER = r"[ :#_-]*\d+$"  # of a batch or step


@analysis(
    "B35",
    "stages of a prediction",
    needs=("stages",),
    read=(
        "A model that is fast leaves the time to what is around it: compare inference with what is done before and"
        " behind it, and look at the time in which no stage was open."
    ),
    additive=("exclusive_ns", "share", "device_sum_ns", "device_share"),
    section="stages",
    by_step=False,
    columns=(
        RUN,
        Column("stage", pl.String(), "pre-process, inference, post-process, or what is none of these.", role=Role.KEY),
        Column("range_names", pl.String(), "Ranges that it was told by, most time first.", role=Role.LABEL),
        Column("range_count", pl.Int64(), "How many ranges; null: no range marks it."),
        Column("host_sum_ns", pl.Int64(), "Sum of their durations, those in them included.", "ns"),
        Column("mean_ns", pl.Float64(), "Mean duration of a range.", "ns"),
        Column("max_ns", pl.Int64(), "The longest.", "ns"),
        Column(
            "wall_ns",
            pl.Int64(),
            "Time in which at least one of them was open; on one thread a stage inside of another takes its time.",
            "ns",
        ),
        Column("exclusive_ns", pl.Int64(), "Of that, while no other stage was open on any thread.", "ns"),
        Column("share", pl.Float64(), "exclusive_ns over the time from the first stage's begin to the last one's end."),
        Column("device_count", pl.Int64(), "Device activities launched in it."),
        Column("device_sum_ns", pl.Int64(), "Sum of their durations.", "ns"),
        Column("device_busy_ns", pl.Int64(), "Time in which at least one of them ran, whenever that was.", "ns"),
        Column("device_share", pl.Float64(), "device_sum_ns over that of all device work of the run."),
    ),
    figure=FigureSpec("bars", x="stage", y=("exclusive_ns", "device_sum_ns"), title="Stages of a prediction"),
)
def stages(frames: StepView) -> pl.LazyFrame:
    """One row a stage of each run in their order, then overlap, time outside of them, and work of unknown launches."""
    runs = frames.of_trace.once(stages_of_runs)
    rows = [{"run_id": run.run_id, **row} for run in runs for row in _rows(run)]
    schema = {c.name: c.type_of(averaged=False) for c in stages.columns}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return (table if len(runs) > 1 else table.drop("run_id")).lazy()


def _rows(run: RunStages) -> Iterator[dict[str, Any]]:
    begin, until = run.window
    several = union_length(*run.several)
    every = union_length(
        np.concatenate([start for start, _ in run.unions.values()]),
        np.concatenate([end for _, end in run.unions.values()]),
    )
    for stage in Stage:
        ranges = run.ranges.filter(stage=str(stage))
        if ranges.height:
            union = run.unions[stage]
            wall, shared = union_length(*union), union_length(*intersection(union, run.several))
            yield _row(run, str(stage), wall - shared) | _of_ranges(ranges) | {"wall_ns": wall}
    if several:
        yield _row(run, SEVERAL_STAGES, several) | {"wall_ns": several}
    yield _row(run, NO_STAGE, until - begin - every) | {"wall_ns": until - begin - every}
    if not run.work["has_launch"].all():
        yield _row(run, UNKNOWN_LAUNCH, None)


def _row(run: RunStages, stage: str, exclusive_ns: int | None) -> dict[str, Any]:
    begin, until = run.window
    share = exclusive_ns / (until - begin) if exclusive_ns is not None and until > begin else None
    return {"stage": stage, "exclusive_ns": exclusive_ns, "share": share, **_of_device(run, stage)}


def _of_ranges(ranges: pl.DataFrame) -> dict[str, Any]:
    duration = ranges["duration_ns"]
    name = pl.col("name").str.replace(_NUMBER, "")
    by_name = ranges.group_by(name).agg(pl.col("duration_ns").sum())
    by_name = by_name.sort("duration_ns", "name", descending=[True, False])
    names = by_name["name"].to_list()
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return {
        "range_names": ", ".join(names[:_MAX_NAMES]) + more,
        "range_count": ranges.height,
        "host_sum_ns": duration.sum(),
        "mean_ns": duration.mean(),
        "max_ns": duration.max(),
    }


def _of_device(run: RunStages, stage: str) -> dict[str, Any]:
    """What was launched in the stage; null where that cannot be: of overlaps, and where no device work was recorded."""
    if run.work.is_empty() or stage == SEVERAL_STAGES:
        return {}
    is_launched = pl.col("has_launch")
    where = {
        NO_STAGE: pl.col("stage").is_null() & is_launched,
        UNKNOWN_LAUNCH: pl.col("stage").is_null() & ~is_launched,
    }.get(stage, pl.col("stage") == stage)
    work = run.work.filter(where)
    total, own = int(run.work["duration_ns"].sum()), int(work["duration_ns"].sum())
    end = work["start_ns"] + work["duration_ns"]
    return {
        "device_count": work.height,
        "device_sum_ns": own,
        "device_busy_ns": union_length(work["start_ns"].to_numpy(), end.to_numpy()),
        "device_share": own / total if total else None,
    }
