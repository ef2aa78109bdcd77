"""Whether this process may read the GPU's counters, found out before anything runs under ncu."""

from __future__ import annotations

import re
from pathlib import Path

from xsp_runners.ncu_command import NO_PERMISSION

__all__ = ["refusal"]

_DRIVER = Path("/proc/driver/nvidia/params")
_PROCESS = Path("/proc/self/status")
_ADMINISTRATORS_ONLY = re.compile(r"(?m)^RmProfilingAdminOnly:\s*1\s*$")
_CAPABILITIES = re.compile(r"(?m)^CapEff:\s*([0-9a-fA-F]+)\s*$")
_SYS_ADMIN = 21  # CAP_SYS_ADMIN, which root in a container does not have


def refusal(driver: Path = _DRIVER, process: Path = _PROCESS) -> str | None:
    """Why counters may not be read here, by what the driver and the kernel say; None where they may, or say nothing."""
    if not _ADMINISTRATORS_ONLY.search(_text(driver)):
        return None
    held = _CAPABILITIES.search(_text(process))
    return NO_PERMISSION if held and not int(held[1], 16) >> _SYS_ADMIN & 1 else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
