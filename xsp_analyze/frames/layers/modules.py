"""Calls of modules as a tree, and the device work of each: inside its calls, and elsewhere by its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.formulas import known_sum
from xsp_model import Attribution, Kind, Phase
from xsp_model.columns.tree import ancestors, innermost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.trace_view import TraceView
    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints

__all__ = ["ModuleTree", "module_rows", "module_work"]

# Calls of modules and the device work inside them, each call with the calls around it.


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


# Device work of modules: inside their own calls, and elsewhere by the layer it belongs to.

_CELL = ("run_id", "step", "phase", "inside", "layer_call", "unplaced")
_BACKWARD = str(Phase.BACKWARD)
_UNDOING = (
    _BACKWARD,
    str(Phase.OPTIMIZER),
)  # of what is in a module's layer but not in its call: also steps taken there


def module_work(tree: ModuleTree, activities: pl.DataFrame) -> pl.DataFrame:
    """One row a call, phase, run and step: device_sum_ns and activity_count, inclusive and self_*.

    `activities` have `work_ns` and `work_count`, what each of them counts for. Work launched inside a module's call
    counts for it and every call around it. Work of a layer elsewhere (backward work, and replays of what was captured
    there) counts for the call it is of and every call around that, except for instances inside whose own calls it was
    launched, where it is counted already. It is a call's own (self_*) as it is a layer's: replays of which no layer is
    known, and backward work without one, are nobody's own.
    """
    cells = _cells(tree, activities)
    inside, layer_call = cells["inside"].to_numpy(), cells["layer_call"].to_numpy()
    elsewhere = (layer_call >= 0) & ~tree.ran_in_instance(inside, layer_call)
    is_own = ~elsewhere & ~cells["unplaced"].to_numpy()
    there = pl.when(pl.col("phase").is_in(_UNDOING)).then(pl.lit(_BACKWARD)).otherwise(inside_phase(pl.col("phase")))
    parts = (
        *_spread(tree, cells.with_columns(inside_phase(pl.col("phase"))), inside, inside < 0, is_own),
        *_spread(
            tree, cells.with_columns(there.alias("phase")), np.where(elsewhere, layer_call, -1), elsewhere, elsewhere
        ),
    )
    return pl.concat(parts).group_by("run_id", "step", "phase", "call", maintain_order=True).agg(pl.all().sum())


def _cells(tree: ModuleTree, activities: pl.DataFrame) -> pl.DataFrame:
    """The work summed by the call it was launched `inside` and the call its layer is of (-1: none).

    `unplaced`: it would be of a layer, but nothing says of which.
    """
    layer = activities["layer_id"].fill_null(-1).to_numpy()
    replay = pl.col("attribution").cast(pl.String) == str(Attribution.GRAPH_REPLAY)
    lost = (pl.col("phase") == _BACKWARD) & (pl.Series("layer", layer) < 0)
    return (
        activities.select(
            "run_id",
            "step",
            pl.col("phase").cast(pl.String),
            "work_ns",
            "work_count",
            pl.Series("inside", tree.owner[activities["span_id"].to_numpy()]),
            pl.Series("layer_call", np.where(layer >= 0, tree.owner[layer], -1)),
            (replay | lost).fill_null(value=False).alias("unplaced"),
        )
        .group_by(_CELL, maintain_order=True)
        .agg(pl.col("work_ns", "work_count").sum())
    )


def _spread(tree: ModuleTree, cells: pl.DataFrame, call: Ints, besides: Bools, is_own: Bools) -> Iterator[pl.DataFrame]:
    """The cells' work on these calls (-1: none), as their own where it is, and on the calls around them.

    Of `besides` instances that the work ran inside of are left out.
    """
    again, inside = tree.calls["again"].to_numpy(), cells["inside"].to_numpy()
    yield _on(cells, call, is_own & (call >= 0), own=True)
    for around in tree.around(call):
        free = (around >= 0) & ~again[around]
        yield _on(cells, around, free & ~(besides & tree.ran_in_instance(inside, around)), own=False)


def _on(cells: pl.DataFrame, call: Ints, mask: Bools, *, own: bool) -> pl.DataFrame:
    """The wanted cells' work as the inclusive work, or the own work, of the calls."""
    zero = pl.col("work_ns", "work_count") * 0
    ours, theirs = ("self_", "") if own else ("", "self_")
    return (
        cells.with_columns(pl.Series("call", call))
        .filter(pl.Series(mask))
        .select(
            "run_id",
            "step",
            "phase",
            "call",
            pl.col("work_ns").alias(f"{ours}device_sum_ns"),
            pl.col("work_count").alias(f"{ours}activity_count"),
            zero.name.map(lambda name: theirs + _MEASURE[name]),
        )
        .select("run_id", "step", "phase", "call", *_MEASURES)
    )


_MEASURE = {"work_ns": "device_sum_ns", "work_count": "activity_count"}
_MEASURES = ("device_sum_ns", "activity_count", "self_device_sum_ns", "self_activity_count")


# One row a module: phases side by side, children under their parent.

_PHASES = ("forward", "recompute", "backward")


def module_rows(table: pl.DataFrame) -> pl.DataFrame:
    """Rows of B06 folded over phases, in depth-first order of first call.

    Columns: module, depth, count, device_sum_ns, self_device_sum_ns, forward_ns, recompute_ns, backward_ns, host_ns;
    a phase that occurs nowhere is null throughout, and so is device time where no device work was recorded.
    """
    folded = table.group_by("module_path", maintain_order=True).agg(
        pl.col("module_instance").first().alias("module"),
        pl.col("depth").first(),
        pl.col("count").filter(pl.col("phase") == "forward").sum(),
        known_sum(pl.col("device_sum_ns")),
        known_sum(pl.col("self_device_sum_ns")),
        *(_of_phase(phase) for phase in _PHASES),
        pl.col("host_ns").sum(),
    )
    return folded[_depth_first(folded["module_path"].to_list(), folded["module"].to_list())].drop("module_path")


def _of_phase(phase: str) -> pl.Expr:
    time = pl.col("device_sum_ns").filter(pl.col("phase") == phase)
    return known_sum(time).alias(f"{phase}_ns")


def _depth_first(paths: list[str], names: list[str]) -> list[int]:
    """The order in which each row is followed by those below it; a row whose parent is not there is a root."""
    at = {path: row for row, path in enumerate(paths)}
    below: dict[int, list[int]] = {}
    for row, (path, name) in enumerate(zip(paths, names, strict=True)):
        parent = at.get(path[: -len(name) - 1], -1) if len(path) > len(name) else -1
        below.setdefault(parent, []).append(row)
    order: list[int] = []
    stack = below.get(-1, [])[::-1]
    while stack:
        row = stack.pop()
        order.append(row)
        stack.extend(below.get(row, [])[::-1])
    return order
