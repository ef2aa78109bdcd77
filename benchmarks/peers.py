"""What is measured: how each program answers the same question about a trace."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["HTA", "Peer", "hta_python", "peers", "versions"]

HTA = "HolisticTraceAnalysis"
_REPO = Path(__file__).resolve().parents[1]
_XSP = (sys.executable, "-c", "from xsp_cli.main import main; raise SystemExit(main())")
_ANSWERS = ("-a", "A10", "-a", "B03", "-f", "json", "--steps", "all")
_HTA_SCRIPT = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
print(analysis.get_temporal_breakdown(visualize=False).to_csv())
for table in analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=10000):
    print(table.to_csv())
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """A way to the answer: commands to run one after the other."""

    name: str
    title: str
    commands: Callable[[Path, Path], Sequence[Sequence[str]]]  # of the trace and a scratch folder


def peers(hta: Path | None) -> list[Peer]:
    """All ways; HTA's where there is a Python that has it."""
    ours = [
        Peer(
            "xsp",
            "`xsp analyze trace.json -a A10 -a B03`",
            lambda trace, _: [(*_XSP, "analyze", str(trace), *_ANSWERS)],
        ),
        Peer("xsp through a bundle", "`xsp convert`, then `xsp analyze` of the bundle", _through_bundle),
    ]
    if hta is None:
        return ours
    title = "`TraceAnalysis`, `get_temporal_breakdown`, `get_gpu_kernel_breakdown`"
    return [*ours, Peer("HTA", title, lambda trace, _: [(str(hta), "-c", _HTA_SCRIPT, str(trace))])]


def _through_bundle(trace: Path, scratch: Path) -> list[tuple[str, ...]]:
    bundle = str(scratch / "trace.xsp")
    return [(*_XSP, "convert", str(trace), "-o", bundle), (*_XSP, "analyze", bundle, *_ANSWERS)]


def environment() -> dict[str, str]:
    """This one's, with our packages importable from the checkout."""
    return os.environ | {"PYTHONPATH": str(_REPO)}


def hta_python(cache: Path) -> tuple[Path | None, str]:
    """The Python of an environment that holds HTA, made where it is missing; else none, and the reason."""
    folder = cache / "hta"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    if versions(python, [HTA]):
        return python, ""
    found = subprocess.run([python, "-m", "pip", "install", "-q", HTA], capture_output=True, text=True, check=False)
    if found.returncode:
        return None, f"HTA could not be installed: {found.stderr.strip().splitlines()[-1]}"
    return python, ""


def versions(python: Path | str, packages: Sequence[str]) -> dict[str, str]:
    """The versions of those packages that the Python has."""
    code = (
        "import importlib.metadata as m, sys\n"
        "for name in sys.argv[1:]:\n"
        "    try: print(name, m.version(name))\n"
        "    except m.PackageNotFoundError: pass"
    )
    found = subprocess.run([python, "-c", code, *packages], capture_output=True, text=True, check=True)
    return dict(line.split() for line in found.stdout.splitlines())
