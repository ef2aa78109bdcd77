"""From what the user named to units: which files are a trace each, which belong together, which are ranks of a job."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.batch import remote
from xsp.batch.copies import claimed_ranks, group_ranks, without_copies
from xsp.batch.locations import absolute, is_url
from xsp.batch.remote import TraceInputs
from xsp.batch.unit import Kind, Unit
from xsp.opening import expand
from xsp_model import XspError
from xsp_model.errors import PlugInError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xsp_ingest.ingester import Ingester

__all__ = ["Discovered", "discover", "folder_parts"]

_Unknown = list[tuple[str, str]]
_MAX_DEPTH = 32


def folder_parts(
    folder: Path, format_name: str | None, output: Path | None
) -> tuple[list[TraceInputs], _Unknown, dict[str, str]]:
    """The traces in the folder and the folders inside it, and the files nobody knows; `output` is not looked into.

    And reports that are not read, each with its export, which is.
    """
    unknown: _Unknown = []
    exported: dict[str, str] = {}
    traces = list(_walk(folder, folder, format_name, output, unknown, exported))  # which fills the two
    return traces, unknown, exported


def _walk(
    folder: Path,
    root: Path,
    format_name: str | None,
    output: Path | None,
    unknown: _Unknown,
    exported: dict[str, str],
    depth: int = 0,
) -> Iterator[TraceInputs]:
    from xsp_ingest.files.content import Probe  # noqa: PLC0415
    from xsp_ingest.files.safe_files import inside  # noqa: PLC0415
    from xsp_ingest.ingester import files_of_layout, owner_of  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_ingest.registry import candidates  # noqa: PLC0415
    from xsp_model import bundle  # noqa: PLC0415

    ingesters = candidates(Probe(folder), format_name)
    if folder == output or depth > _MAX_DEPTH:
        return
    if bundle.is_bundle(folder) or _is_one_run_set(folder) or owner_of(folder, ingesters, format_name):
        yield _part([folder], root, named=folder == root)
        return
    if files_of_layout(folder, ingesters, format_name):
        yield _part([folder], root, named=folder == root)
        return
    files, _ = inside(folder)
    yield from _files([f for f in files if f.is_file()], root, format_name, unknown, exported)
    for each in files:
        if each.is_dir() and not each.name.startswith("."):
            yield from _walk(each, root, format_name, output, unknown, exported, depth + 1)


def _is_one_run_set(folder: Path) -> bool:
    """Whether the folder is a run set whose runs are of the same work; runs of different work are a folder of each."""
    from xsp_ingest.run_set import (  # noqa: PLC0415
        DESCRIPTION,
        is_run_set,
        read_description,
    )

    if (folder / DESCRIPTION).is_file():
        return True
    if not is_run_set(folder):
        return False
    work = set()
    for path in sorted(folder.glob(f"*/{DESCRIPTION}")):
        try:
            run = read_description(path)
        except XspError:
            return True  # the unit then fails with the sentence on what is wrong
        work.add((run.model.name, run.framework.name, run.device.name))
    return len(work) == 1


def _files(
    files: Sequence[Path], root: Path, format_name: str | None, unknown: _Unknown, exported: dict[str, str]
) -> Iterator[TraceInputs]:
    """Files that are a trace each, files that are one together, and those that only say more of another."""
    from xsp_ingest.distinct import distinct, without_exported  # noqa: PLC0415
    from xsp_ingest.files.content import Probe  # noqa: PLC0415
    from xsp_ingest.ingester import choose, units  # noqa: PLC0415
    from xsp_ingest.registry import candidates  # noqa: PLC0415

    claimed: list[tuple[Path, Ingester]] = []
    for path in files:
        if format_name:
            claimed.append((path, choose(path, candidates(Probe(path), format_name), format_name)))
        elif claimants := _claimants(path, unknown):
            claimed.append((path, choose(path, claimants, claimants=claimants)))
    claimed, reports = without_exported(claimed)
    exported |= {str(report): str(export) for report, export in reports.items()}
    traces = [one for one in claimed if not one[1].is_supplement]
    more = [path for path, ingester in claimed if ingester.is_supplement]
    groups = [list(paths) for paths, _ in units(traces)]
    if more and groups and len(once := distinct(groups).inputs) == 1:
        groups[next(iter(once))] += more
    elif not groups:
        groups = [[path] for path in more]
    else:
        sentence = "it says more of a trace, and which of the folder's is not known; convert the two by themselves"
        unknown += [(str(path), sentence) for path in more]
    for group in groups:
        yield _part(group, root)


def _claimants(path: Path, unknown: _Unknown) -> list[Ingester]:
    """Who claims the file; a file that nobody does is noted, but for descriptions and what is hidden or empty."""
    from xsp_ingest.files.content import Probe  # noqa: PLC0415
    from xsp_ingest.files.other_tools import refusal  # noqa: PLC0415
    from xsp_ingest.ingester import claimants_of  # noqa: PLC0415
    from xsp_ingest.registry import candidates  # noqa: PLC0415

    if path.name.startswith(".") or not path.stat().st_size:
        return []
    try:
        probe = Probe(path)
        claimants = claimants_of(probe, candidates(probe))
        if not claimants:
            unknown.append((str(path), refusal(probe).what))
    except PlugInError:
        raise
    except XspError as error:
        unknown.append((str(path), error.what))
        return []
    return claimants


def _part(paths: Sequence[Path], root: Path, *, named: bool = False) -> TraceInputs:
    below = root.name if named else paths[0].relative_to(root).as_posix()
    return TraceInputs(tuple(map(str, paths)), below, discovered=not named)


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


def discover(
    inputs: Sequence[str], output: str, *, ranks: bool | None, format_name: str | None, as_one: bool = False
) -> Discovered:
    """The units of all inputs, each content once; XspError where an input names nothing or holds nothing known.

    `ranks`: whether the traces of a folder are ranks of one job; None: where they say so themselves. `as_one`: all
    inputs are of one thing, as files of one folder.
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
    if as_one:
        first = inputs[0] if len(inputs) == 1 else str(Path(inputs[0]).parent)
        by_input = [(first, everything)]
    units: list[Unit] = []
    with remote.fetch_to_compare(everything, format_name) as fetched:
        rank_of = claimed_ranks(everything, fetched.heads) if ranks is not False else {}
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
        return folder_parts(path, format_name, output)
    return [TraceInputs((location,), path.name, discovered=False)], [], {}


def _job_name(text: str) -> str:
    """The folder's name: of a pattern, that of the folder before it."""
    steps = [s for s in re.split(r"[/\\]", text.rstrip("/\\")) if s and not any(c in s for c in "*?[")]
    return steps[-1] if steps and steps[-1] not in {".", ".."} else Path(text).resolve().name


def _units(
    parts: Sequence[TraceInputs], job: str, rank_of: Mapping[TraceInputs, int], ranks: bool | None
) -> tuple[list[Unit], list[str]]:
    groups, same_ranks = group_ranks(parts, rank_of, ranks)
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
