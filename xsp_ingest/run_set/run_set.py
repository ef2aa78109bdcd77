"""Reads the runs of a run set, each to a trace of its own."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace as replace_field

from xsp_ingest.convert import LeveledRuns, convert_run, without_files
from xsp_ingest.distinct import bundle_findings, first_names
from xsp_ingest.files.safe_files import inside, leaves
from xsp_ingest.files.same_content import first_alike
from xsp_ingest.run_set.description import read_description
from xsp_ingest.staging.raw import RunOverrides
from xsp_model import Finding, LedgerKind, XspError
from xsp_model.errors import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.run_set.description import RunDescription
    from xsp_model import Trace

__all__ = [
    "DESCRIPTION",
    "failed_runs",
    "is_run_set",
    "rank_sets",
    "read_run",
    "read_run_set",
    "read_sets",
    "read_single",
]

DESCRIPTION = "run.json"
_ERROR = "error.json"
_MAX_RUNS = 1_000
_LONGEST = 300
_HEAD_BYTES = 1 << 14
_MAX_ERROR_BYTES = 1 << 20
_NO_PATH = ("links lead in a circle", "no file can have this name")


def is_run_set(path: Path) -> bool:
    """Whether the folder is a run set: it, or a folder right inside it, holds a run.json."""
    return path.is_dir() and bool(_descriptions(path))


def rank_sets(path: Path) -> Sequence[Path]:
    """The run sets of the ranks of one job, `rank-0` and so on, in their order; none where the folder is no job's."""
    if not path.is_dir() or _descriptions(path):
        return []
    numbered = [(each.name.partition("-")[2], each) for each in path.glob("rank-*")]
    sets = {int(number): each for number, each in numbered if number.isdecimal() and is_run_set(each)}
    return [sets[rank] for rank in sorted(sets)]


def _descriptions(path: Path) -> Sequence[Path]:
    own = path / DESCRIPTION
    return [own] if own.is_file() else _below(path, "*")


def _below(path: Path, folders: str) -> Sequence[Path]:
    """Descriptions in such folders, links among them: one that leads nowhere is a run that is lost, and to be said."""
    inside = (each / DESCRIPTION for each in path.glob(f"{folders}/"))
    return sorted(each for each in inside if os.path.lexists(each))[:_MAX_RUNS]


def _of_sets_too(path: Path) -> Sequence[Path]:
    """The descriptions of the runs in the folder, and of those in its folders that are run sets themselves."""
    own = _descriptions(path)
    if own and own[0].parent == path:
        return own
    runs = {each.parent for each in own}
    below = [each for each in _below(path, "*/*") if each.parent.parent not in runs]
    return sorted([*own, *below])[:_MAX_RUNS]


def read_run_set(path: Path, options: Options, *, progress: Callable[[str], None] | None = None) -> list[Trace]:
    """A trace for every run of the set, in order of their folders' names; XspError where one cannot be used.

    A folder of run sets, as of several batch sizes, is one set of all their runs. Copies of a run are not read again.
    """
    return [read_run(each, options, root=path, progress=progress) for each in _without_copies(path)[0]]


def read_sets(path: Path, options: Options, *, progress: Callable[[str], None] | None = None) -> Sequence[LeveledRuns]:
    """The runs of the set, or of a job those of each rank, with what the ledger says of what was not read."""
    ranks = rank_sets(path)
    sets = [_read_set(each, options, progress) for each in ranks or [path]]
    if ranks:
        beside = bundle_findings([path], ranks, {})
        sets[0] = replace(sets[0], findings=[*sets[0].findings, *beside])
    return sets


def _read_set(path: Path, options: Options, progress: Callable[[str], None] | None) -> LeveledRuns:
    descriptions, copies = _without_copies(path)
    traces = [read_run(each, options, root=path, progress=progress) for each in descriptions]
    names = [f"{copy} (as {of})" for copy, of in copies.items()]
    detail = f"runs of the set that hold what another one holds were not read: {first_names(names)}"
    again = Finding(LedgerKind.SAME_RUN_AGAIN, detail, len(names))
    return LeveledRuns(traces, [*failed_runs(path), again, *bundle_findings([path], inside(path)[0], {})])


def _without_copies(path: Path) -> tuple[Sequence[Path], Mapping[str, str]]:
    """The set's descriptions of which none is of a run that another one is of; and copies' folders, each with its like.

    A copy is described alike, and its files hold the same.
    """
    if not path.exists():
        raise XspError("there is no such folder", path=path)
    descriptions = _of_sets_too(path)
    if not descriptions:
        raise XspError(f"no {DESCRIPTION} is in the folder or in folders inside it", path=path)
    if len(descriptions) == 1:
        return descriptions, {}
    runs = [(each, read_description(_inside(each, each.name, path))) for each in descriptions]
    files = [
        [*(file for file, _ in _files(each, run, path)), *(_inside(each, name, path) for name in run.graph_captures)]
        for each, run in runs
    ]
    alike = iter(first_alike([file for of_run in files for file in of_run]))
    first: dict[Hashable, Path] = {}
    copies: dict[str, str] = {}
    for (each, run), of_run in zip(runs, files, strict=True):
        content = _described_alike(run), tuple(next(alike) for _ in of_run)
        like = first.setdefault(content, each)
        if like != each:
            copies[_folder_name(each, path)] = _folder_name(like, path)
    return list(first.values()), copies


