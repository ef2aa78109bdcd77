"""Inputs that are the same once more: by their content, beside their own export, or by the work that they recorded."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.files.content import Probe, pieces
from xsp_ingest.files.safe_files import inside, sha256, size_of
from xsp_model import Finding, Kind, LedgerKind, Level, XspError, bundle
from xsp_model.errors import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Ingester

__all__ = [
    "Distinct",
    "Recorded",
    "beside_sources",
    "bundle_findings",
    "content_of",
    "distinct",
    "distinct_names",
    "finding",
    "first_alike",
    "first_names",
    "head_of",
    "same_recordings",
    "sources",
    "without_exported",
]

# Which inputs hold the same: links to one file, copies of it, gzip beside what is in it, folders and their copies.

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
    """Files with one content, where gzip is among them; of plain files only those are read that are as long as it."""
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


_NAMED = 3
_NS_PER_US = 1000

_FEWEST_TIMED = 10  # kernels, or operators: fewer may agree by chance


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a run recorded: whose it says it is, and its spans (level, kind, start_ns, duration_ns)."""

    name: str
    rank: int | None
    spans: pl.DataFrame


@dataclass(frozen=True, slots=True)
class Distinct:
    """Inputs of which none is another one again, by their positions; and the files left out, each with its like."""

    inputs: Mapping[int, Sequence[Path]]
    copies: Mapping[Path, Path]


def distinct(inputs: Sequence[Sequence[Path]], content: Mapping[Path, Path] | None = None) -> Distinct:
    """The inputs without those all of whose files another one has, and each without files that it has already.

    Of such inputs that of most files stays, of these the first. What inputs share otherwise stays in each: processes of
    one machine describe it alike. `content`: of each file the first that holds the same, where that is known.
    """
    content = content_of(path for files in inputs for path in files) if content is None else content
    files_of = [{content[path]: path for path in reversed(files)} for files in inputs]
    kept: dict[int, Sequence[Path]] = {}
    holders: dict[Path, list[int]] = {}
    copies: dict[Path, Path] = {}
    for position in sorted(range(len(inputs)), key=lambda n: (-len(files_of[n]), n)):
        own = files_of[position]
        rarest = min((holders.get(each, []) for each in own), key=len)
        holder = next((each for each in rarest if own.keys() <= files_of[each].keys()), None)
        of = own if holder is None else files_of[holder]
        copies |= {path: of[content[path]] for path in inputs[position] if path != of[content[path]]}
        if holder is None:
            kept[position] = [path for path in inputs[position] if path == own[content[path]]]
            for each in own:
                holders.setdefault(each, []).append(position)
    return Distinct({position: kept[position] for position in sorted(kept)}, copies)


def content_of(files: Iterable[Path]) -> dict[Path, Path]:
    """Of each file the first that holds the same, which may be itself."""
    paths = list(dict.fromkeys(files))
    return {path: paths[first] for path, first in zip(paths, first_alike(paths), strict=True)}


def finding(copies: Mapping[Path, Path]) -> Finding:
    """What the ledger says of files that were not read, each with the one that holds the same."""
    names = (distinct_names(copy, of) for copy, of in sorted(copies.items()))
    pairs = [f"{copy} (as {of})" for copy, of in names]
    kind = LedgerKind.SAME_CONTENT_AGAIN
    return Finding(kind, f"{kind.sentence}: {first_names(pairs)}", len(pairs))


def first_names(names: Sequence[str]) -> str:
    """Some of the names, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def distinct_names(one: Path, other: Path) -> tuple[str, str]:
    """The names of two files, with their folders' where they are the same."""
    if one.name != other.name:
        return readable(one.name), readable(other.name)
    return readable("/".join(one.parts[-2:])), readable("/".join(other.parts[-2:]))


def without_exported(files: Sequence[tuple[Path, Ingester]]) -> tuple[list[tuple[Path, Ingester]], dict[Path, Path]]:
    """The files without those beside which their export lies, and these with the exports, which are read instead."""
    there = {path for path, _ in files}
    exports = {
        path: export
        for path, ingester in files
        if ingester.exported_with and (export := _export_of(path, ingester.own_ending, ingester.exported_with)) in there
    }
    return [one for one in files if one[0] not in exports], exports


