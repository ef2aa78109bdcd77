"""Which inputs hold the same: links to one file, copies of it, gzip beside what is in it, folders and their copies."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import TYPE_CHECKING

from xsp_ingest.files.content import Probe, pieces
from xsp_ingest.files.safe_files import sha256
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ["first_alike", "head_of"]

_HEAD_BYTES = 1 << 15  # half of what a probe reads: as gzip what does not compress is a little longer


def first_alike(paths: Sequence[Path]) -> list[int]:
    """For each path the position of the first one that holds the same: its own where that is itself.

    Gzip counts as what is in it, a folder as all files below it. Of one file under several names nothing is read, of
    files that begin differently no more than that, and whatever else it takes once. What cannot be read is like nothing
    else: reading it says why.
    """
    first = list(range(len(paths)))

    def note(groups: Iterable[Sequence[int]]) -> None:
        for group in groups:
            for position in group:
                first[position] = group[0]

    def still_first(positions: Iterable[int]) -> list[int]:
        return [position for position in positions if first[position] == position]

    note(_groups(paths, first, _identity))
    for alike in _groups(paths, still_first(range(len(paths))), head_of):
        for as_long in _groups(paths, alike, _bytes_on_disk):
            note(_groups(paths, as_long, _digest))
        note(_equal_unpacked(paths, still_first(alike)))
    for position, earlier in enumerate(first):
        first[position] = first[earlier]
    return first


def _groups(paths: Sequence[Path], positions: Iterable[int], key: Callable[[Path], Hashable]) -> list[list[int]]:
    """The positions of paths with one key, where these are several."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for position in positions:
        try:
            groups[key(paths[position])].append(position)
        except (XspError, OSError):
            continue
    return [group for group in groups.values() if len(group) > 1]


def _identity(path: Path) -> Hashable:
    status = path.stat()
    return status.st_dev, status.st_ino


def head_of(path: Path) -> Hashable:
    """What inputs of the same content have in common and others seldom: how they begin; of folders what is in them."""
    if path.is_dir():
        return tuple((file.relative_to(path), file.stat().st_size) for file in _files_below(path))
    return Probe(path).text[:_HEAD_BYTES]


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _bytes_on_disk(path: Path) -> int:
    return 0 if path.is_dir() else path.stat().st_size


def _digest(path: Path) -> Hashable:
    if path.is_dir():
        return tuple(sha256(file) for file in _files_below(path))
    return sha256(path)


def _equal_unpacked(paths: Sequence[Path], positions: Sequence[int]) -> Iterator[Sequence[int]]:
    """Those with one content, where gzip is among them; of plain files only those are read that are as long as it."""
    if len(positions) == 1 or paths[positions[0]].is_dir():
        return
    packed = [position for position in positions if Probe(paths[position]).is_gzip]
    contents: dict[int, tuple[int, str]] = {}
    for position in packed:
        try:
            contents[position] = _content(paths[position])
        except (XspError, OSError):
            continue
    lengths = {length for length, _ in contents.values()}
    for position in set(positions) - set(packed):
        size = paths[position].stat().st_size
        if size in lengths:
            contents[position] = size, sha256(paths[position])
    alike: dict[tuple[int, str], list[int]] = defaultdict(list)
    for position in sorted(contents):
        alike[contents[position]].append(position)
    yield from alike.values()


def _content(path: Path) -> tuple[int, str]:
    """How long the content is, and its digest."""
    length, digest = 0, hashlib.sha256()
    for piece in pieces(path):
        length += len(piece)
        digest.update(piece)
    return length, digest.hexdigest()
