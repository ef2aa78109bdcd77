"""`python -m benchmarks.sizes`: what a conversion costs as traces grow, as a table: time, memory, cost of an event."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import generate, measure, peers

if TYPE_CHECKING:
    from benchmarks.measure import Cost

_MB = 1_000_000
_XSP = (sys.executable, "-c", "from xsp_cli.main import main; raise SystemExit(main())")
_HEAD = (
    "| JSON, MB | events | CPU, s | wall, s | CPU an event, us | peak memory, MB | of it private, MB |",
    "|---|---|---|---|---|---|---|",
)


def main() -> None:
    """Grows a trace of each size, converts it in a fresh process, prints a row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sizes", description=__doc__)
    parser.add_argument("--sizes-mb", type=int, nargs="+", default=[10, 100, 1000], help="default: 10 100 1000")
    default = Path(tempfile.gettempdir()) / "xsp-benchmarks"
    parser.add_argument("--cache", type=Path, default=default, help="folder for the traces; a disk, not memory")
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    print("\n".join(_HEAD), flush=True)
    for size in arguments.sizes_mb:
        trace = arguments.cache / f"grown_{size}mb.json"
        events = generate.grow(trace, size * _MB)
        _converted(trace, arguments.cache)  # fills caches, and compiles what is not compiled yet
        print(_row(trace.stat().st_size, events, _converted(trace, arguments.cache)), flush=True)


def _converted(trace: Path, cache: Path) -> Cost:
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        command = (*_XSP, "convert", str(trace), "-o", str(Path(scratch) / "trace.xsp"))
        return measure.run(command, peers.environment(), Path(scratch) / "output")


def _row(size: int, events: int, cost: Cost) -> str:
    cells = (
        f"{size / _MB:.0f}",
        f"{events:,}",
        f"{cost.cpu_s:.2f}",
        f"{cost.wall_s:.2f}",
        f"{cost.cpu_s / events * 1e6:.2f}",
        f"{cost.peak_bytes / _MB:.0f}",
        f"{cost.private_bytes / _MB:.0f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
