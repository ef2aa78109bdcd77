"""From paths to a linked trace: finds the files, reads each with the ingester that claims it, links the runs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from xsp_ingest.given import NOTHING, Given
from xsp_ingest.ingester import Probe, Supplement, choose, laid_out, owner_of, read_runs, units
from xsp_ingest.link.link import Source, link
from xsp_ingest.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_ingest.registry import all_ingesters
from xsp_ingest.relayer import relayer
from xsp_model import Finding, Severity, XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from xsp_ingest.ingester import Ingester, Options
    from xsp_model import Trace

__all__ = ["convert", "convert_run", "relayer", "without_files"]

_READ_BYTES = 1 << 20


def convert(
    paths: Sequence[Path],
    options: Options,
    *,
    wanted: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Trace:
    """The trace of all files given, each one run (a rank) or more; a directory stands for the known files inside it.

    `wanted` names the format instead of detection. XspError where a path is missing, nothing is known, or a file
    cannot be used.
    """
    found, skipped = _find(paths, wanted)
    return _linked(found, options, NOTHING, skipped, progress)


def convert_run(
    files: Sequence[tuple[Path, str | None]],
    options: Options,
    given: Given,
    *,
    progress: Callable[[str], None] | None = None,
) -> Trace:
    """The trace of one described run from its files, each with its format's name (None: detected); or from a folder."""
    ingesters = all_ingesters()
    found: list[tuple[Path, Ingester]] = []
    for path, wanted in files:
        found += _inside(path, ingesters, wanted) if path.is_dir() else [(path, choose(path, ingesters, wanted))]
    return _linked(found, options, given, [], progress)


def without_files(given: Given, path: Path) -> Trace:
    """The trace of a run that left no file but its description: its step times and facts, and no span."""
    raw = RawTrace({name: frame_of(name) for name in RAW_TABLES}, RunFacts(profiler="wall clock"))
    source = Source("run_description", path.name, _sha256(path), path.stat().st_size)
    return link([raw], [source], "auto", given=given)


def _linked(
    found: Sequence[tuple[Path, Ingester]],
    options: Options,
    given: Given,
    noted: Sequence[Finding],
    progress: Callable[[str], None] | None,
) -> Trace:
    say = progress or (lambda _: None)
    raws: list[RawTrace] = []
    sources: list[Source] = []
    whole = [one for one in found if not isinstance(one[1], Supplement)]
    for paths, ingester in units(whole or found):
        path = paths[0]
        say(f"reading {path.name}")
        found_runs = read_runs(ingester, paths, options)
        raws += found_runs
        sources += [Source(ingester.name, path.name, _sha256(path), _size(path))] * len(found_runs)
    for path, ingester in found:
        if whole and isinstance(ingester, Supplement):
            say(f"reading {path.name}")
            raws = list(ingester.supplement(path, raws))
    order = sorted(range(len(raws)), key=lambda n: (raws[n].facts.rank is None, raws[n].facts.rank or 0, n))
    say("linking")
    return link([raws[n] for n in order], [sources[n] for n in order], options.layer_source, noted, given=given)


def _find(paths: Sequence[Path], wanted: str | None) -> tuple[list[tuple[Path, Ingester]], list[Finding]]:
    ingesters = all_ingesters()
    found: list[tuple[Path, Ingester]] = []
    unknown = 0
    for path in paths:
        if path.is_dir():
            inside = _inside(path, ingesters, wanted)
            known = {file for file, _ in inside}
            unknown += 0 if path in known else sum(1 for f in path.iterdir() if f.is_file() and f not in known)
            found += inside
        elif path.exists():
            found.append((path, choose(path, ingesters, wanted)))
        else:
            raise XspError("there is no such file", path=path)
    detail = "files of the directory are of no known format and were left out"
    return found, [Finding("unknown_file", detail, unknown, Severity.INFO)]


def _inside(directory: Path, ingesters: Sequence[Ingester], wanted: str | None) -> list[tuple[Path, Ingester]]:
    """The directory itself where it is one input; else the known files and such directories in it, by name."""
    if files := laid_out(directory, ingesters, wanted):
        return files
    if owner := owner_of(directory, ingesters, wanted):
        return [(directory, owner)]
    known: list[tuple[Path, Ingester]] = []
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            known += [(path, whole)] if (whole := owner_of(path, ingesters, wanted)) else []
        elif path.is_file() and path.stat().st_size and _claimed(path, ingesters):
            known.append((path, choose(path, ingesters, wanted)))
    if not known:
        raise XspError(
            "no file of a known profiler format is in the directory",
            path=directory,
            advice="`xsp formats` lists what can be read",
        )
    return known


def _claimed(path: Path, ingesters: Sequence[Ingester]) -> bool:
    probe = Probe(path)
    try:
        return any(i.sniff(probe) for i in ingesters)
    except XspError:
        return False


def _sha256(path: Path) -> str:
    """The digest of a file, or of a folder's files with their names."""
    digest = hashlib.sha256()
    for file in _files(path):
        if file != path:
            digest.update(f"{file.name}\n{file.stat().st_size}\n".encode())
        with file.open("rb") as content:
            while chunk := content.read(_READ_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in _files(path))


def _files(path: Path) -> Sequence[Path]:
    return sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
