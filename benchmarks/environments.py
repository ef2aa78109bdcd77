"""The peers' own environments: made and filled on first use, or a reason why one cannot be had."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "HTA",
    "NSYS_AI",
    "PANDAS",
    "PLOT",
    "RECIPE",
    "TENSORBOARD",
    "Environment",
    "Unavailable",
    "nsys",
    "versions",
]


class Unavailable(Exception):  # noqa: N818 (an answer, not an error)
    """A peer cannot be had here; says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python of a peer; `packages` as pip takes them, the first of them is the peer."""

    name: str
    packages: Sequence[str] = field(default=())

    def python(self, cache: Path) -> Path:
        """Its Python, made where it is missing; Unavailable where it cannot be."""
        folder = cache / "environments" / self.name
        python = folder / "bin" / "python"
        if not python.exists():
            venv.create(folder, with_pip=True)
        missing = set(self.packages) - set(versions(python, self.packages))
        if missing:
            command: list[str | Path] = [python, "-m", "pip", "install", "-q", *sorted(missing)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            if result.returncode:
                raise Unavailable(f"pip could not install it: {(result.stderr.strip().splitlines() or ['?'])[-1]}")
        return python

    def versions(self, cache: Path) -> dict[str, str]:
        """What it holds of `packages`, by name; nothing where it was not made."""
        python = cache / "environments" / self.name / "bin" / "python"
        return versions(python, self.packages) if python.exists() else {}


HTA = Environment("hta", ("HolisticTraceAnalysis", "pandas", "numpy"))
TENSORBOARD = Environment("tensorboard", ("torch-tb-profiler", "pandas"))
PLOT = Environment("plot", ("matplotlib",))
PANDAS = Environment("pandas", ("pandas",))
NSYS_AI = Environment("nsys-ai", ("nsys-ai",))
RECIPE = Environment("nsys-recipe", ("numpy", "pandas", "psutil", "pyarrow"))


def nsys() -> str:
    """The nsys of $XSP_NSYS or of PATH; Unavailable where there is none."""
    path = os.environ.get("XSP_NSYS") or shutil.which("nsys")
    if path is None or not Path(path).exists():
        raise Unavailable("there is no nsys: put it on PATH or name it in XSP_NSYS")
    return path


def versions(python: Path | str, packages: Sequence[str]) -> dict[str, str]:
    """The versions of those packages that the Python has."""
    code = (
        "import importlib.metadata as m, sys\n"
        "for name in sys.argv[1:]:\n"
        "    try: print(name, m.version(name))\n"
        "    except m.PackageNotFoundError: pass"
    )
    command = [str(python or sys.executable), "-c", code, *packages]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(line.split() for line in result.stdout.splitlines())
