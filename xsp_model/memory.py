"""How much memory there is and how much is free: of the machine, of a container, and of what this process may take."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

__all__ = ["available_bytes", "limit_bytes", "resident_bytes"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_CGROUP = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")
_SIZES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))
_IDLE = ("inactive_file ", "total_inactive_file ")  # pages of files that the system lets go of when it needs room
_KIB = 1024


def limit_bytes() -> int:
    """The most memory that this process can have: the machine's, or what a container or `ulimit` leaves it."""
    machine = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    return min([machine, *(limit for limit, _ in _container_sizes()), *_process_limits()])


def available_bytes() -> int:
    """How much of that is free now."""
    of_containers = (limit - used for limit, used in _container_sizes())
    of_process = (limit - resident_bytes() for limit in _process_limits())
    return max(min([_machine_free(), *of_containers, *of_process]), 0)


def resident_bytes() -> int:
    """What this process holds in memory."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):  # no Linux: the most that it ever held
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * _KIB


def _machine_free() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * _KIB for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return int(os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES)


def _container_sizes() -> list[tuple[int, int]]:
    """Of the control groups around this process, version 2 or 1, that set one: the limit, and what all in it hold."""
    sizes = []
    for folder in _control_groups():
        for limit, used in _SIZES:
            try:
                limit_size = int((folder / limit).read_text(encoding="ascii"))
            except (OSError, ValueError):  # not there, or "max"
                continue
            sizes.append((limit_size, _used_bytes(folder, used)))
    return sizes


def _used_bytes(folder: Path, name: str) -> int:
    try:
        used = int((folder / name).read_text(encoding="ascii"))
        stat = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return resident_bytes()
    idle = max((int(line.split()[1]) for line in stat if line.startswith(_IDLE)), default=0)
    return max(used - idle, 0)


def _control_groups() -> list[Path]:
    """The folders of the groups that this process is in, and of those around them."""
    try:
        lines = _OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders = {_CGROUP, _CGROUP / "memory"}
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            own = (_CGROUP / controllers if controllers else _CGROUP) / path.strip("/")
            folders |= {own, *(above for above in own.parents if above.is_relative_to(_CGROUP))}
    return sorted(folders)


def _process_limits() -> list[int]:
    softs = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return [soft for soft in softs if soft != resource.RLIM_INFINITY]
