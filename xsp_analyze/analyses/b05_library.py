"""B05: the calls of libraries (cuDNN, cuBLAS, NCCL, ...) between layers and the runtime, and the work they launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.frames.kernels.activities import every_span
from xsp_analyze.frames.kernels.kernel_means import step_work
from xsp_model import Level
from xsp_model.tree import innermost

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView
    from xsp_model.arrays import Ints

__all__ = ["library_calls"]

_KEYS = ("library", "call_name")
_HOST = ("count", "host_ns", "self_host_ns")
_DEVICE = ("device_sum_ns", "activity_count")
# Where no NVTX domain says whose call it is, its own name does.
_BY_NAME = (
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
    keys = [*frames.by, *_KEYS]
    return (
        frames.combine(_per_step(calls, _HOST), _KEYS, _HOST)
        .lazy()
        .join(work.lazy(), on=keys, how="full", coalesce=True, nulls_equal=True)
        .with_columns(pl.col(*_HOST, *_DEVICE).fill_null(0))
        .sort(*frames.by, -pl.col("device_sum_ns"), -pl.col("host_ns"), *_KEYS, nulls_last=True)
    )


def _per_step(rows: pl.DataFrame, measures: tuple[str, ...]) -> pl.DataFrame:
    return rows.group_by("run_id", "step", *_KEYS, maintain_order=True).agg(pl.col(measures).sum())


def _enclosing(frames: StepView) -> Ints:
    """For each span its nearest library call, itself if it is one, or -1."""
    spans = every_span(frames.trace, "parent_id", pl.col("level") == str(Level.LIBRARY))
    parents = spans["parent_id"].fill_null(-1).to_numpy()
    return innermost(parents, spans["level"].to_numpy())


def _named(frames: StepView) -> pl.LazyFrame:
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
    calls = _named(frames).collect()
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
    names = _named(frames).select(pl.col("span_id").alias("call_id"), *_KEYS).collect()
    return (
        frames.once(step_work)
        .select(*frames.by, pl.col("work_ns").alias("device_sum_ns"), pl.col("work_count").alias("activity_count"))
        .with_columns(calls)
        .join(names, on="call_id", how="inner", maintain_order="left")
        .group_by(*frames.by, *_KEYS, maintain_order=True)
        .agg(pl.col(_DEVICE).sum())
    )
