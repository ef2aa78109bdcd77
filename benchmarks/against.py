"""`python -m benchmarks.against OTHER`: what commands cost in this tree beside another checkout of it, in pairs.

Each command is run by both trees in turns, by this Python, so a slow minute of the machine hits both. A ratio above 1
says that this tree takes more. Bundles and caches are each tree's own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.experiment import REPO
from benchmarks.inputs import Inputs
from benchmarks.measure import Failed, as_installed, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.measure import Cost

_MAIN = (  # the command's package had another name before; what is installed has only the new one
    "import importlib.util as u; name = 'xsp_cli.main' if u.find_spec('xsp_cli') else 'xsp.cli.main'; "
    "import importlib as i; raise SystemExit(i.import_module(name).main())"
)
_A10 = ("-a", "A10", "-a", "B03", "-f", "json", "--steps", "all")
_CONVERT = ("convert", "IN", "-o", "OUT.xsp")
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """A command of `xsp`, or a program of `benchmarks` where it is named; `before` is run first and not measured.

    `source` makes the input, for which IN stands in both; OUT stands for a path in a scratch folder.
    """

    key: str
    arguments: Sequence[str]
    source: Callable[[], Path] | None = None
    before: Sequence[str] = ()
    program: str = ""


def main() -> int:
    """Prints a line a command."""
    arguments = _arguments()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    trees = (REPO, arguments.other.resolve())
    print(f"{'command':34} {'this, s':>9} {'other, s':>9} {'ratio of CPU (range)':>22} {'this, MB':>9} {'ratio':>6}")
    for case in _cases(Inputs(arguments.cache), arguments):
        if not arguments.only or case.key.startswith(tuple(arguments.only)):
            print(_line(case, trees, arguments.rounds), flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--only", nargs="+", metavar="KEY", help="commands whose key begins so")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of each command (default: 3)")
    parser.add_argument("--size-mb", type=int, default=200, help="the large trace (default: 200)")
    parser.add_argument("--nsys-kernels", type=int, default=4_900_000, help="of the SQLite file (default: 4900000)")
    parser.add_argument("--spans", type=int, default=9_500_000, help="of the hot paths (default: 9500000)")
    parser.add_argument("--traces", type=int, default=64, help="of the batch (default: 64)")
    default = Path(tempfile.gettempdir()) / "xsp-benchmarks"
    parser.add_argument("--cache", type=Path, default=default, help="folder for inputs")
    return parser.parse_args()


def _cases(inputs: Inputs, arguments: argparse.Namespace) -> Iterator[Case]:
    yield Case("help", ["--help"])
    yield from _traces(inputs, arguments.size_mb)
    for jobs in ("1", "2"):
        command = ("batch", "IN", "-o", "OUT", "--jobs", jobs, "--no-ranks")
        yield Case(f"batch-{jobs}", command, partial(inputs.traces, arguments.traces))
    yield from _captures(lambda: inputs.nsys(arguments.nsys_kernels)[0])
    spans = arguments.spans
    sizes = ("--spans", str(spans), "--kernels", str(spans * 49 // 95), "--calls", str(spans * 70 // 95))
    yield Case("hot-paths", sizes, program="hot_paths")


def _traces(inputs: Inputs, large_mb: int) -> Iterator[Case]:
    def of(size_mb: int) -> Callable[[], Path]:
        return lambda: inputs.kineto(size_mb).path

    large = of(large_mb)
    for size_mb in (1, 10, 100, large_mb):
        yield Case(f"convert-{size_mb}", _CONVERT, of(size_mb))
    for size_mb in (1, 100):
        yield Case(f"report-{size_mb}", ("report", "IN", "-o", "OUT.html", "--no-cache"), of(size_mb))
    yield Case("analyze", ("analyze", "IN", *_A10, "--no-cache"), large)
    yield Case("analyze-cached", ("analyze", "IN", *_A10), large, before=("analyze", "IN", *_A10))
    yield Case("bundle", ("analyze", "OUT.xsp", *_A10), large, before=_CONVERT)
    yield Case("gzip", _CONVERT, partial(inputs.kineto_gzip, large_mb))
    yield Case("links", ("IN",), large, program="xsp_links")
    yield Case("links-plain", ("IN", "--plain"), large, program="xsp_links")


def _captures(source: Callable[[], Path]) -> Iterator[Case]:
    yield Case("nsys-convert", _CONVERT, source)
    for name in ("cuda_gpu_kern_sum", "nvtx_gpu_proj_sum"):
        yield Case(name, ("analyze", "IN", "-a", name, "-f", "csv", "--no-cache"), source)
        yield Case(f"{name}-bundle", ("analyze", "OUT.xsp", "-a", name, "-f", "csv"), source, before=_CONVERT)
    yield Case("nsys-info", ("info", "IN", "--no-cache"), source)
    yield Case("nsys-info-cached", ("info", "IN"), source, before=("info", "IN"))
    yield Case("nsys-report", ("report", "OUT.xsp", "-o", "OUT.html"), source, before=_CONVERT)
    yield Case("analyses", ("OUT.xsp",), source, before=_CONVERT, program="xsp_analyses")


def _line(case: Case, trees: tuple[Path, Path], rounds: int) -> str:
    """Medians of both, and the ratios of pairs."""
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    source = case.source() if case.source else None
    try:
        for turn in range(rounds):
            for side in (0, 1) if turn % 2 else (1, 0):
                costs[side].append(_cost(case, source, trees[side]))
    except Failed as error:
        return f"{case.key:34} {error}"
    this_s, other_s = (median(each.cpu_s for each in side) for side in costs)
    ratios = sorted(mine.cpu_s / theirs.cpu_s for mine, theirs in zip(*costs, strict=True))
    this_mb, other_mb = (median(each.private_bytes for each in side) / _MB for side in costs)
    spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return f"{case.key:34} {this_s:9.2f} {other_s:9.2f} {spread:>22} {this_mb:9.0f} {this_mb / other_mb:6.2f}"


def _cost(case: Case, source: Path | None, tree: Path) -> Cost:
    with tempfile.TemporaryDirectory(prefix="xsp-benchmark-") as scratch:
        environment = as_installed(os.environ | {"PYTHONPATH": str(tree), "XDG_CACHE_HOME": scratch}, tree)

        def inside(arguments: Sequence[str]) -> list[str]:
            paths = [f"{scratch}/{each}" if each.startswith("OUT") else each for each in arguments]
            return [str(source) if each == "IN" else each for each in paths]

        output = Path(scratch) / "output"
        inside_tree = ("env", "-C", str(tree), sys.executable)  # where Python looks for packages first
        if case.before:
            run([*inside_tree, "-c", _MAIN, *inside(case.before)], environment, output)
        program = ("-m", f"benchmarks.programs.{case.program}") if case.program else ("-c", _MAIN)
        return run([*inside_tree, *program, *inside(case.arguments)], environment, output)


if __name__ == "__main__":
    raise SystemExit(main())
