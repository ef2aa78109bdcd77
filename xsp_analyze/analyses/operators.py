"""What the framework called: libraries (B05), the tree of modules (B06), operators by shape (B23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import ABOVE_ROOF, STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.frames.host_calls import OVERHEADS
from xsp_analyze.frames.kernels.activities import every_span, share_among_layers
from xsp_analyze.frames.kernels.kernel_means import step_work
from xsp_analyze.frames.layers.modules import ModuleTree, module_work
from xsp_analyze.frames.operators.operator_work import BY_SHAPE, operator_work, rates_and_roof
from xsp_analyze.needs import holds
from xsp_model import Level, Phase
from xsp_model.columns.tree import innermost

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_model.columns.arrays import Ints

__all__ = ["library_calls", "module_tree", "operators_by_shape"]

# B05: the calls of libraries (cuDNN, cuBLAS, NCCL, ...) between layers and the runtime, and the work they launched.

_CALL_KEYS = ("library", "call_name")
_CALL_TIMES = ("count", "host_ns", "self_host_ns")
_CALL_WORK = ("device_sum_ns", "activity_count")
# Where no NVTX domain says whose call it is, its own name does.
_BY_NAME = (
    (OVERHEADS, "CUPTI"),
    (r"(?i)^cudnn", "cuDNN"),
    (r"(?i)^cublas", "cuBLAS"),
    (r"(?i)^cusparse", "cuSPARSE"),
    (r"(?i)^cufft", "cuFFT"),
    (r"(?i)^cusolver", "cuSOLVER"),
    (r"(?i)^nccl", "NCCL"),
    (r"(?i)^rccl", "RCCL"),
    (r"(?i)^(gloo|ucc):", "Gloo or UCC"),
    (r"(?i)^p?mpi[_:]", "MPI"),
    (r"^uc[pst]_", "UCX"),
    (r"^OpenMP:", "OpenMP"),
    (r"^OpenACC:", "OpenACC"),
    (r"(?i)^miopen", "MIOpen"),
    (r"(?i)^(roc|hip)blas", "rocBLAS"),
    (r"^I?(Builder|Runtime|CudaEngine|ExecutionContext|Refitter|Network\w*)::", "TensorRT"),
)


@analysis(
    "B05",
    "library calls",
    needs=("library",),
    about_layers=True,
    additive=("count", "self_host_ns", "device_sum_ns", "activity_count"),
    read=(
        "Device time stands with the innermost library call around its launch: a row with much host time and little "
        "device time is a library that keeps the host busy."
    ),
    columns=(
        STEP,
        Column(
            "library", pl.String(), "Whose call it is: its NVTX domain, or by its name; null: unknown.", role=Role.KEY
        ),
        Column("call_name", pl.String(), "The call, or the range around it.", role=Role.KEY),
        Column("count", AMOUNT, "Calls; in a mean step, per step on average."),
        Column("host_ns", TIME_NS, "Duration of the calls on the host, calls inside them included.", "ns"),
        Column("self_host_ns", TIME_NS, "Of that, outside the library calls inside them.", "ns"),
        Column("device_sum_ns", TIME_NS, "Sum of the device work that they launched themselves.", "ns"),
        Column("activity_count", AMOUNT, "Device activities that it sums."),
    ),
    figure=FigureSpec("bars", x="call_name", y=("device_sum_ns",), title="Device time by library call", top=20),
)
def library_calls(frames: StepView) -> pl.LazyFrame:
    """One row a library and call, by device time, then host time, longest first, then by name."""
    calls, work = _calls(frames), _work(frames)
    keys = [*frames.by, *_CALL_KEYS]
    return (
        frames.combine(_per_step(calls, _CALL_TIMES), _CALL_KEYS, _CALL_TIMES)
        .lazy()
        .join(work.lazy(), on=keys, how="full", coalesce=True, nulls_equal=True)
        .with_columns(pl.col(*_CALL_TIMES, *_CALL_WORK).fill_null(0))
        .sort(*frames.by, -pl.col("device_sum_ns"), -pl.col("host_ns"), *_CALL_KEYS, nulls_last=True)
    )


def _per_step(rows: pl.DataFrame, measures: tuple[str, ...]) -> pl.DataFrame:
    return rows.group_by("run_id", "step", *_CALL_KEYS, maintain_order=True).agg(pl.col(measures).sum())


def _enclosing(frames: StepView) -> Ints:
    """For each span its nearest library call, itself if it is one, or -1."""
    spans = every_span(frames.trace, "parent_id", pl.col("level") == str(Level.LIBRARY))
    parents = spans["parent_id"].fill_null(-1).to_numpy()
    return innermost(parents, spans["level"].to_numpy())


def _with_library(frames: StepView) -> pl.LazyFrame:
    """Every library call: span_id, run, step, parent and duration, library and call_name."""
    name = pl.col("name").cast(pl.String)
    library = pl.col("domain").cast(pl.String)
    for pattern, whose in _BY_NAME:
        library = pl.coalesce(library, pl.when(name.str.contains(pattern)).then(pl.lit(whose)))
    domains = frames.trace.scan("ranges").select("span_id", "domain")
    return (
        frames.of_trace.own_runs.scan("spans")
        .filter(pl.col("level") == str(Level.LIBRARY))
        .select("span_id", "parent_id", "run_id", "step", "name", pl.col("duration_ns").fill_null(0))
        .join(domains, on="span_id", how="left", maintain_order="left")
        .with_columns(library.alias("library"), name.alias("call_name"))
    )


def _calls(frames: StepView) -> pl.DataFrame:
    """One row a library call of the runs that kernels are taken from, or else of those that layers are."""
    calls = _with_library(frames).collect()
    outer = _enclosing_parents(frames, calls)
    inside = calls.select(pl.Series("span_id", outer), "duration_ns").filter(pl.col("span_id") >= 0)
    children = inside.group_by("span_id").agg(pl.col("duration_ns").sum().alias("children_ns"))
    one = pl.lit(1, pl.Int64).alias("count")
    own = (pl.col("duration_ns") - pl.col("children_ns").fill_null(0)).alias("self_host_ns")
    nested = calls.join(children, on="span_id", how="left", maintain_order="left").with_columns(
        one, own, pl.col("duration_ns").alias("host_ns")
    )
    kernels_run = frames.of_trace.kernel_runs.of(nested)
    return frames.of_trace.layer_runs.of(nested) if kernels_run.is_empty() else kernels_run


def _enclosing_parents(frames: StepView, calls: pl.DataFrame) -> Ints:
    """For each call the library call that it ran in, or -1."""
    enclosing = pl.Series(_enclosing(frames))
    return enclosing.gather(calls["parent_id"]).fill_null(-1).to_numpy()


def _work(frames: StepView) -> pl.DataFrame:
    """The device work that each call launched."""
    calls = pl.Series("call_id", _enclosing(frames)).gather(frames.once(step_work)["origin_id"])
    names = _with_library(frames).select(pl.col("span_id").alias("call_id"), *_CALL_KEYS).collect()
    return (
        frames.once(step_work)
        .select(*frames.by, pl.col("work_ns").alias("device_sum_ns"), pl.col("work_count").alias("activity_count"))
        .with_columns(calls)
        .join(names, on="call_id", how="inner", maintain_order="left")
        .group_by(*frames.by, *_CALL_KEYS, maintain_order=True)
        .agg(pl.col(_CALL_WORK).sum())
    )


# B06: host and device time of every module, inclusive and its own, forward and backward.

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
        .join(_sums_by_module(frames, work).lazy(), on=keys, how="full", coalesce=True, nulls_equal=True)
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


def _sums_by_module(frames: StepView, work: pl.DataFrame) -> pl.DataFrame:
    """The work of each row; of a mean step it is that of a step already."""
    return work.group_by(*frames.by, *_ROW, maintain_order=True).agg(pl.col(_DEVICE).sum())


# B23: operators by the shapes and types of what they take, by the time that is to be gained.

_PARAMETERS_OF_A_COLLECTIVE = "record_param_comms"  # PyTorch's record of a collective: no operator that one could tune


@analysis(
    "B23",
    "operators by shape",
    needs=("operators", "kernel"),
    section="gain",
    key=("operator", "shapes", "dtypes"),
    additive=(
        "count",
        "modelled_count",
        "device_sum_ns",
        "modelled_flop",
        "vector_flop",
        "modelled_bytes",
        "roof_ns",
        "gain_ns",
    ),
    read=(
        "A work list: its first row has most time to gain, were it to run at the roof of its device. "
        "Look at its bound: memory asks for fusion or smaller types, compute for better kernels or narrower precisions."
    ),
    columns=(
        STEP,
        Column(
            "operator", pl.String(), "The outermost operator whose work is modelled, or the outermost.", role=Role.KEY
        ),
        Column("shapes", pl.String(), "Sizes of the tensors it takes; null: not recorded.", role=Role.KEY),
        Column("device_sum_ns", TIME_NS, "Device time of all its calls.", "ns"),
        Column(
            "gain_ns",
            pl.Float64(),
            "Device time less the least: what would be gained at the roof; null above it, and of collectives, which "
            "wait for other ranks.",
            "ns",
        ),
        Column(
            "roof_share",
            pl.Float64(),
            "Least over device time; above 1 above_roof says why. Null too where the calls took less than is possible.",
        ),
        ABOVE_ROOF,
        Column("bound", pl.String(), "The nearest roof: compute, memory or link.", role=Role.LABEL),
        Column("count", AMOUNT, "Its calls; in a mean step, per step on average."),
        Column("modelled_count", AMOUNT, "Of these, the ones whose work is modelled."),
        Column("dtypes", pl.String(), "Their type, or that of each where they differ.", role=Role.LABEL),
        Column("operator_class", pl.String(), "What it does, by its model; null: it has none.", role=Role.LABEL),
        Column("roof_ns", pl.Float64(), "Least time of its calls: at the nearest of the device's roofs.", "ns"),
        Column("precision", pl.String(), "What its products run in; else the type of what it takes.", role=Role.LABEL),
        Column("modelled_flop", pl.Float64(), "Two for each multiply-add of products; null: not modelled.", "flop"),
        Column("vector_flop", pl.Float64(), "Arithmetic outside of products; null: not modelled.", "flop"),
        Column("modelled_bytes", pl.Float64(), "Inputs read and outputs written once; null: not modelled.", "byte"),
        Column("modelled_intensity", pl.Float64(), "Modelled flop per modelled byte.", "flop/byte"),
        Column("modelled_flop_per_s", pl.Float64(), "Modelled flop over the device time of modelled calls.", "flop/s"),
        Column("modelled_byte_per_s", pl.Float64(), "Modelled bytes over that time.", "byte/s"),
        Column("layers", pl.String(), "The layers that most of its calls ran in.", role=Role.LABEL),
        Column(
            "source_lines",
            pl.String(),
            "The lines of Python that most of its calls came from; null: not recorded.",
            role=Role.LABEL,
        ),
    ),
    figure=FigureSpec(
        "roofline",
        x="modelled_intensity",
        y=("modelled_flop_per_s",),
        title="Operators under the roof",
        color="precision",
    ),
)
def operators_by_shape(frames: StepView) -> pl.LazyFrame:
    """One row an operator with device work and the shapes and types it takes, by time to gain, then device time."""
    return (
        operator_work(frames, BY_SHAPE, on_device=True)
        .lazy()
        .filter(pl.col("device_sum_ns") > 0, pl.col("operator") != _PARAMETERS_OF_A_COLLECTIVE)
        .with_columns(rates_and_roof())
        .sort(*frames.by, -pl.col("gain_ns"), -pl.col("device_sum_ns"), "operator", *BY_SHAPE[1:], nulls_last=True)
    )
