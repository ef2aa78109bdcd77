"""`python -m benchmarks.gate FOLDER`: how often the gate sees a planted slowdown, and how often one that is not there.

FOLDER holds captures of the same work on a CPU (`--record N` makes them, with torch). Each time, five of them are the
baseline and five others the change, drawn by a seed: once as they are, and once with every time of the change stretched
by `--slowdown`. So the noise is the machine's, and what is planted is exact.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.helpers.stretched import stretched
from xsp.gating.gate import DEFAULT_RULE, Verdict, judge_captures, open_captures, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model import Trace

__all__ = ["verdicts"]

_A_SIDE = 5
_SIZE = 768


def main() -> None:
    """Prints what the gate said, as a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--record", type=int, metavar="N", help="capture N runs of three matrix products first")
    parser.add_argument("--slowdown", type=float, default=5.0, metavar="PERCENT")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--rule", default=DEFAULT_RULE)
    arguments = parser.parse_args()
    if arguments.record:
        _record(arguments.folder, arguments.record)
    captures = sorted(arguments.folder.glob("*.json.gz"))
    print(f"| planted | {' | '.join(Verdict)} |\n|---|{'---|' * len(Verdict)}")
    for planted in (0.0, arguments.slowdown):
        counts = Counter(verdicts(captures, planted, arguments.times, arguments.rule))
        print(f"| {planted:g} % | {' | '.join(str(counts[each]) for each in Verdict)} |")


def verdicts(captures: Sequence[Path], percent: float, times: int, rule: str = DEFAULT_RULE) -> list[Verdict]:
    """What the gate says of so many draws, the change being slower by so much."""
    plain = open_captures(captures)
    slower = _slower(captures, 1 + percent / 100) if percent else plain
    judgements = []
    for seed in range(times):
        drawn = random.Random(seed).sample(range(len(captures)), 2 * _A_SIDE)  # noqa: S311 (no secret)
        before, after = drawn[:_A_SIDE], drawn[_A_SIDE:]
        judgements.append(judge_captures([plain[i] for i in before], [slower[i] for i in after], [rule]).verdict)
    return judgements


def _slower(captures: Sequence[Path], factor: float) -> list[Trace]:
    with tempfile.TemporaryDirectory() as folder:
        return open_captures([stretched(each, factor, Path(folder) / each.name) for each in captures])


def _record(folder: Path, count: int) -> None:
    import torch  # noqa: PLC0415 (only where captures are made)

    torch.set_num_threads(1)
    weight = torch.randn(_SIZE, _SIZE) / _SIZE**0.5

    def region() -> object:
        return weight @ weight @ weight @ weight

    folder.mkdir(parents=True, exist_ok=True)
    record(region, folder, captures=count, steps=30)


if __name__ == "__main__":
    main()
