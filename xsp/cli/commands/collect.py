"""`xsp collect`: hands over to the runners, which import nothing of ours and run where the work does."""

from __future__ import annotations

import os
import sys

import typer

__all__ = ["collect"]


def collect(context: typer.Context) -> None:
    """Run a workload at several levels and leave a run set for xsp merge. See `xsp collect --help`."""
    sys.stdout.flush()
    # Becoming the runner, not starting it, lets it answer signals itself and end with its own status.
    os.execv(sys.executable, [sys.executable, "-m", "runners.collect", *context.args])  # noqa: S606 (no shell is meant)
