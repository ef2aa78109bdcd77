"""What pairing replays with captures costs above converting without: `python -m benchmarks.graph_pairs`.

Made traces, ROCm's form: 100 captured graphs (a model's pieces, the same kernels in different modules, so that their
order tells them apart), and rounds of replays of them. Each conversion is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GRAPHS = 100
_CONVERT = "import sys; from pathlib import Path; from xsp_ingest.convert import convert; \
from xsp_ingest.ingester import Options; \
convert([Path(sys.argv[1])], Options(graph_captures=[Path(p) for p in sys.argv[2:]]))"
_GOAL_S, _GOAL_BYTES = 5.0, 500e6


@dataclass(frozen=True, slots=True)
class _Cost:
    """Of one process."""

    cpu_s: float
    peak_bytes: int


def main() -> int:
    """Prints a line a size: processor time and peak memory with and without the capture, and what it adds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.graph_pairs", description=__doc__)
    parser.add_argument("--kernels", type=int, nargs="+", default=[250_000, 500_000, 1_000_000])
    parser.add_argument("--launches", type=int, default=100, help="of each graph")
    parser.add_argument("--streams", type=int, default=1, help="that the kernels of a replay are spread over")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder) / "capture.json"
        _write(capture, _capture(arguments.launches))
        for kernels in arguments.kernels:
            replay = Path(folder) / f"replay{kernels}.json"
            _write(replay, _replays(kernels // arguments.launches, arguments.launches, arguments.streams))
            plain, paired = _cost([replay]), _cost([replay, capture])
            replay.unlink()
            print(_line(kernels, plain, paired), flush=True)
    return 0


def _line(kernels: int, plain: _Cost, paired: _Cost) -> str:
    more_s, more_bytes = paired.cpu_s - plain.cpu_s, paired.peak_bytes - plain.peak_bytes
    return (
        f"{kernels:>9,} kernels: {plain.cpu_s:.2f} s and {plain.peak_bytes / 1e6:,.0f} MB without, {paired.cpu_s:.2f} "
        f"s and {paired.peak_bytes / 1e6:,.0f} MB with the capture ({paired.cpu_s / plain.cpu_s:.2f} times, "
        f"{paired.peak_bytes / plain.peak_bytes:.2f} times); it adds {more_s:.2f} s (goal: {_GOAL_S:.0f} s a million) "
        f"and {more_bytes / 1e6:,.0f} MB (goal: {_GOAL_BYTES / 1e6:.0f} MB)"
    )


def _cost(paths: Sequence[Path]) -> _Cost:
    arguments = [sys.executable, "-c", _CONVERT, *map(str, paths)]
    process = os.posix_spawn(sys.executable, arguments, os.environ)
    _, status, used = os.wait4(process, 0)
    if status:
        raise SystemExit(f"the conversion ended with {status}")
    return _Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def _write(path: Path, events: Iterator[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [\n')
        file.writelines(f"{event},\n" for event in events)
        file.write('{"ph": "M", "name": "process_name", "pid": 7, "tid": 7, "ts": 0, "args": {"name": "python"}}\n]}\n')


def _event(category: str, name: str, thread: int, start_us: int, duration_us: int, args: str) -> str:
    return (
        f'{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": 7, "tid": {thread}, "ts": {start_us}, '
        f'"dur": {duration_us}, "args": {{{args}}}}}'
    )


def _kernel(graph: int, launch: int) -> str:
    """The first graph alone has a kernel of its own, which says where a round begins."""
    return "embedding" if graph == launch == 0 else f"kernel_{launch % 40}"


def _capture(launches: int) -> Iterator[str]:
    now = correlation = 1
    for graph in range(_GRAPHS):
        yield _event("cuda_runtime", "hipStreamBeginCapture", 7, now, 1, f'"correlation": {correlation}')
        yield _event("python_function", f"nn.Module: Block_{graph}", 7, now + 2, 20 * launches + 10, "")
        for launch in range(launches):
            start, correlation = now + 4 + 20 * launch, correlation + 1
            yield _event("cpu_op", f"aten::op_{launch % 40}", 7, start, 18, f'"External id": {correlation}')
            named = f'"kernel": "{_kernel(graph, launch)}", "grid": [8, 1, 1], "block": [64, 1, 1]'
            args = f'"correlation": {correlation}, {named}'
            yield _event("cuda_runtime", "hipModuleLaunchKernel", 7, start + 2, 5, args)
        now, correlation = now + 20 * launches + 20, correlation + 1
        yield _event("cuda_runtime", "hipStreamEndCapture", 7, now, 1, f'"correlation": {correlation}')
        now, correlation = now + 5, correlation + 1


def _replays(count: int, launches: int, streams: int) -> Iterator[str]:
    now = 1_000_000
    for replay in range(count):
        correlation = replay + 1
        yield _event("cuda_runtime", "hipGraphLaunch", 7, now, 5, f'"correlation": {correlation}')
        for launch in range(launches):
            stream = launch % streams
            args = f'"device": 0, "stream": {stream}, "correlation": {correlation}, "kind": "Dispatch Task"'
            start = now + 10 + 3 * launch
            yield _event("kernel", _kernel(replay % _GRAPHS, launch), stream, start, 2, args)
        now += 20 + 3 * launches


if __name__ == "__main__":
    raise SystemExit(main())
