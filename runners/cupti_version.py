"""Which release of cupti-python goes with the CUDA that torch was built for."""

from __future__ import annotations

import re
from importlib import metadata, util
from pathlib import Path

__all__ = ["installed_version", "remedy", "requirement", "torch_cuda"]

_RELEASES = ((12, 6), (12, 8), (13, 0), (13, 2), (13, 3), (13, 4))  # of cupti-python until 13.4
_CUDA = re.compile(r"(?m)^cuda\b[^=\n]*=\s*['\"](\d+)\.(\d+)")


def torch_cuda() -> tuple[int, int] | None:
    """The CUDA that the torch at hand was built for, found without importing it; None of a CPU build or without."""
    try:
        spec = util.find_spec("torch")
        text = Path(spec.origin or "").with_name("version.py").read_text(encoding="utf-8") if spec else ""
    except (OSError, ValueError):
        return None
    match = _CUDA.search(text)
    return (int(match[1]), int(match[2])) if match else None


def installed_version() -> str | None:
    """The version of cupti-python here; None where it is not installed."""
    try:
        return metadata.version("cupti-python")
    except metadata.PackageNotFoundError:
        return None


def requirement(cuda: tuple[int, int] | None) -> str:
    """What to install: the last release that is not newer than this CUDA, of the same major version."""
    fitting = [each for each in _RELEASES if cuda and each[0] == cuda[0] and each <= cuda]
    if cuda is None or not fitting:
        return "cupti-python"
    major, minor = cuda if cuda > _RELEASES[-1] else fitting[-1]
    return f"'cupti-python=={major}.{minor}.*'"


def remedy() -> str:
    """What to install, and why that; empty where the version that is here is the one."""
    cuda, version = torch_cuda(), installed_version()
    needed = requirement(cuda)
    release = needed.partition("==")[2].removesuffix("*'")
    if version is not None and version.startswith(release):
        return ""
    of_torch = f", as torch here is built for CUDA {cuda[0]}.{cuda[1]}" if cuda else ""
    here = f" (here is {version})" if version and of_torch else ""
    return f"pip install {needed}{of_torch}{here}"
