"""Samples what the machine does beside a run: processors, memory, network and disks, twice a second by default.

    python -m xsp_runners.system_samples --out runs/mlg/system_samples.jsonl -- python train.py    while a program runs
    python -m xsp_runners.system_samples --out system_samples.jsonl --seconds 10                   for some time

Read from /proc of Linux, with nothing to install. Of the whole machine, other programs included; in a container
processors, memory and disks are the host's, and the network is the container's. The file is listed in run.json
(`"format": "system_samples"`), and joins the run by Unix time.
"""

from __future__ import annotations

import os
import re
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.run_folder import RunnerError
from xsp_runners.tools import sampling
from xsp_runners.tools.programs import exit_status
from xsp_runners.tools.sampling import sample_while, sampling_options, without_nulls, write_samples

__all__ = ["FORMAT", "NAME", "beside", "between", "main", "read", "sample"]

NAME = "system_samples.jsonl"
"""The file beside run.json."""

FORMAT = "system_samples"
"""What run.json calls its format."""

_HEADER = "xsp system samples"
_DEFAULT_HZ = 2.0
_MAX_HZ = 20.0
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
    """Interfaces with a device: bridges and tunnels count the same bytes again; without any, all but the loopback."""
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
    return without_nulls(line)


def _moments(root: Path, first: Reading, interval_s: float) -> Iterator[list[dict[str, Any]]]:
    """The first reading as a sample, and one each interval."""
    before = first
    yield [between(first, None, first)]
    while True:
        time.sleep(interval_s)
        now = read(root)
        yield [between(first, before, now)]
        before = now


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
    return without_nulls(facts)


def _total_memory(root: Path) -> int | None:
    match = re.search(r"^MemTotal:\s+(\d+)", (root / "proc/meminfo").read_text(), re.MULTILINE)
    return int(match[1]) * _KIB if match else None


def beside(path: str | Path, *, hertz: float = _DEFAULT_HZ) -> AbstractContextManager[None]:
    """Samples into the file while open, in a process of its own; RunnerError where nothing can be sampled."""
    return sampling.beside(path, Path(__file__), hertz=hertz)


def sample(
    path: Path, *, hertz: float, stop: Callable[[], bool], ready: Callable[[], None], root: Path = Path("/")
) -> int:
    """Writes samples until `stop` says so; how many. RunnerError where there is no /proc or no place for the file."""
    first = read(root)  # before the file is there
    return write_samples(path, _facts(root, hertz), _moments(root, first, 1 / hertz), stop=stop, ready=ready)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 or the program's status, 2 after a sentence on stderr."""
    what = "Samples processors, memory, network and disks of this machine."
    args = sampling_options("system_samples", what, hertz=_DEFAULT_HZ, file=NAME).parse_args(arguments)

    def sample_here(stop: Callable[[], bool], ready: Callable[[], None]) -> tuple[int, str]:
        return sample(args.out, hertz=args.hertz, stop=stop, ready=ready), ""

    return exit_status("system_samples", lambda: sample_while("system_samples", args, sample_here, max_hz=_MAX_HZ))


if __name__ == "__main__":
    sys.exit(main())
