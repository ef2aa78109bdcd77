"""Samples what the machine does beside a run: processors, memory, network and disks, twice a second by default.

    python -m xsp_runners.system_samples --out runs/mlg/system_samples.jsonl -- python train.py    while a program runs
    python -m xsp_runners.system_samples --out system_samples.jsonl --seconds 10                   for some time

Read from /proc of Linux, with nothing to install. Of the whole machine, other programs included; in a container
processors, memory and disks are the host's, and the network is the container's. The file is listed in run.json
(`"format": "system_samples"`), and joins the run by Unix time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners import nvml
from xsp_runners.run_folder import RunnerError
from xsp_runners.tools.tool import Parser, program_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

__all__ = ["FORMAT", "NAME", "Reading", "beside", "between", "main", "read", "sample"]

NAME = "system_samples.jsonl"
"""The file beside run.json."""

FORMAT = "system_samples"
"""What run.json calls its format."""

_HEADER = "xsp system samples"
_DEFAULT_HZ = 2.0
_MAX_HZ = 20.0
_USER_ERROR = 2
_SECTOR_BYTES = 512  # of /proc/diskstats, whatever the disk's own are
_KIB = 1024
_MS_PER_NS = 1e-6
_BIT_PER_S = 1_000_000  # of a link's speed, which is in Mbit/s
_VIRTUAL_DISKS = re.compile(r"^(loop|ram|zram|dm-|md|sr|fd)\d*")  # what they move, disks below them move again


@dataclass(frozen=True)
class Reading:
    """The kernel's counts at one moment: all but memory count on from when the machine, or a device, started."""

    time_ns: int
    cpu_busy: int  # in ticks of all processors together, as the next two
    cpu_iowait: int
    cpu_total: int
    memory_used_bytes: int | None
    network_receive_bytes: int
    network_transmit_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    disk_busy_ms: Mapping[str, int]  # by disk


def read(root: Path = Path("/")) -> Reading:
    """What /proc says now; RunnerError where there is no such thing."""
    try:
        texts = {name: (root / "proc" / name).read_text() for name in ("stat", "meminfo", "net/dev", "diskstats")}
    except OSError as error:
        raise RunnerError(f"the machine cannot be sampled: {error.filename} is not there (Linux has it)") from error
    receive, transmit = _network(texts["net/dev"], _interfaces(root))
    disks = {name: fields for name, fields in _disks(texts["diskstats"]) if _is_disk(root, name)}
    return Reading(
        time.time_ns(),
        *_processors(texts["stat"]),
        _memory(texts["meminfo"]),
        receive,
        transmit,
        sum(fields[2] for fields in disks.values()) * _SECTOR_BYTES,
        sum(fields[6] for fields in disks.values()) * _SECTOR_BYTES,
        {name: fields[9] for name, fields in disks.items()},
    )


def _processors(text: str) -> tuple[int, int, int]:
    """Ticks busy, waiting for disks with nothing else to do, and in all; time of guests is in user's already."""
    user, nice, system, idle, iowait, *more = map(int, text.splitlines()[0].split()[1:9])
    busy = user + nice + system + sum(more)
    return busy, iowait, busy + idle + iowait


def _memory(text: str) -> int | None:
    """What programs cannot have without swapping: all less what is available."""
    sizes = {line.partition(":")[0]: int(line.split()[1]) for line in text.splitlines() if len(line.split()) > 1}
    if "MemAvailable" not in sizes:
        return None
    return (sizes["MemTotal"] - sizes["MemAvailable"]) * _KIB


def _network(text: str, counted: Iterable[str]) -> tuple[int, int]:
    rows = (line.partition(":") for line in text.splitlines() if ":" in line)
    fields = [row.split() for name, _, row in rows if name.strip() in counted]
    return sum(int(row[0]) for row in fields), sum(int(row[8]) for row in fields)


def _interfaces(root: Path) -> list[str]:
    """Those with a device; bridges and tunnels would count the same bytes again. Without any, all but the loopback."""
    folder = root / "sys/class/net"
    names = sorted(path.name for path in folder.glob("*"))
    return [name for name in names if (folder / name / "device").exists()] or [n for n in names if n != "lo"]


def _disks(text: str) -> Iterator[tuple[str, list[int]]]:
    for line in text.splitlines():
        _, _, name, *fields = line.split()
        yield name, [int(field) for field in fields]


def _is_disk(root: Path, name: str) -> bool:
    """Whether it is a disk, and neither a part of one nor made of some."""
    return not _VIRTUAL_DISKS.match(name) and (root / "sys/block" / name).exists()


