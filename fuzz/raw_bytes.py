"""Damage to bytes of any format: flips, cuts, repeats, zeroed blocks, stretches in another order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

__all__ = ["damage"]

_EVIL = (
    *(b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x80", b"\xed\xa0\x80"),
    *(b'"', b"{", b"[", b"]", b"\\", b"\n", b","),
)


def damage(content: bytes, random: Random) -> bytes:
    """The content with one to four kinds of damage."""
    for _ in range(random.randint(1, 4)):
        content = random.choice((_flip, _flip, _cut, _drop, _repeat, _zero, _swap, _insert))(content, random)
    return content


def _stretch(content: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(content) + 1)
    return start, min(len(content), start + random.choice([1, 2, 8, 100, 4096]))


def _flip(content: bytes, random: Random) -> bytes:
    out = bytearray(content)
    for _ in range(random.choice([1, 1, 3, 20]) if out else 0):
        out[random.randrange(len(out))] ^= 1 << random.randrange(8)
    return bytes(out)


def _cut(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _drop(content: bytes, random: Random) -> bytes:
    start, end = _stretch(content, random)
    return content[:start] + content[end:]


def _repeat(content: bytes, random: Random) -> bytes:
    start, end = _stretch(content, random)
    return content[:end] + content[start:end] * random.choice([1, 2, 30]) + content[end:]


def _zero(content: bytes, random: Random) -> bytes:
    start, end = _stretch(content, random)
    return content[:start] + bytes(end - start) + content[end:]


def _swap(content: bytes, random: Random) -> bytes:
    (a, b), (c, d) = sorted((_stretch(content, random), _stretch(content, random)))
    return content[:a] + content[c:d] + content[min(b, c) : c] + content[a : min(b, c)] + content[d:]


def _insert(content: bytes, random: Random) -> bytes:
    offset = random.randrange(len(content) + 1)
    return content[:offset] + random.choice(_EVIL) + content[offset:]
