"""`python -m benchmarks`: what XSP costs beside its peers, as benchmarks/RESULTS.md."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import captures, paths, store, traces
from benchmarks.environments import PLOT, Unavailable
from benchmarks.experiment import REPO, measure
from benchmarks.guard import GUARDS, check
from benchmarks.inputs import Inputs
from benchmarks.report import report

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.experiment import Experiment

_SIZES_MB = (1, 10, 100, 1_000)
_TOP_MB = (1, 240)
_PLOT = "memory.svg"


def main() -> int:
    """Measures what was asked for, keeps it, and writes the results of all that is kept; or runs the guard."""
    arguments = _arguments()
    if arguments.guard:
        return int(bool(check(GUARDS)) and arguments.strict)
    arguments.cache.mkdir(parents=True, exist_ok=True)
    kept = arguments.cache / "measured"
    experiments = _experiments(arguments, Inputs(arguments.cache))
    for key in [] if arguments.write_only else arguments.only or list(experiments):
        try:
            experiment = experiments[key]()
        except Unavailable as error:
            print(f"{key}: skipped: {error}")
            continue
        command = f"python -m benchmarks --only {key}{_options_text(arguments)}"
        for measured in measure(experiment, arguments.rounds, command, arguments.cache, arguments.limit_s):
            store.save(measured, kept)
    results = store.load(kept)
    drawn = any(key.startswith("size-") for key in results) and _draw(kept, arguments)
    order = [key for key in experiments if key in results]
    text = report({key: results[key] for key in order}, _PLOT if drawn else None)
    arguments.output.write_text(text, encoding="utf-8")
    print(f"wrote {arguments.output}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="KEY", help="these experiments; what was kept of others stays")
    parser.add_argument("--guard", action="store_true", help="warn of hot paths that lost their lead; nothing else")
    parser.add_argument("--strict", action="store_true", help="with --guard: exit status 1 where it warns")
    parser.add_argument("--write-only", action="store_true", help="measure nothing, write what was kept")
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is measured (default: 5)")
    parser.add_argument("--size-mb", type=int, default=200, help="the trace read by all peers (default: 200)")
    parser.add_argument("--large-mb", type=int, default=1_000, help="the packed one and the bundle (default: 1000)")
    parser.add_argument("--ten-gb", action="store_true", help="convert 10 GB too")
    parser.add_argument("--nsys-kernels", type=int, default=4_900_000, help="of the SQLite file (default: 4900000)")
    parser.add_argument("--spans", type=int, default=9_500_000, help="of the hot paths (default: 9500000)")
    parser.add_argument("--traces", type=int, default=64, help="of the batch (default: 64)")
    parser.add_argument("--limit-s", type=float, default=1_800, help="wall time a program may take (default: 1800)")
    default = Path(tempfile.gettempdir()) / "xsp-benchmarks"
    parser.add_argument("--cache", type=Path, default=default, help="folder for inputs, environments and measurements")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("RESULTS.md"))
    return parser.parse_args()


def _draw(kept: Path, arguments: argparse.Namespace) -> bool:
    """Draws memory over sizes; whether it could."""
    target = arguments.output.with_name(_PLOT).resolve()
    try:
        command = [PLOT.python(arguments.cache), "-m", "benchmarks.plot", kept.resolve(), target]
        subprocess.run(command, check=True, cwd=REPO)
    except (Unavailable, subprocess.CalledProcessError) as error:
        print(f"no plot: {error}")
        return False
    return True


def _experiments(arguments: argparse.Namespace, inputs: Inputs) -> dict[str, Callable[[], Experiment]]:
    """By key, in the order of the results; inputs are made when an experiment is."""
    sizes = (*_SIZES_MB, *((10_000,) if arguments.ten_gb or arguments.write_only else ()))
    return {
        "start": lambda: traces.start(inputs, 100),
        **{f"top-{size:05d}": partial(traces.top, inputs, size) for size in _TOP_MB},
        "kineto": lambda: traces.kineto(inputs, arguments.size_mb),
        **{f"size-{size:05d}": partial(traces.size, inputs, size) for size in sizes},
        "gzip": lambda: traces.plain_and_gzip(inputs, arguments.large_mb),
        "bundle": lambda: traces.bundle(inputs, arguments.large_mb),
        "hot-paths": lambda: paths.hot_paths(arguments.spans),
        "nsys-rows": lambda: captures.convert(inputs, arguments.nsys_kernels),
        "nsys-kernels": lambda: captures.kernels(inputs, arguments.nsys_kernels),
        "nsys-ranges": lambda: captures.ranges(inputs, arguments.nsys_kernels),
        "nsys-kept": lambda: captures.kept_traces(inputs, arguments.nsys_kernels),
        "analyses": lambda: captures.analyses(inputs, arguments.nsys_kernels),
        "batch": lambda: traces.batch(inputs, arguments.traces),
    }


def _options_text(arguments: argparse.Namespace) -> str:
    """The options that decide what is measured, where they are not the usual ones."""
    usual = {
        "rounds": 5,
        "size_mb": 200,
        "large_mb": 1_000,
        "nsys_kernels": 4_900_000,
        "spans": 9_500_000,
        "traces": 64,
    }
    values = {name: getattr(arguments, name) for name in usual}
    text = "".join(f" --{name.replace('_', '-')} {value}" for name, value in values.items() if value != usual[name])
    return text + (" --ten-gb" if arguments.ten_gb else "")


if __name__ == "__main__":
    sys.exit(main())
