"""Files that appear only when they are whole."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["unwritable", "write"]


def write(path: Path, content: str) -> Path:
    """Writes the text beside its place and renames it into it; XspError where that cannot be done."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_text(content, encoding="utf-8")
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    return path


def unwritable(path: Path, error: OSError) -> XspError:
    """The error for whoever asked for the file."""
    return XspError(f"cannot be written ({error.strerror or error})", path=path, advice="Choose another place")
