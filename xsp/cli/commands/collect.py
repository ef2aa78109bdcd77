"""`xsp collect`: hands over to the runners, which import nothing of ours and run where the work does."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import typer

__all__ = ["collect"]

_CHECKOUT = Path(__file__).resolve().parents[3]


def collect(context: typer.Context) -> None:
    """Run a workload at several levels and leave a run set for xsp merge. See `xsp collect --help`."""
    sys.stdout.flush()
    # Becoming the runner, not starting it, lets it answer signals itself and end with its own status.
    os.execv(sys.executable, [sys.executable, str(_runner()), *context.args])  # noqa: S606 (no shell is meant)


def _runner() -> Path:
    """The runner's file as installed, else in this checkout. By its path, a user's own `runners` is not in the way."""
    installed = find_spec("xsp_runners")  # of a top-level package, which this does not import
    folder = Path(installed.origin).parent if installed and installed.origin else _CHECKOUT / "runners"
    return folder / "collect.py"
