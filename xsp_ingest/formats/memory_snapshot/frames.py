"""The lines of Python in the stack of an allocation, as a snapshot keeps it."""

from __future__ import annotations

from pathlib import PurePosixPath

__all__ = ["lines_of"]

_MAX_LINES = 3
_SEPARATOR = "; "
_FRAMEWORK = ("/torch/", "<")  # of paths: PyTorch's own files, and code without a file


def lines_of(frames: object, *, keep_private: bool) -> str | None:
    """The user's innermost lines as `file:line function`, innermost first; null where there are none."""
    if not isinstance(frames, list):
        return None
    lines = [line for frame in frames if (line := _line(frame, keep_private=keep_private))]
    return _SEPARATOR.join(lines[:_MAX_LINES]) or None


def _line(frame: object, *, keep_private: bool) -> str | None:
    """Frames of C++ have no Python file, and those of PyTorch do not tell who asked."""
    if not isinstance(frame, dict):
        return None
    path, line, function = (frame.get(key) for key in ("filename", "line", "name"))
    if not isinstance(path, str) or not isinstance(line, int) or not isinstance(function, str):
        return None
    path = path.replace("\\", "/")
    if not path.endswith(".py") or any(mark in path for mark in _FRAMEWORK):
        return None
    return f"{path if keep_private else PurePosixPath(path).name}:{line} {function}"
