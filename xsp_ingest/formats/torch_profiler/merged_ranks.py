"""Traces merged of several ranks, whose processes and threads have texts as ids: a copy with numbers, and its parts."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.files.content import pieces
from xsp_ingest.formats.torch_profiler.scan_plain import cut_off, integer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp_ingest.formats.torch_profiler.events import Document

__all__ = [
    "Part",
    "numbered_copy",
    "part_of",
    "with_own_ids",
]

# Processes and threads whose ids are texts, as who merges the traces of several ranks names them: each text gets a
# number in a copy of the file, which any scanner reads, and each rank's events become a run of their own.

_ID = re.compile(rb'"(pid|tid|id)"(\s*:\s*)"((?:[^"\\]|\\.){0,1000})"')
_HELD_BACK = 4096  # of a piece: longer than any match
_FIRST_NUMBER = 1 << 40  # beyond what systems number processes and threads with
_COUNTED = re.compile(r"GPU \d+ Counters")  # read by their text
_RANK = re.compile(r"(?i)(?<![a-z])rank[ _:=#-]*(\d{1,9})(?!\d)")
_COORDINATE = re.compile(r"(?i)(?<![a-z])(TP|DP|PP|EP|CP)[ _:=-]*(\d{1,9})(?!\d)")
_ORDER = ("PP", "DP", "CP", "TP", "EP")  # from the outermost group of ranks in
_MAX_LABELS = 1024  # more are no ranks
_IN_BRACKETS = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank did in a merged file: its processes by the numbers of a `numbered_copy`; None: all others."""

    label: str | None
    rank: int | None
    processes: Mapping[int, int]  # with the ids that its texts have
    threads: Mapping[int, int]  # likewise, of the whole file


@contextmanager
def numbered_copy(path: Path) -> Iterator[tuple[Path, Sequence[Part]]]:
    """A copy of the file in which such ids are numbers, and the parts of which it is the whole."""
    numbers: dict[bytes, dict[str, int]] = {b"pid": {}, b"tid": {}}

    def with_number(match: re.Match[bytes]) -> bytes:
        key, colon, text = match.groups()
        written = text.decode(errors="replace")
        if integer(written) is not None or _COUNTED.fullmatch(written):
            return match[0]
        if key == b"id":  # of an arrow: nothing but whether two are the same counts
            return b'"id"%b%d' % (colon, int.from_bytes(blake2b(text, digest_size=7).digest()))
        number = numbers[key].setdefault(written, _FIRST_NUMBER + len(numbers[key]))
        return b'"%b"%b%d' % (key, colon, number)

    with TemporaryDirectory(prefix="xsp-merged-") as folder:
        copy = Path(folder, "trace.json")
        with copy.open("wb") as file:
            rest = b""
            for piece in pieces(path, cut_off):
                rest += piece
                if (end := _between_matches(rest)) > 0:
                    file.write(_ID.sub(with_number, rest[:end]))
                    rest = rest[end:]
            file.write(_ID.sub(with_number, rest))
        yield copy, _parts(numbers[b"pid"], numbers[b"tid"])


def _between_matches(text: bytes) -> int:
    """Where the text may be cut so that nothing that `_ID` finds lies across."""
    end = len(text) - _HELD_BACK
    across = [match for match in _ID.finditer(text, max(end - _HELD_BACK, 0)) if match.start() < end < match.end()]
    return across[0].start() if across else end


def _parts(processes: Mapping[str, int], threads: Mapping[str, int]) -> Sequence[Part]:
    """A part for each label among the processes, in their order, and one for what has none."""
    labels: dict[str, dict[int, str]] = {}
    for text, number in processes.items():
        label, rest = _label(text)
        if label is not None:
            labels.setdefault(label, {})[number] = rest
    if len(labels) > _MAX_LABELS:
        labels = {}
    own_threads = _own_ids({number: text for text, number in threads.items()})
    unlabelled = {number: text for text, number in processes.items() if _label(text)[0] not in labels}
    parts = [
        Part(label, rank, _own_ids(labels[label]), own_threads)
        for label, rank in sorted(_ranks(sorted(labels)).items(), key=lambda one: (one[1] is None, one[1] or 0))
    ]
    return [*parts, Part(None, None, _own_ids(unlabelled), own_threads)]


