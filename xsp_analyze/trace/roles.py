"""Which run of a profile each number is taken from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_model import GRAPH_CAPTURE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_model import Trace

__all__ = ["EAGER_KERNELS", "Roles", "in_other_batch", "roles_of"]

_OTHER_BATCH = ", other batch size"
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

    `profiled_layers` are those whose steps show what profiling layers costs; `other_batches` are runs of other batch
    sizes than the rest, which only what goes over batch sizes is taken from, and `batch_sizes` theirs, smallest first.
    """

    leveled: bool
    model: Sequence[int]
    layers: Sequence[int]
    kernels: Sequence[int]
    serialised_kernels: Sequence[int]
    profiled_layers: Sequence[int]
    sources: Mapping[str, str]
    counters: Sequence[int] = ()
    other_batches: Sequence[int] = ()
    batch_sizes: Sequence[int] = ()

    @property
    def selective(self) -> bool:
        """Whether there are runs that give nothing: those of other levels or batch sizes, or captures of graphs."""
        return self.leveled or bool(self.other_batches) or "graph_captures" in self.sources


def in_other_batch(role: str) -> str:
    """The role of a run that has this one in the profile of another batch size than the one that is analysed."""
    return role + _OTHER_BATCH


def roles_of(trace: Trace, batch_size: int | None = None) -> Roles:
    """The roles of a trace's runs; where a level was not run, the next deeper one stands in for it.

    `batch_size`: those of the runs of that batch size, as though it were the one that is analysed.
    """
    runs = trace.frame("runs").select("run_id", "role", "source_path", "batch_size")
    captured = pl.col("role") == GRAPH_CAPTURE
    captures = runs.filter(captured)["source_path"].drop_nulls().to_list()
    runs, others = _by_batch(runs.filter(~captured.fill_null(value=False)), batch_size)
    beside = {"graph_captures": ", ".join(captures)} if captures else {}
    sizes = others["batch_size"].drop_nulls().unique().sort().to_list()
    if sizes:
        own = ", ".join(map(str, runs["batch_size"].drop_nulls().unique().sort()))
        beside["other_batch_sizes"] = f"batch sizes {', '.join(map(str, sizes))} (all else is of {own})"
    rest = {"other_batches": others["run_id"].to_list(), "batch_sizes": sizes}
    leveled = runs.filter(pl.col("role").is_not_null(), pl.col("role") != "counters")
    if leveled["role"].n_unique() <= 1:
        every = runs.filter(pl.col("role").is_null() | (pl.col("role") != "counters"))["run_id"].to_list()
        return Roles(False, every, every, every, every, every, beside, **rest)  # noqa: FBT003 (not leveled)
    taken, sources = _runs_by_number(leveled)
    counters = runs.filter(pl.col("role") == "counters")
    files = counters["source_path"].drop_nulls().to_list()
    if files:
        sources["counters"] = ", ".join(_name_with_count(name, files.count(name)) for name in dict.fromkeys(files))
    return Roles(True, **taken, sources=sources | beside, counters=counters["run_id"].to_list(), **rest)  # noqa: FBT003


def _by_batch(runs: pl.DataFrame, batch_size: int | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The runs that roles are of, by their role at their own batch size; and those of other batch sizes."""
    is_other = pl.col("role").str.ends_with(_OTHER_BATCH).fill_null(value=False)
    own = ~is_other if batch_size is None else (pl.col("batch_size") == batch_size).fill_null(value=False)
    plain = pl.col("role").str.strip_suffix(_OTHER_BATCH).alias("role")
    return runs.filter(own).with_columns(plain), runs.filter(~own)


def _runs_by_number(leveled: pl.DataFrame) -> tuple[dict[str, list[int]], dict[str, str]]:
    """The runs that each number is taken from, and their files."""
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
    return taken, sources


def _name_with_count(name: str, times: int) -> str:
    return name if times == 1 else f"{name} ({times} runs)"
