"""How long each step of a serving engine took, and what its devices did in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.frames.device_time import device_time
from xsp_analyze.frames.serving_steps import with_state

if TYPE_CHECKING:
    from xsp_analyze.trace.step_view import StepView

__all__ = ["NS_PER_S", "serving_time"]

NS_PER_S = 1e9
_KEYS = ["run_id", "step"]


def serving_time(frames: StepView) -> pl.DataFrame:
    """One row a run and step chosen that an engine named, by run and begin, with what `serving_steps` has of it.

    Also state (see `with_state`), begin_ns, end_ns, duration_ns and basis (of `all_steps`), gap_ns (from its end to
    the begin of the next step of any phase, null for the last), output_token_ns, and of its devices window_ns, busy_ns
    and exposed_host_ns in sum, null where none worked in the trace.
    """
    every = frames.of_trace.all_steps.sort("run_id", "begin_ns", "step")
    gap = (pl.col("begin_ns").shift(-1).over("run_id") - pl.col("end_ns")).clip(lower_bound=0).alias("gap_ns")
    timed = every.select(*_KEYS, "begin_ns", "end_ns", "duration_ns", "basis", gap)
    named = timed.join(frames.of_trace.serving_steps, on=_KEYS, how="inner", maintain_order="left")
    chosen = frames.of_each_step.steps if frames.choice.number is None else frames.steps
    rows = with_state(named).join(chosen, on=_KEYS, how="semi", maintain_order="left")
    return rows.with_columns(_output_token_ns()).join(_of_devices(frames), on=_KEYS, how="left", maintain_order="left")


def _output_token_ns() -> pl.Expr:
    """A step is how long each request that decodes in it waits for a token; of several at once nobody said how many."""
    one_each = (pl.col("decode_tokens") == pl.col("decode_requests")) & (pl.col("decode_requests") > 0)
    return pl.when(one_each).then("duration_ns").alias("output_token_ns")


def _of_devices(frames: StepView) -> pl.DataFrame:
    parts = frames.of_each_step.once(device_time).parts
    exposed = (pl.col("idle_host_ns") + pl.col("idle_launch_ns")).sum().alias("exposed_host_ns")
    return parts.group_by(_KEYS).agg(pl.col("window_ns", "busy_ns").sum(), exposed)
