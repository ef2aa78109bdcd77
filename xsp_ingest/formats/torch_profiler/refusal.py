"""What scanners say of a file that they cannot use, or that a slower one should read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CannotScan", "cut_off", "no_events", "not_json", "too_deep"]


class CannotScan(Exception):  # noqa: N818 (an answer, not an error)
    """The file is no JSON, or such as another scanner should judge."""


# What both scanners say of a file they cannot use.

_AGAIN = "Export or copy the trace again; a profiler that was killed leaves such files"


def cut_off(path: Path, _why: str = "") -> XspError:
    """The file ends in the middle of its JSON or of its compressed stream."""
    return XspError("the trace is cut off: the file ends before its JSON does", path=path, advice=_AGAIN)


def not_json(path: Path, offset: int) -> XspError:
    """Something that is no JSON stands `offset` characters into the content."""
    return XspError(f"the trace is not valid JSON at character {offset}", path=path, advice=_AGAIN)


def too_deep(path: Path) -> XspError:
    """Lists or objects in one another by the thousand."""
    return XspError(
        "the JSON nests lists or objects some thousand deep",
        path=path,
        advice="Is it a trace that torch.profiler wrote?",
    )


def no_events(path: Path) -> XspError:
    """JSON, but neither a list of events nor an object that holds one."""
    return XspError(
        "the JSON holds no list `traceEvents`", path=path, advice="Is it a trace that torch.profiler wrote?"
    )