def _byte_per_s(root: Path) -> int | None:
    """What its links can move each way; None where one does not say (virtual machines do not)."""
    speeds = []
    for name in _interfaces(root):
        try:
            if (root / "sys/class/net" / name / "operstate").read_text().strip() != "up":
                continue
            speeds.append(int((root / "sys/class/net" / name / "speed").read_text()))
        except (OSError, ValueError):
            return None
    return sum(speeds) * _BIT_PER_S // 8 if speeds and min(speeds) > 0 else None


def between(first: Reading, before: Reading | None, now: Reading) -> dict[str, Any]:
    """One line: bytes since the first reading; shares of the time since the one before, null in the first line."""
    line: dict[str, Any] = {"time_ns": now.time_ns, "memory_used_bytes": now.memory_used_bytes}
    for name in ("network_receive_bytes", "network_transmit_bytes", "disk_read_bytes", "disk_write_bytes"):
        line[name] = getattr(now, name) - getattr(first, name)
    if before is not None and now.cpu_total > before.cpu_total:
        ticks = now.cpu_total - before.cpu_total
        line["cpu_utilization"] = (now.cpu_busy - before.cpu_busy) / ticks
        line["cpu_iowait"] = max(0, now.cpu_iowait - before.cpu_iowait) / ticks  # the kernel's may run backwards
    if before is not None and now.disk_busy_ms and now.time_ns > before.time_ns:
        lasted_ms = (now.time_ns - before.time_ns) * _MS_PER_NS
        busy = max(ms - before.disk_busy_ms.get(name, ms) for name, ms in now.disk_busy_ms.items())
        line["disk_busy"] = min(1.0, max(0.0, busy / lasted_ms))
    return {name: value for name, value in line.items() if value is not None}


def sample(
    path: Path, *, hertz: float, stop: Callable[[], bool], ready: Callable[[], None], root: Path = Path("/")
) -> int:
    """Writes samples until `stop` says so; how many. RunnerError where the file cannot be written."""
    first, count = read(root), 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", buffering=1) as file:
            _put(file, _facts(root, hertz))
            _put(file, between(first, None, first))
            ready()
            before, count = first, 1
            while not stop():
                time.sleep(1 / hertz)
                now = read(root)
                _put(file, between(first, before, now))
                before, count = now, count + 1
            _put(file, {"end": True, "samples": count})
    except OSError as error:
        raise RunnerError(f"the samples cannot be written to {path}: {error.strerror}") from error
    return count


def _facts(root: Path, hertz: float) -> dict[str, Any]:
    facts = {
        "format": _HEADER,
        "version": 1,
        "clock": "CLOCK_REALTIME",
        "interval_ns": round(1e9 / hertz),
        "cpu_count": os.cpu_count(),
        "usable_cpu_count": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_bytes": _total_memory(root),
        "network_byte_per_s": _byte_per_s(root),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _total_memory(root: Path) -> int | None:
    match = re.search(r"^MemTotal:\s+(\d+)", (root / "proc/meminfo").read_text(), re.MULTILINE)
    return int(match[1]) * _KIB if match else None


def _put(file: Any, line: Mapping[str, Any]) -> None:  # noqa: ANN401
    file.write(json.dumps(line, separators=(",", ":")) + "\n")


def beside(path: str | Path, *, hertz: float = _DEFAULT_HZ) -> AbstractContextManager[None]:
    """Samples into the file while open, in a process of its own; RunnerError where nothing can be sampled."""
    return nvml.beside(path, hertz=hertz, script=Path(__file__))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "system_samples",
        description="Samples processors, memory, network and disks of this machine.",
        epilog="Exit status: that of the program where there is one, else 0; 2 where nothing could be sampled.",
    )
    nvml.add_sampling_options(parser, hertz=_DEFAULT_HZ, name=NAME)
    return parser


def _main(args: argparse.Namespace) -> int:
    if not 0 < args.hertz <= _MAX_HZ:
        raise RunnerError(f"--hertz must be between 0 and {_MAX_HZ:g}")
    target = program_of(args.program) if args.program else None
    until = nvml.Until(args)
    try:
        count = sample(args.out, hertz=args.hertz, stop=until, ready=lambda: until.begin(target))
    except RunnerError as error:
        if until.program is None:
            raise
        print(f"system_samples: {error}", file=sys.stderr)  # the program is worth more than its samples
    else:
        if not args.piped:
            print(f"{args.out}: {count} samples", flush=True)
    return until.program.wait() if until.program else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 or the program's status, 2 after a sentence on stderr."""
    args = _parser().parse_args(arguments)
    try:
        return _main(args)
    except RunnerError as error:
        print(f"system_samples: {error}", file=sys.stderr)
        return _USER_ERROR


if __name__ == "__main__":
    sys.exit(main())
