"""Calls of modules and the device work inside them, each call with the calls around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_model import Kind, Phase
from xsp_model.tree import ancestors, innermost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.arrays import Bools, Ints

__all__ = ["ModuleTree"]


class ModuleTree:
    """The module calls of a trace (of a profile at its batch size), numbered from 0 in order of start.

    `calls` has a row a call: span_id, run_id, step, phase (recompute or forward), names, duration_ns, self_ns (outside
    the calls inside it; both null where it was not timed: compiled away), depth (0: outermost), again (whether it ran
    inside a call of the same instance).
    `outer[i]` is the call that call i ran in, or -1; `owner[span]` the innermost call around a span, or -1.
    """

    def __init__(self, view: TraceView) -> None:
        trace = view.trace
        spans = trace.scan("spans").select("span_id", "parent_id", "run_id", "step", "phase", "duration_ns", "kind")
        modules = view.own_runs.of(spans.filter(pl.col("kind") == str(Kind.MODULE)).collect())
        parent = trace.scan("spans").select("parent_id").collect()["parent_id"].fill_null(-1).to_numpy()
        self.owner = _owners(parent, modules["span_id"].to_numpy())
        outside = modules["parent_id"].fill_null(-1).to_numpy()
        self.outer: Ints = np.where(outside >= 0, self.owner[outside], -1)
        self.calls = self._with_layers(trace, modules)
        self._instance = self.calls["module_instance"].rank("dense").cast(pl.Int64).to_numpy()
        depth, again = self._depths()
        self.calls = self.calls.with_columns(pl.Series("depth", depth), pl.Series("again", again))

    @staticmethod
    def _with_layers(trace: Trace, modules: pl.DataFrame) -> pl.DataFrame:
        text = (pl.col(c).cast(pl.String) for c in ("layer_name", "layer_type", "path"))
        layers = trace.scan("layers").select("span_id", "self_host_ns", *text).collect()
        return (
            modules.join(layers, on="span_id", how="left", maintain_order="left")
            .select(
                "span_id",
                "run_id",
                "step",
                inside_phase(pl.col("phase")),
                pl.col("layer_name").alias("module_instance"),
                pl.col("layer_type").alias("module_type"),
                pl.coalesce("path", "layer_name").alias("module_path"),
                "duration_ns",
                pl.when(pl.col("duration_ns").is_not_null()).then("self_host_ns").alias("self_ns"),
            )
            .with_row_index("call")
            .with_columns(pl.col("call").cast(pl.Int64))
        )

    def _depths(self) -> tuple[Ints, Bools]:
        depth, again = np.zeros(len(self.outer), dtype=np.int64), np.zeros(len(self.outer), dtype=np.bool_)
        for up in ancestors(self.outer):
            depth += up >= 0
            again |= (up >= 0) & (self._instance[up] == self._instance)
        return depth, again

    def around(self, call: Ints) -> Iterator[Ints]:
        """The calls themselves, then the calls around them, ... -1 where there is none any more."""
        while (call >= 0).any():
            yield call
            call = np.where(call >= 0, self.outer[call], -1)

    def ran_in_instance(self, inside: Ints, call: Ints) -> Bools:
        """For each pair whether `inside` is, or ran in, a call of the instance that `call` is one of."""
        ran = np.zeros(len(call), dtype=np.bool_)
        for up in self.around(inside):
            ran |= (up >= 0) & (self._instance[up] == self._instance[call])
        return ran


def inside_phase(phase: pl.Expr) -> pl.Expr:
    """The phase of what runs inside a module's own call: recompute where it is that, else forward."""
    again = phase.cast(pl.String) == str(Phase.RECOMPUTE)
    phases = pl.lit(str(Phase.RECOMPUTE)), pl.lit(str(Phase.FORWARD))
    return pl.when(again).then(phases[0]).otherwise(phases[1]).alias("phase")


def _owners(parent: Ints, modules: Ints) -> Ints:
    """For each span the number of the innermost module call around it (itself included), or -1."""
    is_module = np.zeros(len(parent), dtype=np.bool_)
    is_module[modules] = True
    number = np.full(len(parent) + 1, -1, dtype=np.int64)
    number[modules] = np.arange(len(modules))
    return number[innermost(parent, is_module)]
