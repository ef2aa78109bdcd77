"""`python -m benchmarks.nsys`: an Nsight SQLite file read, kept, read in part, and summed up beside `nsys stats`.

Every cost is also given as a multiple of reading the rows alone: the columns of kernels, calls and ranges that XSP
needs, fetched by ADBC and nothing else done with them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import measure
from benchmarks.generate_nsys import grow_nsys, length_ns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.measure import Cost

_REPO = Path(__file__).resolve().parents[1]
_XSP = (sys.executable, "-c", "from xsp_cli.main import main; raise SystemExit(main())")
_ROWS = "rows alone"
_FETCH = """
import sys
from pathlib import Path
from xsp_ingest.nsys_sqlite.database import Database
work = "start end deviceId contextId streamId correlationId globalPid demangledName shortName gridX gridY gridZ blockX"
launch = " blockY blockZ registersPerThread staticSharedMemory dynamicSharedMemory"
columns = {
    "CUPTI_ACTIVITY_KIND_KERNEL": work + launch,
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid nameId correlationId",
    "NVTX_EVENTS": "start end eventType globalTid endGlobalTid textId domainId",
}
file = Database(Path(sys.argv[1]), frozenset(columns))
for table, names in columns.items():
    listed = ", ".join(f'"{name}"' for name in names.split())
    print(file._bulk_arrow(f'SELECT {listed} FROM "{table}"').height)
"""


def main() -> None:
    """Generates, measures in turns, prints."""
    asked = _arguments()
    asked.cache.mkdir(parents=True, exist_ok=True)
    file = asked.cache / f"grown_{asked.kernels}.sqlite"
    print(f"{grow_nsys(file, asked.kernels):,} rows, {file.stat().st_size / 1e6:.0f} MB", flush=True)
    ways = _ways(file, asked.cache, asked.nsys, length_ns(asked.kernels))
    rounds: list[dict[str, Cost]] = []
    for _ in range(asked.rounds):
        shutil.rmtree(asked.cache / "kept", ignore_errors=True)
        rounds.append({name: _cost(command, asked.cache) for name, command in ways.items()})
    alone = median(each[_ROWS].cpu_s for each in rounds)
    print(f"{'':32}{'CPU s':>9}{'x rows':>9}{'wall s':>9}{'peak MB':>9}")
    for name in ways:
        cpu, wall = (median(getattr(each[name], what) for each in rounds) for what in ("cpu_s", "wall_s"))
        peak = max(each[name].peak_bytes for each in rounds) / 1e6
        print(f"{name:32}{cpu:9.2f}{cpu / alone:9.2f}{wall:9.2f}{peak:9.0f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nsys", description=__doc__)
    parser.add_argument("--kernels", type=int, default=1_200_000, help="kernels in the file (default: 1,200,000)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each way is measured (default: 3)")
    parser.add_argument("--nsys", default=os.environ.get("XSP_NSYS") or shutil.which("nsys"), help="nsys to compare to")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "xsp-benchmarks")
    return parser.parse_args()


def _ways(file: Path, folder: Path, nsys: str | None, length: int) -> Mapping[str, Sequence[str]]:
    """What is run, in this order: the bundle and what is kept are there once they are asked."""
    source, bundle, kept = str(file), str(folder / "grown.xsp"), ("--cache-dir", str(folder / "kept"))
    sums = ("cuda_gpu_kern_sum", "nvtx_gpu_proj_sum")
    ways: dict[str, Sequence[str]] = {
        _ROWS: (sys.executable, "-c", _FETCH, source),
        "convert": (*_XSP, "convert", source, "-o", bundle),
        "info, first": (*_XSP, "info", source, *kept),
        "info, second": (*_XSP, "info", source, *kept),
        "info of a tenth": (*_XSP, "info", source, "--no-cache", "--range", f"{length // 2}ns..{length * 6 // 10}ns"),
    }
    for name in sums:
        ways[f"{name}, SQLite"] = (*_XSP, "analyze", source, "--no-cache", "-a", name, "-f", "csv")
        ways[f"{name}, bundle"] = (*_XSP, "analyze", bundle, "-a", name, "-f", "csv")
        if nsys:
            ways[f"{name}, nsys stats"] = (nsys, "stats", "-r", name, "-f", "csv", source)
    return ways


def _cost(command: Sequence[str], folder: Path) -> Cost:
    return measure.run(command, {**os.environ, "PYTHONPATH": str(_REPO)}, folder / "answer")


if __name__ == "__main__":
    main()
