"""Programs that stand in for a profiler in tests."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_tool"]


def write_tool(path: Path, body: str) -> str:
    """Writes a program of these lines of Python, `arguments` being its command line; its path."""
    path.write_text(f"#!{sys.executable}\nimport pathlib, sys\narguments = sys.argv[1:]\n{body}\n")
    path.chmod(0o755)
    return str(path)