def same_recordings(files: Sequence[Sequence[Recorded]]) -> Iterator[Finding]:
    """What the ledger says of runs of different files whose work took the same times: one recording, written twice.

    The work: kernels; where there are none, operators and ranges. Times from the first start on agree to a nanosecond,
    or, where a file has whole microseconds, to one. Runs that both say their rank are two, or said to be one already.
    """
    if all(run.rank is not None for runs in files for run in runs):
        return
    each = [(file, run, work) for file, runs in enumerate(files) for run in runs for work in _works_of(run.spans)]
    times_of = cache(lambda number: _times(each[number][2]))
    firsts: dict[int, list[int]] = {}
    pairs: dict[str, str] = {}
    for number, (file, run, work) in enumerate(each):
        alike = firsts.setdefault(work.height, [])
        others = (n for n in alike if each[n][0] != file and None in (run.rank, each[n][1].rank))
        first = next((n for n in others if _agree(times_of(number), times_of(n))), None)
        if first is None:
            alike.append(number)
        else:
            pairs.setdefault(run.name, f"{run.name} (as {each[first][1].name})")
    kind = LedgerKind.SAME_WORK_AGAIN
    yield Finding(kind, f"{kind.sentence}: {first_names([*pairs.values()])}", len(pairs))


def _works_of(spans: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Both times of kernels; where there are none those of operators and those of ranges: of any that are enough."""
    level, kind = (pl.col(column).cast(pl.String) for column in ("level", "kind"))
    kernels = spans.filter(kind == str(Kind.KERNEL))
    without_kernels = (spans.filter(level == str(of)) for of in (Level.OPERATOR, Level.APPLICATION))
    for rows in [kernels] if kernels.height else without_kernels:
        times = rows.select("start_ns", "duration_ns").drop_nulls()
        if times.height >= _FEWEST_TIMED:
            yield times


def _times(work: pl.DataFrame) -> np.ndarray:
    """Starts after the first one, and durations, in ns, by start: (spans, 2)."""
    in_order = work.sort("start_ns", "duration_ns")
    return in_order.with_columns(pl.col("start_ns") - pl.col("start_ns").min()).to_numpy()


def _agree(one: np.ndarray, other: np.ndarray) -> bool:
    whole_us = any(not (times % _NS_PER_US).any() for times in (one, other))
    return bool((np.abs(one - other) <= (_NS_PER_US if whole_us else 1)).all())


def _export_of(path: Path, own_ending: str | None, ending: str) -> Path:
    own = path.suffix if own_ending is None else own_ending
    return path.with_name(path.name.removesuffix("" if own_ending is None else ".gz").removesuffix(own) + ending)


def bundle_findings(folders: Sequence[Path], read: Sequence[Path], digest_of: Mapping[Path, str]) -> list[Finding]:
    """What the ledger says of bundles that lie in folders of which other files were read: those of these, and others.

    `digest_of`: digests of some of what was read.
    """
    bundles = [path for folder in folders if folder.is_dir() for path in inside(folder)[0] if bundle.is_bundle(path)]
    again = beside_sources(bundles, read, digest_of)
    others = [readable(path.name) for path in bundles if path not in again]
    kind = LedgerKind.BUNDLE_NOT_READ
    return [finding(again), Finding(kind, f"{kind.sentence}: {first_names(others)}", len(others))]


def beside_sources(
    inputs: Sequence[Path], others: Sequence[Path], digest_of: Mapping[Path, str] = MappingProxyType({})
) -> Mapping[Path, Path]:
    """The bundles all of whose sources are among the others, or in these, each with its first source.

    `digest_of`: digests of some of the others, which need not be worked out again.
    """
    made_of = {path: recorded for path in inputs if bundle.is_bundle(path) and (recorded := sources(path))}
    lengths = {length for recorded in made_of.values() for _, length in recorded}
    files = [(path, size_of(path)) for path in _files(others)] if made_of else []
    by_digest: dict[str, Path] = {}
    for path, length in files:
        if length in lengths:
            by_digest.setdefault(digest_of.get(path) or sha256(path), path)
    return {
        path: by_digest[recorded[0][0]]
        for path, recorded in made_of.items()
        if all(digest in by_digest for digest, _ in recorded)
    }


def sources(path: Path) -> list[tuple[str, int]]:
    """Digest and length of each of a bundle's sources; none where it does not say them all."""
    try:
        recorded = bundle.read_manifest(path).get("sources")
        return [(str(each["source_sha256"]), int(each["source_bytes"])) for each in recorded]  # type: ignore[attr-defined]
    except (XspError, OSError, TypeError, KeyError, ValueError):
        return []


def _files(inputs: Sequence[Path]) -> Iterator[Path]:
    """The inputs but bundles, and the files in those that are folders."""
    for path in inputs:
        if path.is_dir() and bundle.is_bundle(path):
            continue
        yield path
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*") if file.is_file())
