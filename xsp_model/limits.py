"""Thresholds of how something is done, in one value: from how many bytes or rows on, and how much at once."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Limits", "limited", "limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What tests, fuzzers and builds set otherwise, so that small inputs take the paths of large ones."""

    # reading content and traces of torch.profiler
    content_block_bytes: int = 1 << 22  # of content, read or decompressed at once
    gzip_read_bytes: int = 1 << 18  # of a compressed file, read at once
    json_entry_max_bytes: int = 1 << 25  # of an entry of a JSON list, which is held as a whole
    streamed_min_bytes: int = 1 << 18  # of content; to get msgspec ready for less takes longer than to use `json`
    streamed_piece_bytes: int = 1 << 19  # of events, decoded at once by msgspec
    streamed_cut_bytes: int = 1 << 12  # at the end of a piece, in which the border of two events is looked for first
    compiled_min_bytes: int = 1 << 20  # of content; to load machine code for less takes longer than to do without
    compiled_finish_min_bytes: int = 8 << 20  # likewise, once per installation: to make it of what came along,
    compiled_compile_min_bytes: int = 256 << 20  # and to compile it
    compiled_buffer_bytes: int = 1 << 22  # of content, before the machine code at once
    compiled_first_rows: int = 1 << 14  # for which tables have room at first: events,
    compiled_first_details: int = 1 << 12  # those with details,
    compiled_first_frames: int = 1 << 12  # functions of Python,
    compiled_first_texts: int = 1 << 14  # distinct texts
    compiled_first_text_bytes: int = 1 << 21  # and what they take
    trace_piece_rows: int = 1 << 17  # events of a trace, scanned and shaped at once


_current: ContextVar[Limits] = ContextVar("limits")
_USUAL = Limits()


def limits() -> Limits:
    """The limits that hold here; a thread of one's own has the usual ones unless it runs in a copy of this context."""
    return _current.get(_USUAL)


@contextmanager
def limited(**changes: int) -> Iterator[None]:
    """Within, these fields of `Limits` have other values; TypeError for a name that is no field."""
    token = _current.set(replace(limits(), **changes))
    try:
        yield
    finally:
        _current.reset(token)
