"""A folder of this machine as parts: bundles, run sets, files that are one trace together, files by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp.batch.trace_inputs import TraceInputs
from xsp_model import XspError
from xsp_model.extras import PlugInError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Ingester

__all__ = ["parts"]

_Unknown = list[tuple[str, str]]
_MAX_DEPTH = 32


def parts(
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
    from xsp_ingest.run_set import DESCRIPTION, is_run_set, read_description  # noqa: PLC0415 (imports msgspec)

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