def _described_alike(run: RunDescription) -> bytes:
    """The same for descriptions that differ in the paths of files alone."""
    formats = [replace_field(file, path="") for file in run.files]
    return msgspec.json.encode(replace_field(run, files=formats, graph_captures=[]))


def _folder_name(description: Path, root: Path) -> str:
    return readable(description.parent.relative_to(root).as_posix())


def failed_runs(path: Path) -> list[Finding]:
    """One finding on the runs of the set that failed when they were collected; none where all are there."""
    failures = [
        f"{each.parent.relative_to(path).as_posix()} ({_sentence(each)})"
        for each in sorted([*path.glob(f"*/{_ERROR}"), *path.glob(f"*/*/{_ERROR}")])[:_MAX_RUNS]
        if not (each.parent / DESCRIPTION).is_file() and not leaves(each, path)
    ]
    if not failures:
        return []
    detail = f"runs that failed when they were collected, and so are left out: {', '.join(failures)}"
    return [Finding(LedgerKind.RUN_FAILED, detail, len(failures))]


def _sentence(path: Path) -> str:
    """What an error.json says; it is a runner's or a person's, so that anything may stand there."""
    try:
        with path.open("rb") as file:
            error = msgspec.json.decode(file.read(_MAX_ERROR_BYTES), type=dict[str, object]).get("error")
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        error = None
    return " ".join(str(error).split())[:_LONGEST] if error else "no reason given"


def read_run(
    path: Path,
    options: Options,
    *,
    root: Path | None = None,
    role: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Trace:
    """The trace of the run that this run.json describes; its files must lie inside `root` (its folder by default).

    `role` says what the run is taken for, whatever its level.
    """
    description = read_description(_inside(path, path.name, root) if root else path)
    folder = path.parent.relative_to(root).as_posix() if root and root != path.parent else path.parent.name
    overrides = replace(description.overrides, folder=folder or None)
    overrides = replace(overrides, role=role) if role else overrides
    inside = root or path.parent
    files = _files(path, description, inside)
    captures = [_inside(path, capture, inside) for capture in description.graph_captures]
    if not files:
        return without_files(overrides, path)
    scoped = replace(options, layer_scopes=description.layer_scopes) if description.layers else options
    return convert_run(files, _with_captures(scoped, captures), overrides, progress=progress)


def _with_captures(options: Options, captures: Sequence[Path]) -> Options:
    return replace(options, graph_captures=(*options.graph_captures, *captures)) if captures else options


def read_single(path: Path, role: str, options: Options, *, progress: Callable[[str], None] | None = None) -> Trace:
    """The trace of a run that is given as a run.json, or as a raw file taken for this role.

    XspError where the run cannot have it: a run without spans is taken for the model or not at all.
    """
    if path.name.endswith(".json") and _describes_a_run(path):
        trace = read_run(path, options, role=role, progress=progress)
    else:
        trace = convert_run([(path, None)], options, RunOverrides(role=role), progress=progress)
    needed = {"layers": "layers", "kernels": "kernels", "counters": "metrics"}.get(role)
    if needed and not trace.table(needed).num_rows:
        raise XspError(f"the run holds no {needed}, so it cannot be taken for --{role}", path=path)
    return trace


def _describes_a_run(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return b'"schema_version"' in head and b'"level"' in head and b'"traceEvents"' not in head


def _files(path: Path, description: RunDescription, root: Path) -> list[tuple[Path, str | None]]:
    """The files with their formats; XspError where one is listed twice: all that it holds would count twice."""
    files = [(_inside(path, entry.path, root), entry.format) for entry in description.files]
    seen: set[tuple[int, int]] = set()
    for file, _ in sorted(files, key=lambda each: len(each[0].resolve().parts)):  # a folder before what is in it
        own, *around = (_identity(each) for each in (file, *file.resolve().parents))
        if own in seen or not seen.isdisjoint(around):
            raise XspError(f"the file {_short_repr(os.path.relpath(file, path.parent))} is listed twice", path=path)
        seen.add(own)
    return files


def _identity(file: Path) -> tuple[int, int]:
    """The same for all names and links of a file."""
    status = file.stat()
    return status.st_dev, status.st_ino


def _short_repr(name: str) -> str:
    return repr(name if len(name) <= _LONGEST else f"{name[:_LONGEST]}...")


def _inside(path: Path, name: str, root: Path) -> Path:
    """The file or folder that the description at `path` names; XspError unless it is there and inside of `root`."""
    file = path.parent / name
    shown = _short_repr(name)
    try:
        is_inside, is_there = file.resolve().is_relative_to(root.resolve()), file.exists()
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else _NO_PATH[isinstance(error, ValueError)]
        raise XspError(f"the file {shown} cannot be looked up ({reason})", path=path) from error
    if not is_inside:
        raise XspError(f"the file {shown} lies outside of the run set", path=path)
    if not is_there:
        raise XspError(f"the file {shown} is not there", path=path)
    return file
