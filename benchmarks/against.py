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
from benchmarks.measure import Failed, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.measure import Cost

_MAIN = (  # the command's package had another name before; what is installed has only the new one
    "import importlib.util as u; name = 'xsp_cli.main' if u.find_spec('xsp_cli') else 'xsp.cli.main'; "
    "import importlib as i; raise SystemExit(i.import_module(name).main())"
)
_A10 = ("-a", "A10", "-a", "B03", "-f", "json", "--steps", "all")
_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """A command of `xsp`, or a program of `benchmarks` where it is named; `before` is run first and not measured."""

    key: str
    arguments: Sequence[str]
    before: Sequence[str] = ()
    program: str = ""


def main() -> int:
    """Prints a line a command."""
    arguments = _arguments()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    trees = (REPO, arguments.other.resolve())
    print(f"{'command':34} {'this, s':>9} {'other, s':>9} {'ratio of CPU (range)':>22} {'this, MB':>9} {'ratio':>6}")
    for key, case in _cases(Inputs(arguments.cache), arguments).items():
        if arguments.only and not any(key.startswith(each) for each in arguments.only):
            continue
        print(_line(case(), trees, arguments.rounds), flush=True)
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


def _cases(inputs: Inputs, arguments: argparse.Namespace) -> dict[str, Callable[[], Case]]:
    """By key; inputs are made when a case is. OUT stands for a path in a scratch folder."""
    return dict([*_traces(inputs, arguments), *_captures(inputs, arguments), *_in_process(inputs, arguments)])


def _traces(inputs: Inputs, arguments: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Case]]]:
    def of(key: str, size_mb: int, *command: str, before: Sequence[str] = ()) -> tuple[str, Callable[[], Case]]:
        def case() -> Case:
            path = str(inputs.kineto(size_mb).path)
            return Case(key, [path if each == "IN" else each for each in command],
                        [path if each == "IN" else each for each in before])  # fmt: skip

        return key, case

    large = arguments.size_mb
    yield "help", lambda: Case("help", ["--help"])
    for size_mb in (1, 10, 100, large):
        yield of(f"convert-{size_mb}", size_mb, "convert", "IN", "-o", "OUT.xsp")
    yield of("report-1", 1, "report", "IN", "-o", "OUT.html", "--no-cache")
    yield of("report-100", 100, "report", "IN", "-o", "OUT.html", "--no-cache")
    yield of("analyze", large, "analyze", "IN", *_A10, "--no-cache")
    yield of("analyze-cached", large, "analyze", "IN", *_A10, before=("analyze", "IN", *_A10))
    yield of("bundle", large, "analyze", "OUT.xsp", *_A10, before=("convert", "IN", "-o", "OUT.xsp"))
    yield "gzip", lambda: Case("gzip", ["convert", str(inputs.kineto_gzip(large)), "-o", "OUT.xsp"])
    for jobs in ("1", "2"):
        yield f"batch-{jobs}", partial(_batch, inputs, arguments.traces, jobs)


def _batch(inputs: Inputs, traces: int, jobs: str) -> Case:
    return Case(f"batch-{jobs}", ["batch", str(inputs.traces(traces)), "-o", "OUT", "--jobs", jobs, "--no-ranks"])


def _captures(inputs: Inputs, arguments: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Case]]]:
    def of(key: str, *command: str, before: Sequence[str] = ()) -> tuple[str, Callable[[], Case]]:
        def case() -> Case:
            path = str(inputs.nsys(arguments.nsys_kernels)[0])
            return Case(key, [path if each == "IN" else each for each in command],
                        [path if each == "IN" else each for each in before])  # fmt: skip

        return key, case

    convert = ("convert", "IN", "-o", "OUT.xsp")
    yield of("nsys-convert", *convert)
    for name in ("cuda_gpu_kern_sum", "nvtx_gpu_proj_sum"):
        yield of(f"{name}", "analyze", "IN", "-a", name, "-f", "csv", "--no-cache")
        yield of(f"{name}-bundle", "analyze", "OUT.xsp", "-a", name, "-f", "csv", before=convert)
    yield of("nsys-info", "info", "IN", "--no-cache")
    yield of("nsys-info-cached", "info", "IN", before=("info", "IN"))
    yield of("nsys-report", "report", "OUT.xsp", "-o", "OUT.html", before=convert)


def _in_process(inputs: Inputs, arguments: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Case]]]:
    spans = arguments.spans
    sizes = ("--spans", str(spans), "--kernels", str(spans * 49 // 95), "--calls", str(spans * 70 // 95))
    large = arguments.size_mb
    yield "links", lambda: Case("links", [str(inputs.kineto(large).path)], program="xsp_links")
    yield "links-plain", lambda: Case("links-plain", [str(inputs.kineto(large).path), "--plain"], program="xsp_links")
    yield "hot-paths", lambda: Case("hot-paths", sizes, program="hot_paths")
    yield (
        "analyses",
        lambda: Case(
            "analyses",
            ["OUT.xsp"],
            before=["convert", str(inputs.nsys(arguments.nsys_kernels)[0]), "-o", "OUT.xsp"],
            program="xsp_analyses",
        ),
    )


def _line(case: Case, trees: tuple[Path, Path], rounds: int) -> str:
    """Medians of both, and the ratios of pairs."""
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    try:
        for turn in range(rounds):
            for side in (0, 1) if turn % 2 else (1, 0):
                costs[side].append(_cost(case, trees[side]))
    except Failed as error:
        return f"{case.key:34} {error}"
    this_s, other_s = (median(each.cpu_s for each in side) for side in costs)
    ratios = sorted(mine.cpu_s / theirs.cpu_s for mine, theirs in zip(*costs, strict=True))
    this_mb, other_mb = (median(each.private_bytes for each in side) / _MB for side in costs)
    spread = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return f"{case.key:34} {this_s:9.2f} {other_s:9.2f} {spread:>22} {this_mb:9.0f} {this_mb / other_mb:6.2f}"


def _cost(case: Case, tree: Path) -> Cost:
    with tempfile.TemporaryDirectory(prefix="xsp-benchmark-") as scratch:
        environment = os.environ | {"PYTHONPATH": str(tree), "XDG_CACHE_HOME": scratch}

        def inside(arguments: Sequence[str]) -> list[str]:
            return [f"{scratch}/{each}" if each.startswith("OUT") else each for each in arguments]

        output = Path(scratch) / "output"
        inside_tree = ("env", "-C", str(tree), sys.executable)  # where Python looks for packages first
        if case.before:
            run([*inside_tree, "-c", _MAIN, *inside(case.before)], environment, output)
        program = ("-m", f"benchmarks.programs.{case.program}") if case.program else ("-c", _MAIN)
        return run([*inside_tree, *program, *inside(case.arguments)], environment, output)


if __name__ == "__main__":
    raise SystemExit(main())