def _label(text: str) -> tuple[str | None, str]:
    """What of a process's text names its rank, and the rest, which has the process's own id."""
    match = _RANK.search(text) or (_IN_BRACKETS.match(text) or _COORDINATE.search(text))
    if match is None:
        return None, text
    coordinates = " ".join(each[0] for each in _COORDINATE.finditer(text))
    rest = _COORDINATE.sub("", text.replace(match[0], " ", 1))
    if match.re is _RANK:
        return f"rank {int(match[1])}", rest
    return coordinates if match.re is _COORDINATE else match[0], rest


def _own_ids(texts: Mapping[int, str]) -> Mapping[int, int]:
    """For each number the id that its text has, unless several have it; those without one count from below."""
    pairs = {number: integer(ids[-1]) for number, text in texts.items() if (ids := re.findall(r"\d{1,18}", text))}
    twice = {one for one, count in Counter(pairs.values()).items() if count > 1}
    return {
        number: own if (own := pairs.get(number)) is not None and own not in twice else -1 - position
        for position, number in enumerate(texts)
    }


def _ranks(labels: Sequence[str]) -> Mapping[str, int | None]:
    """The rank that each label says, as such or by its place among groups of ranks; None where that is not clear."""
    explicit = {label: int(match[1]) for label in labels if (match := _RANK.search(label))}
    if len(set(explicit.values())) == len(labels):
        return explicit
    coordinates = {label: {name.upper(): int(at) for name, at in _COORDINATE.findall(label)} for label in labels}
    used = {name for coordinate in coordinates.values() for name, at in coordinate.items() if at}
    for name in used if len(used) == 1 else ({"TP"} & used if len(labels) > 1 else ()):
        along = {label: coordinate.get(name, 0) for label, coordinate in coordinates.items()}
        if len(set(along.values())) == len(labels):
            return along
    distinct = {tuple(sorted(coordinate.items())) for coordinate in coordinates.values()}
    if not all(coordinates.values()) or len(distinct) < len(labels):
        return dict.fromkeys(labels)
    if len(labels) == 1:
        return dict.fromkeys(labels, None if used else 0)
    in_order = sorted(labels, key=lambda label: [coordinates[label].get(name, 0) for name in _ORDER])
    return {label: rank for rank, label in enumerate(in_order)}


def part_of(document: Document, part: Part, parts: Sequence[Part]) -> Document:
    """The events of the part; what is counted of the whole file counts for the last one, which has no label."""
    if part.label is None:
        others = [number for each in parts if each is not part for number in each.processes]
        inside = ~pl.col("pid").is_in(others).fill_null(value=False)
        counted = document
    else:
        inside = pl.col("pid").is_in(list(part.processes)).fill_null(value=False)
        counted = replace(document, not_objects=0, python_frames=0, unread_flows={})
    events = document.events.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("event")).filter(inside)
    moved = events.select("event", pl.int_range(pl.len(), dtype=pl.Int64).alias("row"))
    details = document.details.join(moved, on="event", how="inner", maintain_order="left")
    return replace(
        counted,
        events=events.drop("event"),
        details=details.with_columns(pl.col("row").alias("event")).drop("row"),
        frames=document.frames.filter(inside),
    )


def with_own_ids(tables: Mapping[str, pl.DataFrame], part: Part) -> dict[str, pl.DataFrame]:
    """The tables with the ids that processes and threads have in their texts."""
    kinds = {"process_id": part.processes, "thread_id": part.threads}
    return {
        name: table.with_columns(
            pl.col(column).replace(list(ids), list(ids.values()))
            for column in table.columns
            for kind, ids in kinds.items()
            if column.endswith(kind) and ids and table[column].dtype == pl.Int64
        )
        for name, table in tables.items()
    }
