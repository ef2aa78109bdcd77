"""What besides inputs and options decides what a conversion gives: this program, its libraries, and NVIDIA's tools."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path

__all__ = ["program", "version_of"]

_PACKAGES = ("xsp_model", "xsp_ingest", "xsp_analyze", "xsp")
_LIBRARIES = ("xsp", "polars", "pyarrow", "numpy", "msgspec", "protobuf", "cxxfilt", "adbc-driver-sqlite")
_ENTRY_POINTS = "xsp.ingesters"  # as xsp_ingest.registry, which imports every format; a test holds them equal
_SOURCES = (".py", ".toml")
_TOOLS = (("XSP_NSYS", "nsys"), ("XSP_NCU", "ncu"))  # they open .nsys-rep and .ncu-rep files


def program(nsys: str | None = None) -> list[str]:
    """One line a thing; another line means that a trace must be converted again.

    The source files count by size and time, not by the version alone, which stays the same in a checkout that somebody
    works in. `nsys`: the one that the user named.
    """
    others = sorted(entry_points(group=_ENTRY_POINTS), key=lambda each: (each.name, each.value))
    packages = (*_PACKAGES, *(each.module.split(".")[0] for each in others))
    return [
        f"python {sys.version}",
        *(f"{name} {version_of(name)}" for name in _LIBRARIES),
        *(f"{each.name} {each.value} {each.dist.version if each.dist else ''}" for each in others),
        *(f"{name} {_sources(name)}" for name in packages),
        *(f"{name} {_tool(nsys if name == 'nsys' else None, variable, name)}" for variable, name in _TOOLS),
    ]


def version_of(name: str) -> str:
    """The installed version of a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _sources(package: str) -> str:
    spec = find_spec(package)
    roots = list(spec.submodule_search_locations or ()) if spec else []
    files = [spec.origin] if spec and spec.origin and not roots else []
    for root in roots:
        for at, _, names in os.walk(root):
            files += [os.path.join(at, name) for name in names if name.endswith(_SOURCES)]  # noqa: PTH118 (many files)
    digest = hashlib.sha256()
    for file in sorted(files):
        status = os.stat(file)  # noqa: PTH116
        digest.update(f"{file}\n{status.st_size}\n{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _tool(named: str | None, variable: str, name: str) -> str:
    path = shutil.which(named or os.environ.get(variable) or name)
    if path is None:
        return "none"
    real = Path(path).resolve()
    return f"{real} {real.stat().st_size} {real.stat().st_mtime_ns}"
