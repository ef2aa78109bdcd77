"""From what the user named to units: which files are a trace each, which belong together, which are ranks of a job."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.batch import folders, job_ranks, remote
from xsp.batch.copies import without_copies
from xsp.batch.locations import absolute, is_url
from xsp.batch.trace_inputs import TraceInputs
from xsp.batch.unit import Kind, Unit
from xsp.opening import expand
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Discovered", "discover"]

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_ENDINGS = re.compile(
    r"(\.pt)?(\.trace)?\.(json|sqlite|db|csv|txt|log|xplane\.pb|pb|nsys-rep|ncu-rep|xsp|pftrace)?(\.gz)?$"
)
_MAX_CHARACTERS = 120
_MAX_STEPS = 8  # of a path, that may be needed to tell a file from others


@dataclass(frozen=True, slots=True)
class Discovered:
    """All units by name, and the files of folders that were left out, each with a sentence.

    `copies`: inputs that were left out as they hold what another one does, which is named; `same_ranks`: sentences on
    folders that hold one rank several times, and on ranks of several jobs.
    """

    units: Sequence[Unit]
    left_out: Sequence[tuple[str, str]] = field(default=())
    copies: Mapping[str, str] = field(default_factory=dict)
    same_ranks: Sequence[str] = field(default=())


def discover(inputs: Sequence[str], output: str, *, ranks: bool | None, format_name: str | None) -> Discovered:
    """The units of all inputs, each content once; XspError where an input names nothing or holds nothing known.

    `ranks`: whether the traces of a folder are ranks of one job; None: where they say so themselves.
    """
    by_input: list[tuple[str, list[TraceInputs]]] = []
    left_out: list[tuple[str, str]] = []
    exported: dict[str, str] = {}
    seen: set[tuple[str, ...]] = set()
    for text in inputs:
        parts = []
        for name in [text] if is_url(text) else map(str, expand([text])):
            new, unknown, reports = _parts(absolute(name), format_name, Path(output) if not is_url(output) else None)
            left_out += unknown
            exported |= reports
            parts += [p for p in new if p.inputs not in seen]
            seen |= {p.inputs for p in new}
        by_input.append((text, parts))
    everything = [part for _, parts in by_input for part in parts]
    units: list[Unit] = []
    with remote.fetch_to_compare(everything, format_name) as fetched:
        rank_of = job_ranks.claimed_ranks(everything, fetched.heads) if ranks is not False else {}
        stays, copies, same_ranks = without_copies([parts for _, parts in by_input], rank_of, ranks, fetched)
    for text, parts in by_input:
        of_input, sentences = _units([part for part in parts if part in stays], _job_name(text), rank_of, ranks)
        units += of_input
        same_ranks += sentences
    if not units:
        example = f" ({left_out[0][1]})" if left_out else ""
        raise XspError(
            f"no file of a known profiler format is there{example}",
            path=", ".join(inputs),
            advice="`xsp formats` lists what can be read",
        )
    return Discovered(_with_numbers(_with_folder_names(units)), left_out, {**exported, **copies}, same_ranks)


def _parts(
    location: str, format_name: str | None, output: Path | None
) -> tuple[list[TraceInputs], list[tuple[str, str]], dict[str, str]]:
    if is_url(location):
        return remote.parts(location), [], {}
    path = Path(location)
    if path.is_dir():
        return folders.parts(path, format_name, output)
    return [TraceInputs((location,), path.name, discovered=False)], [], {}


def _job_name(text: str) -> str:
    """The folder's name: of a pattern, that of the folder before it."""
    steps = [s for s in re.split(r"[/\\]", text.rstrip("/\\")) if s and not any(c in s for c in "*?[")]
    return steps[-1] if steps and steps[-1] not in {".", ".."} else Path(text).resolve().name


def _units(
    parts: Sequence[TraceInputs], job: str, rank_of: Mapping[TraceInputs, int], ranks: bool | None
) -> tuple[list[Unit], list[str]]:
    groups, same_ranks = job_ranks.group_ranks(parts, rank_of, ranks)
    units = [
        Unit(_fit(p.below), p.inputs, discovered=p.discovered)
        for p in parts
        if not any(p in g for g in groups.values())
    ]
    for below, of_rank in groups.items():
        name = _fit(below or job)
        width = len(str(max(of_rank.values())))
        for part, rank in sorted(of_rank.items(), key=lambda pair: pair[1]):
            units.append(Unit(f"rank-{rank:0{width}d}", part.inputs, Kind.RANK, part.discovered, name, rank))
    return units, same_ranks


def _fit(text: str) -> str:
    """The text as a folder's name on any system: the path's steps joined, without the endings of files."""
    bare = _ENDINGS.sub("", text.replace("\\", "/").strip("/"))
    return _UNFIT.sub("-", bare.replace("/", "-")).strip(".-")[:_MAX_CHARACTERS] or "trace"


def _with_folder_names(units: Sequence[Unit]) -> list[Unit]:
    """Traces of one name get the names of as many folders above them as tell them apart, where that is any number.

    a/trace.json and b/trace.json are a-trace and b-trace.
    """
    same: dict[str, list[int]] = {}
    for index, unit in enumerate(units):
        if unit.job is None:
            same.setdefault(unit.name.casefold(), []).append(index)
    names = [unit.name for unit in units]
    for indices in (p for p in same.values() if len(p) > 1):
        paths = [[s for s in re.split(r"[/\\]+", units[n].inputs[0]) if s] for n in indices]
        for steps in range(2, _MAX_STEPS):
            longer = [_fit("/".join(path[-steps:])) for path in paths]
            if len({name.casefold() for name in longer}) == len(longer):
                for index, name in zip(indices, longer, strict=True):
                    names[index] = name
                break
    return [replace(unit, name=name) for unit, name in zip(units, names, strict=True)]


def _with_numbers(units: Iterable[Unit]) -> list[Unit]:
    """The units with a number where a name came before; names that differ in case alone are one to some systems."""
    taken: set[tuple[str | None, str]] = set()
    result = []
    for unit in units:
        name, number = unit.name, 1
        while (unit.job, name.casefold()) in taken:
            number += 1
            name = f"{unit.name}-{number}"
        taken.add((unit.job, name.casefold()))
        result.append(replace(unit, name=name))
    return result
