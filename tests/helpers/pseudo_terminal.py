"""The command in this process, with a pseudo-terminal for its stdout."""

from __future__ import annotations

import contextlib
import os
import pty
import sys
import threading
from typing import TYPE_CHECKING

from xsp.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

__all__ = ["shown_on_terminal"]


def shown_on_terminal(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path, columns: int = 120) -> str:
    """What the command shows on a terminal so wide, whose user wants no colours; it has to end well."""
    ours, its = pty.openpty()
    parts: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 65536):
                parts.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    with monkeypatch.context() as patched, open(its, "w", encoding="utf-8") as terminal:  # noqa: PTH123 (a descriptor)
        patched.setattr(sys, "stdout", terminal)
        patched.setenv("NO_COLOR", "1")
        patched.setenv("COLUMNS", str(columns))
        status = main([str(argument) for argument in arguments])
    reader.join()
    os.close(ours)
    assert status == 0
    return b"".join(parts).decode().replace("\r\n", "\n")
