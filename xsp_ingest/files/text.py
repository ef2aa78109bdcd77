"""A file's content as text, plain or gzip, in UTF-8 or UTF-16, its lines bounded."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING

from xsp_ingest.files.content import cut_off
from xsp_ingest.files.source import open_source
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO

    from xsp_ingest.files.source import Source

__all__ = ["MAX_LINE_CHARACTERS", "decode_head", "open_text"]

MAX_LINE_CHARACTERS = 1 << 24
"""No line is longer in a file that is read by lines."""

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_BUFFER_BYTES = 1 << 18


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """The file as text: plain or gzip, UTF-8 or (as PowerShell redirects) UTF-16, with any line ending."""
    with open_source(path, cut_off) as source, io.BufferedReader(_Content(source), _BUFFER_BYTES) as stream:
        encoding = "utf-16" if stream.peek(2)[:2] in _UTF16 else "utf-8-sig"
        with _Lines(stream, encoding=encoding, errors="replace", newline=None) as text:
            text.path = path
            yield text


class _Content(io.RawIOBase):
    """A file's content, decompressed where needed and no longer than any trace, as a stream of bytes."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override] # typeshed: any buffer
        """The next bytes; none at the end. XspError where gzip is damaged or cut off."""
        return self._source.fill(target)


class _Lines(io.TextIOWrapper):
    """Lines none of which is so long that a damaged or hostile file could fill the memory with it."""

    path: Path | None = None

    def __next__(self) -> str:  # type: ignore[override] # as typeshed's own TextIOWrapper says
        line = self.readline(MAX_LINE_CHARACTERS)
        if len(line) >= MAX_LINE_CHARACTERS:
            raise XspError(
                f"a line of the file is longer than {MAX_LINE_CHARACTERS >> 20} MiB",
                path=self.path,
                advice="Copy or export the file again",
            )
        if not line:
            raise StopIteration
        return line


def decode_head(head: bytes) -> str:
    """The first bytes of a file as text."""
    return head.decode("utf-16" if head[:2] in _UTF16 else "utf-8-sig", errors="ignore").replace("\r", "\n")
