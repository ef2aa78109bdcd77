"""One damaged variant of a file's content, the kind of damage fitting what the content is."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

from fuzz import columns, json_tree, lines, raw_bytes, sqlite_pages, sqlite_rows, wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    _Damage = Callable[[bytes, Random], bytes | None]

__all__ = ["mutate"]

_GZIP_MAGIC = b"\x1f\x8b"
_SQLITE_MAGIC = b"SQLite format 3\0"
_BYTES_SHARE = 0.25
_TEXT_SHARE = 0.2


def _database(content: bytes, random: Random) -> bytes | None:
    if not content.startswith(_SQLITE_MAGIC):
        return None
    damages: list[_Damage] = [sqlite_rows.damage, sqlite_pages.damage, sqlite_pages.damage]
    return random.choice(damages)(content, random)


_STRUCTURED: tuple[_Damage, ...] = (
    _database,
    json_tree.damage,
    json_tree.damaged_lines,
    columns.damage,
    wire.damage,
)


def mutate(content: bytes, random: Random) -> bytes:
    """The content damaged: its structure mostly, its bytes sometimes; gzip is mostly opened first and packed again."""
    if content.startswith(_GZIP_MAGIC) and random.random() > _BYTES_SHARE / 2:
        try:
            inner = mutate(gzip.decompress(content), random)
        except (OSError, EOFError, zlib.error):
            return raw_bytes.damage(content, random)
        return inner if random.random() < _TEXT_SHARE else gzip.compress(inner, 1, mtime=0)
    if random.random() < _BYTES_SHARE:
        return raw_bytes.damage(content, random)
    if random.random() < _TEXT_SHARE and (text := lines.damage(content, random)) is not None:
        return text
    for damage in (*_STRUCTURED, lines.damage, raw_bytes.damage):
        if (changed := damage(content, random)) is not None:
            return changed
    return content
