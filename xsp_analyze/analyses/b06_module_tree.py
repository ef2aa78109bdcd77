"""B06: host and device time of every module, inclusive and its own, forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.frames.kernels.activities import share_among_layers
from xsp_analyze.frames.kernels.kernel_means import step_work
from xsp_analyze.frames.layers.modules import ModuleTree, module_work
from xsp_analyze.needs import holds
from xsp_model import Phase

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["module_tree"]

_MODULE = ("module_path", "module_instance", "module_type")
_ROW = (*_MODULE, "phase")
_HOST = ("count", "host_ns", "self_host_ns")
_DEVICE = ("device_sum_ns", "self_device_sum_ns", "activity_count", "self_activity_count")
_PHASES = [str(p) for p in (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD)]


@analysis(
    "B06",
    "module tree",
    needs=("module",),
    about_layers=True,
    additive=("self_host_ns", "self_device_sum_ns", "self_activity_count"),
    section="modules",
    read=(
        "Open the module with the largest device sum, and go down while one child holds most of it; what is left "
        "is its own work."
    ),
    columns=(
        STEP,
        Column("module_instance", pl.String(), "The module, as the profiler names it: `Linear_3`.", role=Role.KEY),
        Column("module_path", pl.String(), "Instances from the outermost down to it, joined by dots.", role=Role.KEY),
        Column("module_type", pl.String(), "Its class: `Linear`.", role=Role.KEY),
        Column("phase", pl.String(), "forward or recompute: in its own calls; backward: undoing them.", role=Role.KEY),
        Column("depth", pl.Int64(), "How many modules it ran in.", role=Role.LABEL),
        Column("count", AMOUNT, "Its calls; for backward, the calls whose backward work was found."),
        Column(
            "host_ns",
            TIME_NS,
            "Duration of its calls on the host; null for backward, and where one was not timed.",
            "ns",
        ),
        Column("self_host_ns", TIME_NS, "Of that, outside the modules called in it.", "ns"),
        Column(
            "device_sum_ns",
            TIME_NS,
            "Sum of the device work of it and the modules in it; null: none recorded.",
            "ns",
        ),
        Column(
            "self_device_sum_ns",
            TIME_NS,
            "Of that, its own as a layer: outside the modules called in it, and no replay of unknown layers.",
            "ns",
        ),
        Column("activity_count", AMOUNT, "Device activities that device_sum_ns sums."),
        Column("self_activity_count", AMOUNT, "Device activities that self_device_sum_ns sums."),
    ),
    figure=FigureSpec(
        "icicle", x="module_path", y=("device_sum_ns",), title="Device time by module", color="module_type"
    ),
)
def module_tree(frames: StepView) -> pl.LazyFrame:
    """One row a path of modules and phase, in order of first call, then forward, recompute, backward.

    An instance called within itself counts once, on its outermost path. Of a profile, calls and host time are those
    of the layers run (where it has modules), device work that of the kernels run. Where none was recorded, on a CPU,
    it is unknown. Where modules are the layers, what a module has of its own over all phases is what A11 gives it.
    """
    tree = ModuleTree(frames.of_trace)
    work = _device(frames, tree)
    order = tree.calls.group_by(_MODULE).agg(pl.col("span_id", "depth").min())
    keys = [*frames.by, *_ROW]
    phase = pl.col("phase").replace_strict(_PHASES, range(len(_PHASES)), return_dtype=pl.Int8)
    return (
        pl.concat([_host(frames, tree), _backward_calls(frames, work)], how="diagonal_relaxed")
        .lazy()
        .join(_summed(frames, work).lazy(), on=keys, how="full", coalesce=True, nulls_equal=True)
        .with_columns(pl.col("count", *(_DEVICE if holds(frames.of_trace, "kernel") else ())).fill_null(0))
        .join(order.lazy(), on=_MODULE, how="left", nulls_equal=True)
        .sort(*frames.by, "span_id", *_MODULE, phase)
    )


def _host(frames: StepView, tree: ModuleTree) -> pl.DataFrame:
    outermost = pl.col("duration_ns").filter(~pl.col("again"))
    calls = frames.of_trace.layer_runs.of(tree.calls)
    calls = frames.of_trace.kernel_runs.of(tree.calls) if calls.is_empty() else calls
    per_step = calls.group_by("run_id", "step", *_ROW, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("count"),
        _known_sum(outermost).alias("host_ns"),
        _known_sum(pl.col("self_ns")).alias("self_host_ns"),
    )
    return frames.combine(per_step, _ROW, _HOST)


def _known_sum(time: pl.Expr) -> pl.Expr:
    """Null if any is: with a call that was not timed, such as of a module compiled away, the sum is unknown."""
    return pl.when(time.null_count() == 0).then(time.sum())


def _device(frames: StepView, tree: ModuleTree) -> pl.DataFrame:
    """One row a call, phase, run and step, with the module's names."""
    shared = share_among_layers(frames.trace, frames.once(step_work), time="work_ns", count="work_count")
    work = module_work(tree, shared)
    return work.join(tree.calls.select("call", *_MODULE), on="call", how="left", maintain_order="left")


def _backward_calls(frames: StepView, work: pl.DataFrame) -> pl.DataFrame:
    per_step = (
        work.filter(pl.col("phase") == str(Phase.BACKWARD))
        .group_by("run_id", "step", *_ROW, maintain_order=True)
        .agg(pl.col("call").n_unique().cast(pl.Int64).alias("count"))
    )
    return frames.combine(per_step, _ROW, ["count"])


def _summed(frames: StepView, work: pl.DataFrame) -> pl.DataFrame:
    """The work of each row; of a mean step it is that of a step already."""
    return work.group_by(*frames.by, *_ROW, maintain_order=True).agg(pl.col(_DEVICE).sum())
