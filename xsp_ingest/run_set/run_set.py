"""Reads the runs of a run set, each to a trace of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from xsp_ingest.convert import convert_run, without_files
from xsp_ingest.run_set.description import read_description
from xsp_ingest.staging.run_overrides import RunOverrides
from xsp_model import Finding, LedgerKind, XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Options
    from xsp_ingest.run_set.description import RunDescription
    from xsp_model import Trace

__all__ = ["DESCRIPTION", "failed_runs", "is_run_set", "read_run", "read_run_set", "read_single"]

DESCRIPTION = "run.json"
_ERROR = "error.json"
_MAX_RUNS = 1_000
_LONGEST = 300
_HEAD_BYTES = 1 << 14


def is_run_set(path: Path) -> bool:
    """Whether the folder is a run set: it, or a folder right inside it, holds a run.json."""
    return path.is_dir() and bool(_descriptions(path))


def _descriptions(path: Path) -> Sequence[Path]:
    own = path / DESCRIPTION
    return [own] if own.is_file() else sorted(path.glob(f"*/{DESCRIPTION}"))[:_MAX_RUNS]


def read_run_set(path: Path, options: Options, *, progress: Callable[[str], None] | None = None) -> list[Trace]:
    """A trace for every run of the set, in order of their folders' names; XspError where one cannot be used."""
    if not path.exists():
        raise XspError("there is no such folder", path=path)
    descriptions = _descriptions(path)
    if not descriptions:
        raise XspError(f"no {DESCRIPTION} is in the folder or in a folder right inside it", path=path)
    return [read_run(each, options, root=path, progress=progress) for each in descriptions]


def failed_runs(path: Path) -> list[Finding]:
    """One finding on the runs of the set that failed when they were collected; none where all are there."""
    failures = [
        f"{each.parent.name} ({_sentence(each)})"
        for each in sorted(path.glob(f"*/{_ERROR}"))[:_MAX_RUNS]
        if not (each.parent / DESCRIPTION).is_file()
    ]
    if not failures:
        return []
    detail = f"runs that failed when they were collected, and so are left out: {', '.join(failures)}"
    return [Finding(LedgerKind.RUN_FAILED, detail, len(failures))]


def _sentence(path: Path) -> str:
    """What an error.json says; it is a runner's or a person's, so that anything may stand there."""
    try:
        error = msgspec.json.decode(path.read_bytes(), type=dict[str, object]).get("error")
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
    description = read_description(path)
    overrides = replace(description.overrides, folder=path.parent.name or None)
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
    return [(_inside(path, entry.path, root), entry.format) for entry in description.files]


def _inside(path: Path, name: str, root: Path) -> Path:
    """The file or folder that the description at `path` names; XspError unless it is there and inside of `root`."""
    file = path.parent / name
    if not file.resolve().is_relative_to(root.resolve()):
        raise XspError(f"the file {name!r} lies outside of the run set", path=path)
    if not file.exists():
        raise XspError(f"the file {name!r} is not there", path=path)
    return file
