"""The beginning of a file, by which its format is recognised."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from xsp_ingest.files.source import MAGIC, inflated_head
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Probe"]

_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class Probe:
    """A file's first 64 KiB, as they are and decompressed: all that `sniff` looks at, besides SQLite's tables."""

    path: Path

    @cached_property
    def head(self) -> bytes:
        """The first bytes as they are on disk."""
        try:
            with self.path.open("rb") as file:
                return file.read(_HEAD_BYTES)
        except OSError as error:
            raise XspError(f"the file cannot be read ({error.strerror})", path=self.path) from error

    @cached_property
    def is_gzip(self) -> bool:
        """Whether the file is gzip-compressed."""
        return self.head.startswith(MAGIC)

    @cached_property
    def text(self) -> bytes:
        """The first bytes of the content, decompressed where needed."""
        if not self.is_gzip:
            return self.head
        return inflated_head(self.head, _HEAD_BYTES, self._damage_error)

    def _damage_error(self, _: str) -> XspError:
        sentence = "the file says it is gzip but cannot be decompressed"
        return XspError(sentence, path=self.path, advice="Copy it again")
