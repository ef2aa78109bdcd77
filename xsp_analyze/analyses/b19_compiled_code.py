"""B19: kernels of compiled code, with the operators, source lines and layers that each stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import STEP
from xsp_analyze.core import AMOUNT, TIME_NS, Column, FigureSpec, Role, analysis
from xsp_analyze.frames.kernels.graphs import KERNEL_FACTS, KERNEL_KEY, KERNEL_MEASURES, compiled_kernels

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["kernels_of_compiled_code"]


@analysis(
    "B19",
    "compiled kernels",
    needs=("compiled code",),
    about_layers=True,
    additive=KERNEL_MEASURES,
    read=(
        "A kernel stands for all operators in its row. Without layers, give what the compiler recorded beside the "
        "trace: compiled_code.json of our runner."
    ),
    columns=(
        STEP,
        Column("region", pl.Int64(), "The compiled graph, in order of first call; null: in none.", role=Role.KEY),
        Column("region_call", pl.Int64(), "Which of its calls in the step, from 0.", role=Role.KEY),
        Column("position", pl.Int64(), "Which kernel of that call, from 0.", role=Role.KEY),
        Column("region_hash", pl.String(), "The graph's hash, as in the trace.", role=Role.LABEL),
        Column("direction", pl.String(), "forward or backward; null: not known.", role=Role.LABEL),
        Column("kernel_name", pl.String(), "The generated function, or a library's that is called.", role=Role.LABEL),
        Column("operators", pl.String(), "The operators that it stands for.", role=Role.LABEL),
        Column("sources", pl.String(), "Lines of the model that they came from; null: not known.", role=Role.LABEL),
        Column("layers", pl.String(), "Its layers, each with its part where several share it.", role=Role.LABEL),
        Column("call_count", AMOUNT, "Calls; in a mean step, per step on average."),
        Column("host_ns", TIME_NS, "Time of the call on the host; null: it is known on the device alone.", "ns"),
        Column("device_sum_ns", TIME_NS, "Time of the device work launched in it; null: there is no device.", "ns"),
    ),
    figure=FigureSpec("bars", x="kernel_name", y=("host_ns",), title="Time by compiled kernel", top=20),
)
def kernels_of_compiled_code(frames: StepView) -> pl.LazyFrame:
    """One row a kernel in a call of a compiled graph, in the order in which they run."""
    rows = compiled_kernels(frames.of_trace)
    facts = rows.group_by(KERNEL_KEY, maintain_order=True).agg(pl.col(KERNEL_FACTS).drop_nulls().first())
    return (
        frames.combine(rows, KERNEL_KEY, KERNEL_MEASURES)
        .join(facts, on=KERNEL_KEY, how="left", maintain_order="left", nulls_equal=True)
        .sort(*frames.by, *KERNEL_KEY, nulls_last=True)
        .lazy()
    )
