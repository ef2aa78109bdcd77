"""A sweep over batch sizes: in doublings, until throughput gains 5 % or less or memory is full."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xsp_runners.run_folder import CERTAIN, ERROR, RUN, RunnerError, read_json
from xsp_runners.zoo.models import find

__all__ = ["SWEEP", "Sweep", "batch_sizes_of", "run_sweep", "trimmed_mean"]

SWEEP = "sweep.json"
"""What a sweep found, in the folder of the run set."""
_SATURATED_GAIN = 1.05
_NS_PER_S = 1e9
_LARGEST = 1 << 20
_USUAL = (1, 256)


@dataclass
class Sweep:
    """Throughput by batch size, why the sweep ended, and the optimal batch size where it showed.

    `ended_by`: `saturation`, `memory`, `failure`, or `range` (every batch size asked for was run); `memory_full`: how
    sure it is that memory ended it, `certain` or `likely`.
    """

    throughput_per_s: dict[int, float] = field(default_factory=dict)
    ended_by: str = "range"
    optimal: int | None = None
    memory_full: str | None = None

    @property
    def chosen_size(self) -> int:
        """The batch size at which the other levels are run: the optimal one, else that of the highest throughput."""
        if not self.throughput_per_s:
            raise RunnerError("no batch size could be run, so that there is none to run the other levels at")
        return self.optimal or max(self.throughput_per_s, key=lambda batch: (self.throughput_per_s[batch], -batch))

    def as_json(self) -> dict[str, object]:
        """What sweep.json holds; `optimal_batch_size` is null where the sweep ended before it showed."""
        return {
            "schema_version": 1,
            "optimal_batch_size": self.optimal,
            "chosen_batch_size": self.chosen_size if self.throughput_per_s else None,
            "ended_by": self.ended_by,
            **({"memory_full": self.memory_full} if self.memory_full else {}),
            "throughput_per_s": {str(batch): value for batch, value in self.throughput_per_s.items()},
        }


def batch_sizes_of(text: str | None, *, zoo: str | None) -> list[int]:
    """The sizes in `1..256` (doublings, both ends included) or `1,2,8`, ascending; null: as the model's list says."""
    if text is None:
        first, last = find(zoo).batch_sizes if zoo else _USUAL
        return _doublings(first, last)
    parts = text.split("..") if ".." in text else text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts) or len(parts) > _LARGEST:
        raise RunnerError(f"--batch-sizes {text!r} cannot be read: give 1..256, for doublings, or 1,2,8")
    sizes = [int(part) for part in parts]
    if ".." in text and (len(sizes) != 2 or sizes[0] > sizes[1]):  # noqa: PLR2004 (both ends)
        raise RunnerError(f"--batch-sizes {text!r} cannot be read: give the smallest and the largest, such as 1..256")
    if not all(1 <= size <= _LARGEST for size in sizes):
        raise RunnerError(f"--batch-sizes must lie between 1 and {_LARGEST}")
    return _doublings(*sizes) if ".." in text else sorted(set(sizes))


def _doublings(first: int, last: int) -> list[int]:
    sizes = [first]
    while 2 * sizes[-1] <= last:
        sizes.append(2 * sizes[-1])
    return sizes


def run_sweep(sizes: Sequence[int], run: Callable[[int], Path | None]) -> Sweep:
    """Runs each size in turn until the rule ends it; `run` gives the folder of the finished or failed run.

    The optimal size is XSP's: the first whose doubling raises throughput by 5 % or less; where memory surely fills up
    before, the largest that fits.
    """
    sweep = Sweep()
    for batch in sizes:
        folder = run(batch)
        if folder is None or not (folder / RUN).is_file():
            return _ended_early(sweep, read_json(folder / ERROR) if folder else {})
        sweep.throughput_per_s[batch] = _throughput(batch, read_json(folder / RUN))
        half = sweep.throughput_per_s.get(batch // 2) if batch % 2 == 0 else None
        if half is not None and sweep.throughput_per_s[batch] <= _SATURATED_GAIN * half:
            sweep.ended_by, sweep.optimal = "saturation", batch // 2
            return sweep
    return sweep


def _ended_early(sweep: Sweep, error: Mapping[str, object]) -> Sweep:
    """The sweep whose next size failed: the largest that fits is optimal where memory surely was full."""
    full = error.get("memory_full")
    sweep.memory_full = full if isinstance(full, str) else None
    sweep.ended_by = "memory" if error.get("status") == "out_of_memory" else "failure"
    if sweep.memory_full == CERTAIN and sweep.throughput_per_s:
        sweep.optimal = max(sweep.throughput_per_s)
    return sweep


def _throughput(batch: int, description: Mapping[str, object]) -> float:
    durations = description.get("step_durations_ns")
    if not isinstance(durations, list) or not durations:
        raise RunnerError("a run of the sweep tells no step times")
    return batch / (trimmed_mean(durations) / _NS_PER_S)


def trimmed_mean(values: Sequence[int]) -> float:
    """The mean without the lowest and the highest fifth (of three, the middle one), as XSP takes it."""
    cut = 1 if len(values) == 3 else len(values) // 5  # noqa: PLR2004
    kept = sorted(values)[cut : len(values) - cut]
    return sum(kept) / len(kept)
