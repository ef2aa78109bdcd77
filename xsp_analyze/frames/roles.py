"""Which run of a profile each number is taken from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_model import GRAPH_CAPTURE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_model import Trace

__all__ = ["EAGER_KERNELS", "OTHER_BATCH", "Roles", "roles_of"]

OTHER_BATCH = "model, other batch size"
"""The role of runs without a profiler whose batch size is not the profile's: they tell of throughput alone."""

EAGER_KERNELS = "kernels, eager"
"""The role of a run without graphs beside one that replays them: it has the layers, and no device time is its."""

_ORDER = {
    "model": ("model", "layers", "kernels"),
    "layers": ("layers", "kernels, serialised", "kernels"),
    "kernels": ("kernels",),
    "serialised_kernels": ("kernels, serialised", "kernels"),
    "profiled_layers": ("layers", "kernels, serialised", "kernels"),
}
_ORDER_OF_REPLAYS = {**_ORDER, "model": ("model", "kernels"), "profiled_layers": ("kernels",)}
"""Beside replays other runs know layers, but how long a step took in them is no step of the replays'."""

_NOT_GIVEN = ("serialised_kernels", "profiled_layers")  # stand beside what a number is taken from


@dataclass(frozen=True, slots=True)
class Roles:
    """Runs by what is taken from them; in a plain trace every run gives everything, and `leveled` is false.

    `swept` are runs of the model alone at other batch sizes, which only throughput over batch size is taken from;
    `profiled_layers` are those whose steps show what profiling layers costs.
    """

    leveled: bool
    model: Sequence[int]
    layers: Sequence[int]
    kernels: Sequence[int]
    serialised_kernels: Sequence[int]
    profiled_layers: Sequence[int]
    sources: Mapping[str, str]
    swept: Sequence[int] = ()

    @property
    def selective(self) -> bool:
        """Whether there are runs that give nothing: those of other levels, or captures of graphs."""
        return self.leveled or "graph_captures" in self.sources

    @property
    def layers_are_replayed(self) -> bool:
        """Whether layers take what their replayed work takes: no other run was made to time their calls."""
        return set(self.layers) <= set(self.kernels)

    @staticmethod
    def of(frame: pl.DataFrame, runs: Sequence[int]) -> pl.DataFrame:
        """The rows that belong to these runs; the frame itself where all do, as it may hold millions."""
        inside = frame["run_id"].is_in(list(runs))
        return frame if inside.all() else frame.filter(inside)


def roles_of(trace: Trace) -> Roles:
    """The roles of a trace's runs; where a level was not run, the next deeper one stands in for it."""
    runs = trace.frame("runs").select("run_id", "role", "source_path")
    captured = pl.col("role") == GRAPH_CAPTURE
    captures = runs.filter(captured)["source_path"].drop_nulls().to_list()
    runs = runs.filter(~captured.fill_null(value=False))
    swept = runs.filter(pl.col("role") == OTHER_BATCH)["run_id"].to_list()
    runs = runs.filter(~pl.col("run_id").is_in(swept))
    leveled = runs.filter(pl.col("role").is_not_null(), pl.col("role") != "counters")
    if leveled["role"].n_unique() <= 1:
        every = runs.filter(pl.col("role").is_null() | (pl.col("role") != "counters"))["run_id"].to_list()
        sources = {"graph_captures": ", ".join(captures)} if captures else {}
        return Roles(False, every, every, every, every, every, sources, swept)  # noqa: FBT003 (not leveled)
    taken: dict[str, list[int]] = {}
    sources = {}
    has_replays = (leveled["role"] == EAGER_KERNELS).any()
    for what, roles in (_ORDER_OF_REPLAYS if has_replays else _ORDER).items():
        role = next((r for r in roles if (leveled["role"] == r).any()), None)
        chosen = leveled.filter(pl.col("role") == (role or ""))
        taken[what] = chosen["run_id"].to_list()
        if role is not None:
            files = ", ".join(chosen["source_path"].drop_nulls())
            sources[what] = files if role == what else f"{files} (the {role} run stands in)"
    for what in _NOT_GIVEN:
        sources.pop(what, None)
    counters = runs.filter(pl.col("role") == "counters")["source_path"].drop_nulls().to_list()
    if counters:
        sources["counters"] = ", ".join(_counted(name, counters.count(name)) for name in dict.fromkeys(counters))
    if captures:
        sources["graph_captures"] = ", ".join(captures)
    return Roles(True, **taken, sources=sources, swept=swept)  # noqa: FBT003


def _counted(name: str, times: int) -> str:
    return name if times == 1 else f"{name} ({times} runs)"
