"""The experiment on hot paths by themselves."""

from __future__ import annotations

from benchmarks.experiment import Experiment, Way, program

__all__ = ["hot_paths"]


def hot_paths(spans: int) -> Experiment:
    """Nesting of so many spans, and in the proportion of a large capture the join and busy time."""
    kernels, calls = spans * 49 // 95, spans * 70 // 95
    sizes = ("--spans", str(spans), "--kernels", str(kernels), "--calls", str(calls))
    way = Way("hot paths", "in process, each with a loop that follows its definition beside it",
              lambda _: [program("hot_paths", *sizes)])  # fmt: skip
    what = f"parents of {spans} spans; {kernels} correlation ids among {calls}; busy time of {kernels} kernels"
    return Experiment("hot-paths", "Hot paths in process", what, (way,), warm_up=False)
