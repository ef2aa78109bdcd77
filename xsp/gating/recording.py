"""Captures of a region of PyTorch code on the CPU, several runs of it; torch is the user's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

__all__ = ["record"]

_WARM_UP = 2


def record(region: Callable[[], object], folder: Path, *, captures: int, steps: int) -> list[Path]:
    """So many files, each of so many calls of the region as the steps of one torch.profiler session.

    ImportError: there is no torch.
    """
    from torch.profiler import ProfilerActivity, profile, schedule  # noqa: PLC0415 (the user's, and seconds to import)

    files = []
    for number in range(1, captures + 1):
        plan = schedule(wait=0, warmup=_WARM_UP, active=steps, repeat=1)
        with profile(activities=[ProfilerActivity.CPU], schedule=plan) as profiler:
            for _ in range(_WARM_UP + steps):
                region()
                profiler.step()
        files.append(folder / f"capture{number}.json.gz")
        profiler.export_chrome_trace(str(files[-1]))
    return files
