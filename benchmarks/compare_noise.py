"""`python -m benchmarks.compare_noise`: how often `xsp compare` is wrong about noise, as docs/compare.md says.

On made captures the noise is known: it counts comparisons of equal captures that show anything significant, and how
often a planted regression is first, significant and within its interval. With --real, folders of runs of the same work
(`python -m xsp_runners.torch_levels --level MLG ... --out r01`, several times) are compared with one another instead.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.helpers.captures import Noise, Work, view
from xsp_analyze.compare.comparison import compare
from xsp_analyze.trace.step_view import StepView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.compare.comparison import Comparison

_BASE = Noise(kernel=0.02, step=0.02)


@dataclass(frozen=True)
class _Case:
    steps: int
    carried_over: float
    run: float
    run_of_layer: float
    captures: int = 1


_CASES = (
    _Case(3, 0.0, 0.01, 0.0),
    _Case(5, 0.5, 0.01, 0.01),
    _Case(10, 0.5, 0.01, 0.0),
    _Case(10, 0.8, 0.01, 0.01),
    _Case(20, 0.5, 0.01, 0.01),
    _Case(20, 0.8, 0.01, 0.02),
    _Case(50, 0.8, 0.01, 0.01),
    _Case(10, 0.5, 0.01, 0.01, captures=3),
    _Case(10, 0.5, 0.02, 0.02, captures=3),
)
_HEAD = (
    "| captures a side | steps | correlation | noise of runs | equal: with a significant row | equal: model |"
    " intervals of equal layers that hold 1 | planted: first | significant | interval holds it |"
)


def main() -> None:
    """Prints a table in Markdown, a line a case; with --real a line a comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=60, help="comparisons a case")
    parser.add_argument("--real", type=Path, nargs="+", help="run folders of the same work")
    args = parser.parse_args()
    if args.real:
        _real(args.real)
        return
    print(_HEAD)
    print("|" + "---|" * _HEAD.count(" |"))
    for case in _CASES:
        print(_line(case, args.times), flush=True)


def _line(case: _Case, times: int) -> str:
    counts = np.zeros(6)
    for seed in range(times):
        counts += _once(case, seed)
    alarms, model, covered, first, significant, held = counts
    runs = f"{case.run:.0%} + {case.run_of_layer:.0%} of layers"
    cells = (case.captures, case.steps, case.carried_over, runs, f"{alarms:.0f} of {times}", f"{model:.0f}",
             f"{covered / times:.1%}", f"{first:.0f}", f"{significant:.0f}", f"{held:.0f}")  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def _once(case: _Case, seed: int) -> Sequence[float]:
    """False alarms in rows and in the model, share of intervals that hold 1; first, significant, held of a planted."""
    random = np.random.default_rng(seed)
    layer_index, factor = int(random.integers(0, 12)), float(random.uniform(1.2, 1.6))
    noise = replace(_BASE, carried_over=case.carried_over, run=case.run, run_of_layer=case.run_of_layer)
    work, start = Work(steps=case.steps), 1000 * seed + 100_000 * case.steps
    sides = [
        [view(one, start + 10 * n + capture, noise) for capture in range(case.captures)]
        for n, one in enumerate((work, work, replace(work, slower={layer_index: factor})))
    ]
    equal, planted = compare(sides[0], sides[1]), compare(sides[0], sides[2])
    holds = [(r.low or 0) <= 1 <= (r.high or np.inf) for r in equal.level("layer")]
    top = planted.level("layer")[0]
    name = f"Linear_{layer_index}"
    row = next(r for r in planted.level("layer") if r.name == name)
    return (
        _alarms(equal) > 0,
        bool(equal.latency.significant),
        float(np.mean(holds)),
        top.name == name,
        bool(row.significant),
        (row.low or 0) <= factor <= (row.high or np.inf),
    )


def _alarms(comparison: Comparison) -> int:
    return sum(bool(row.significant) for row in comparison.rows)


def _real(folders: Sequence[Path]) -> None:
    from xsp_analyze.merge.merge import merge  # noqa: PLC0415 (only here)
    from xsp_ingest.ingester import Options  # noqa: PLC0415
    from xsp_ingest.run_set import read_run_set  # noqa: PLC0415

    views = [StepView.of(merge(read_run_set(folder, Options()))) for folder in folders]
    for at in range(len(views) - 1):
        _print_comparison(f"{folders[at].name} with {folders[at + 1].name}", compare([views[at]], [views[at + 1]]))
    for size in (2, 3, 5, len(views) // 2):
        for at in range(0, len(views) - 2 * size + 1, 2 * size):
            comparison = compare(views[at : at + size], views[at + size : at + 2 * size])
            _print_comparison(f"{size} from {folders[at].name} with the next {size}", comparison)
    _print_comparison("every other with the rest", compare(views[::2], views[1::2]))


def _print_comparison(what: str, comparison: Comparison) -> None:
    latency = comparison.latency
    interval = f"{latency.low or 0:.2f} to {latency.high or np.inf:.2f}"
    mark = "SIGNIFICANT" if latency.significant else ""
    rows = f"{_alarms(comparison)} of {comparison.test_count} rows significant"
    print(f"{what}: {rows}; latency {latency.ratio:.3f} ({interval}) {mark}")


if __name__ == "__main__":
    main()
