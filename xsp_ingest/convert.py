"""From paths to a linked trace: finds the files, reads each with the ingester that claims it, links the runs."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Context, localcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_ingest.distinct import (
    Recorded,
    bundle_findings,
    distinct,
    finding,
    first_alike,
    first_names,
    same_recordings,
    without_exported,
)
from xsp_ingest.files.broken_json import BrokenJsonError, HopelessJsonError, Mending, refuse_broken
from xsp_ingest.files.content import Probe, rewriting
from xsp_ingest.files.other_tools import refusal
from xsp_ingest.files.safe_files import Digests, check, check_unchanged, inside, leaves, sha256, size_of
from xsp_ingest.files.values import characters
from xsp_ingest.formats.nsys.sqlite import NSYS_SQLITE
from xsp_ingest.ingester import choose, claimants_of, files_of_layout, owner_of, units
from xsp_ingest.link.graph_captures import holds_capture
from xsp_ingest.link.link import Source, link
from xsp_ingest.link.relayer import relayer
from xsp_ingest.registry import candidates
from xsp_ingest.staging.raw import NOTHING, RAW_TABLES, RawTrace, RunFacts, RunOverrides, frame_of
from xsp_ingest.staging.selection import EVERYTHING, by_rank, narrow
from xsp_model import GRAPH_CAPTURE, Finding, Kind, LedgerKind, Level, Trace, XspError
from xsp_model.columns.arrow import conform
from xsp_model.errors import PlugInError, readable
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from xsp_ingest.ingester import Ingester, Options

__all__ = [
    "LeveledRuns",
    "StagedRuns",
    "convert",
    "convert_levels",
    "convert_run",
    "excerpt",
    "relayer",
    "without_files",
]


# Runs as their files have them, ready to be linked: all to one trace, or those of a leveled file to one each.
@dataclass(frozen=True, slots=True)
class LeveledRuns:
    """Runs of the same work at several levels, a trace each, to be merged; and what the ledger says of them."""

    traces: Sequence[Trace]
    findings: Sequence[Finding]


@dataclass(frozen=True, slots=True)
class StagedRuns:
    """Runs as they were read, each with its source; and those in which graphs were captured."""

    raws: Sequence[RawTrace]
    sources: Sequence[Source]
    captures: Sequence[RawTrace]
    capture_sources: Sequence[Source]
    noted: Sequence[Finding]

    def to_trace(self, options: Options, overrides: RunOverrides) -> Trace:
        """All of them as one trace."""
        leveled = sum(raw.facts.level is not None for raw in self.raws)
        mixed = Finding(LedgerKind.LEVELS_MIXED, count=leveled if len(self.raws) > 1 else 0)
        return link(
            [*self.raws, *self.captures],
            [*self.sources, *self.capture_sources],
            options.layer_source,
            [*self.noted, mixed, *self._same_ranks(), *self._same_recordings()],
            overrides=overrides,
            align_clocks=options.align_clocks,
        )

    def _same_ranks(self) -> Iterator[Finding]:
        """Ranks that runs of several files say they are; runs of one work at several levels are no such."""
        files: dict[int, dict[int, Source]] = {}
        for raw, source in zip(self.raws, self.sources, strict=True):
            if raw.facts.rank is not None and raw.facts.level is None:
                files.setdefault(raw.facts.rank, {})[id(source)] = source
        kind = LedgerKind.SAME_RANK_AGAIN
        for rank, claiming in files.items():
            if len(claiming) == 1:
                continue
            names = first_names([readable(Path(source.path).name) for source in claiming.values()])
            yield Finding(kind, f"{kind.sentence}: rank {rank} of {names}", len(claiming))

    def _same_recordings(self) -> Iterator[Finding]:
        """Runs of several files that recorded the same; those of levels, and of graphs' captures, are no such."""
        by_file: dict[int, list[Recorded]] = {}
        for raw, source in zip(self.raws, self.sources, strict=True):
            if raw.facts.level is None:
                name = readable(Path(source.path).name)
                by_file.setdefault(id(source), []).append(Recorded(name, raw.facts.rank, raw.tables["spans"]))
        return same_recordings(list(by_file.values())) if len(by_file) > 1 else iter(())

    @property
    def are_levels(self) -> bool:
        """Whether one file holds the same work at several levels, and nothing else was read."""
        return any(raw.facts.level for raw in self.raws) and all(each is self.sources[0] for each in self.sources)

    def split(self, options: Options) -> LeveledRuns:
        """Each run that is of a level as a trace of its own."""
        traces = [
            replace(self, raws=[raw], sources=[source], noted=()).to_trace(options, RunOverrides(role=level.role))
            for raw, source in zip(self.raws, self.sources, strict=True)
            if (level := raw.facts.level) is not None
        ]
        return LeveledRuns(traces, [*self.noted, *_split(self.raws)])


def _split(raws: Sequence[RawTrace]) -> Iterator[Finding]:
    """What a file of several levels was split into, how they are known, and what of it is of no level."""
    levels = [level for raw in raws if (level := raw.facts.level) is not None]
    each = "; ".join(f"{level.role} ({level.evidence})" for level in levels)
    detail = f"runs of the same work at several levels in one file, told apart and merged: {each}"
    yield Finding(LedgerKind.LEVELS_SPLIT, detail, len(levels))
    yield Finding(
        LedgerKind.RUN_NOT_USED,
        "runs of the file that were not used, since no step of a model is in them",
        len(raws) - len(levels),
    )


_DECIMALS = Context(prec=28)


@contextmanager
def _own_decimals() -> Iterator[None]:
    """Exact times, whatever precision the caller has set for decimals of its own."""
    with localcontext(_DECIMALS):
        yield


def convert(
    paths: Sequence[Path],
    options: Options,
    *,
    format_name: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Trace:
    """The trace of all files given, each one run (a rank) or more; a directory stands for the known files inside it.

    `format_name` names the format instead of detection. XspError where a path is missing, nothing is known, or a file
    that was named cannot be used. Of a directory's files one that cannot be used is left out, and the ledger says so.
    """
    claimed, skipped = _find(paths, format_name)
    return _read_and_link(claimed, options, NOTHING, skipped, progress, named=paths)


def convert_levels(
    paths: Sequence[Path],
    options: Options,
    *,
    format_name: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Trace | LeveledRuns:
    """The trace that `convert` gives; or, of a file with the same work at several levels, its runs."""
    claimed, skipped = _find(paths, format_name)
    runs = _read(claimed, options, NOTHING, skipped, progress, named=paths)
    return runs.split(options) if runs.are_levels else runs.to_trace(options, NOTHING)


def convert_run(
    files: Sequence[tuple[Path, str | None]],
    options: Options,
    overrides: RunOverrides,
    *,
    progress: Callable[[str], None] | None = None,
) -> Trace:
    """The trace of one described run from its files, each with its format's name (None: detected); or from a folder."""
    claimed: list[tuple[Path, Ingester]] = []
    for path, format_name in files:
        check(path)
        claimed += _inside(path, format_name) if path.is_dir() else [(path, _ingester_of(path, format_name))]
    return _read_and_link(claimed, options, overrides, [], progress)


def without_files(overrides: RunOverrides, path: Path) -> Trace:
    """The trace of a run that left no file but its description: its step times and facts, and no span."""
    raw = RawTrace({name: frame_of(name) for name in RAW_TABLES}, RunFacts(profiler="wall clock"))
    source = Source("run_description", overrides.shown_name(path.name), sha256(path), path.stat().st_size)
    return link([raw], [source], "auto", overrides=overrides)


def _read_and_link(
    claimed: Sequence[tuple[Path, Ingester]],
    options: Options,
    overrides: RunOverrides,
    noted: Sequence[Finding],
    progress: Callable[[str], None] | None,
    *,
    named: Sequence[Path] | None = None,
) -> Trace:
    return _read(claimed, options, overrides, noted, progress, named=named).to_trace(options, overrides)


@_own_decimals()
def _read(
    claimed: Sequence[tuple[Path, Ingester]],
    options: Options,
    overrides: RunOverrides,
    noted: Sequence[Finding],
    progress: Callable[[str], None] | None,
    *,
    named: Sequence[Path] | None = None,
) -> StagedRuns:
    """`named`: the paths that the user chose; null: all were."""
    say = progress or (lambda _: None)
    raws: list[RawTrace] = []
    sources: list[Source] = []
    claimed, exported = without_exported(claimed)
    traces = [one for one in claimed if not one[1].is_supplement]
    read: dict[Path, Sequence[RawTrace]] = {}
    digest_of: dict[Path, str] = {}
    unusable: list[XspError] = []
    supplements = units([one for one in claimed if traces and one[1].is_supplement])
    part = bool(options.selection)
    pushed = part and not supplements  # supplements go by the index of rows among all
    inputs, copies = _without_copies(units(traces or claimed))
    supplements, more_copies = _without_copies(supplements)
    for paths, ingester in inputs:
        path = paths[0]
        say(f"reading {path.name}")
        try:
            with Digests() as digests, check_unchanged(paths):
                digest = digests.of(path)
                read_runs = ingester.read_part if pushed else ingester.read_runs
                runs_of_files = _read_despite_broken_json(options, read_runs, paths, options)
                new_runs = [run for each in runs_of_files for run in by_rank(each)]
                source = Source(ingester.name, overrides.shown_name(path.name), digest.result(), size_of(path))
        except XspError as error:
            if named is None or set(paths) & set(named):
                raise
            unusable.append(error)
            continue
        raws += new_runs
        sources += [source] * len(new_runs)
        read[path.resolve()] = new_runs
        digest_of[path] = digest.result()
    if unusable and not raws:
        raise unusable[0]
    for paths, ingester in supplements:
        say(f"reading {paths[0].name}")
        raws = list(_read_despite_broken_json(options, ingester.supplement, paths[0], raws))
    if part and supplements:
        raws = [narrow(raw, options.selection) for raw in raws]
    captures, capture_sources = _captures(options, say, {} if part else read)
    order = sorted(range(len(raws)), key=lambda n: (raws[n].facts.rank is None, raws[n].facts.rank or 0, n))
    say("linking")
    noted = [
        *noted,
        finding({**copies, **more_copies}),
        *(_export_finding(report, export) for report, export in exported.items()),
        *bundle_findings(named or (), [*(path for path, _ in claimed), *exported], digest_of),
        *(_unreadable_file(error) for error in unusable),
        *([] if part else _another_level(raws, overrides)),
        *([] if part else _unmatched_ranges(raws, options)),
    ]
    return StagedRuns([raws[n] for n in order], [sources[n] for n in order], captures, capture_sources, noted)


def _read_despite_broken_json(
    options: Options,
    read: Callable[..., Sequence[RawTrace]],
    *arguments: Any,  # noqa: ANN401 (as the reader takes them)
) -> Sequence[RawTrace]:
    """The runs that it reads, if need be of JSON that is mended on its way, of which the first run's findings tell."""
    if options.strict_json:
        for path in [arguments[0]] if isinstance(arguments[0], Path) else arguments[0]:
            refuse_broken(path)
        return read(*arguments)
    try:
        return read(*arguments)
    except BrokenJsonError as error:
        mending = Mending()
        try:
            with rewriting(mending.rewrite):
                runs = list(read(*arguments))
        except XspError as again:
            raise (again if isinstance(again, HopelessJsonError) else error) from None
        if not mending.kept:
            raise
    return [replace(runs[0], findings=(*runs[0].findings, *mending.findings())), *runs[1:]]


def _without_copies(
    inputs: Sequence[tuple[Sequence[Path], Ingester]],
) -> tuple[list[tuple[Sequence[Path], Ingester]], Mapping[Path, Path]]:
    """The inputs of which none is another one again, and the files that hold what one of them does."""
    if len(inputs) == 1 and len(inputs[0][0]) == 1:
        return list(inputs), {}
    once = distinct([paths for paths, _ in inputs])
    return [(paths, inputs[position][1]) for position, paths in once.inputs.items()], once.copies


def _export_finding(report: Path, export: Path) -> Finding:
    names = [readable(path.name) for path in (report, export)]
    return Finding(LedgerKind.SAME_RUN_AGAIN, f"{names[0]} was not read: {names[1]}, of the same recording, was")


def _unmatched_ranges(raws: Sequence[RawTrace], options: Options) -> Iterator[Finding]:
    """Patterns of --model-range that name no step of any run."""
    is_step = pl.col("kind").cast(pl.String) == str(Kind.STEP)
    steps = [raw.tables["spans"].filter(is_step).select("row", "name") for raw in raws if options.model_ranges]
    names = [rows["name"].cast(pl.String).unique() for rows in steps]
    texts = [
        raw.tables["ranges"].join(rows, on="row", how="semi")["text"] for raw, rows in zip(raws, steps, strict=False)
    ]
    for pattern in options.model_ranges:
        if not any(name is not None and re.search(pattern, name) for of in (*names, *texts) for name in of):
            kind = LedgerKind.MODEL_RANGE_UNMATCHED
            yield Finding(kind, f"{kind.sentence}: {characters(pattern)}", 1)


def _another_level(raws: Sequence[RawTrace], overrides: RunOverrides) -> list[Finding]:
    """Where a description says that a run goes down to kernels, and it does not; or the other way round."""
    if overrides.deepest_level is None:
        return []
    says = overrides.deepest_level == Level.KERNEL
    holds = any((raw.tables["spans"]["level"] == str(Level.KERNEL)).any() for raw in raws)
    if says == holds:
        return []
    content = "kernels are there" if holds else "no kernel is there"
    kind = LedgerKind.DEEPEST_LEVEL_DIFFERS
    file = overrides.shown_name("run.json")
    return [Finding(kind, f"{kind.sentence}: {file} says {overrides.deepest_level}, and {content}", 1)]


def _captures(
    options: Options, say: Callable[[str], None], read: Mapping[Path, Sequence[RawTrace]]
) -> tuple[list[RawTrace], list[Source]]:
    """The runs in which graphs were captured; XspError where a file was named that holds no capture.

    `read`: runs by files that are read whole already, which are not read again.
    """
    raws: list[RawTrace] = []
    sources: list[Source] = []
    inputs = [
        (capture, paths, ingester)
        for capture in options.graph_captures
        for paths, ingester in units([each for each in _find([capture], None)[0] if not each[1].is_supplement])
    ]
    files = [*read, *(paths[0] for _, paths, _ in inputs)]
    alike = first_alike(files) if inputs else []
    holding = {position for position, runs in enumerate(read.values()) if any(map(holds_capture, runs))}
    for position, (capture, paths, ingester) in enumerate(inputs, len(read)):
        if alike[position] != position:  # which was read, as an input, in its folder or by itself
            continue
        say(f"reading {paths[0].name}")
        with Digests() as digests, check_unchanged(paths):
            digest = digests.of(paths[0])
            everything = replace(options, selection=EVERYTHING)
            runs = _read_despite_broken_json(options, ingester.read_runs, paths, everything)
            name = str(paths[0].relative_to(capture.parent)) if capture.is_dir() else paths[0].name
            source = Source(ingester.name, name, digest.result(), size_of(paths[0]))
        with_captures = [replace(r, facts=replace(r.facts, role=GRAPH_CAPTURE)) for r in runs if holds_capture(r)]
        holding |= {position} if with_captures else set()
        raws += with_captures
        sources += [source] * len(with_captures)
    begun = {inputs[n - len(read)][0] for n in range(len(read), len(files)) if alike[n] in holding}
    for path in options.graph_captures:
        if path not in begun:
            raise XspError(
                "no graph was captured in what --graph-capture names",
                path=path,
                advice="Name a trace that was recorded while the graphs were captured, not while they were replayed",
            )
    return raws, sources


def _unreadable_file(error: XspError) -> Finding:
    """Of many ranks one whose file is damaged does not keep the others from being read, but nobody may overlook it."""
    name = readable(Path(error.path).name) if error.path is not None else "a file"
    detail = f"{name} of the directory could not be read and is not in any number here: {error.what}"
    return Finding(LedgerKind.UNREADABLE_FILE, detail, 1, advice=error.advice)


def _find(paths: Sequence[Path], format_name: str | None) -> tuple[list[tuple[Path, Ingester]], list[Finding]]:
    claimed: list[tuple[Path, Ingester]] = []
    unknown = unsafe = 0
    for path in paths:
        check(path)
        if not path.is_dir():
            claimed.append((path, _ingester_of(path, format_name)))
            continue
        members = _inside(path, format_name)
        claimed += members
        read = {file for file, _ in members}
        files, others = inside(path)
        unknown += 0 if path in read else sum(1 for file in files if file.is_file() and file not in read)
        unsafe += others
    left_out = "files of the directory are of no known format and were left out"
    special = "links that lead out of the directory, and files that are pipes, sockets or devices, were left out"
    return claimed, [
        Finding(LedgerKind.UNKNOWN_FILE, left_out, unknown),
        Finding(LedgerKind.UNSAFE_FILE, special, unsafe),
    ]


def _ingester_of(path: Path, format_name: str | None) -> Ingester:
    return choose(path, candidates(Probe(path), format_name), format_name)


def _inside(directory: Path, format_name: str | None) -> list[tuple[Path, Ingester]]:
    """The directory itself where it is one input; else the known files and such directories in it, by name."""
    ingesters = candidates(Probe(directory), format_name)
    if files := files_of_layout(directory, ingesters, format_name):
        return [(file, ingester) for file, ingester in files if not leaves(file, directory)]
    if owner := owner_of(directory, ingesters, format_name):
        return [(directory, owner)]
    claimed: list[tuple[Path, Ingester]] = []
    for path in inside(directory)[0]:
        if path.is_dir():
            claimed += [(path, folder_owner)] if (folder_owner := owner_of(path, ingesters, format_name)) else []
        elif path.is_file() and path.stat().st_size and (claimants := _claimants(path)):
            if format_name is None:
                claimed.append((path, choose(path, claimants, claimants=claimants)))
            else:
                claimed.append((path, _ingester_of(path, format_name)))
    if not claimed:
        raise XspError(
            f"no file of a known profiler format is in the directory{_for_example(directory)}",
            path=directory,
            advice="`xsp formats` lists what can be read",
        )
    return claimed


def _for_example(directory: Path) -> str:
    """What the first of its files is, as far as that can be said."""
    for path in inside(directory)[0]:
        if path.is_file() and path.stat().st_size:
            try:
                return f" ({path.name}: {refusal(Probe(path)).what})"
            except XspError as error:
                return f" ({path.name}: {error.what})"
    return ""


def _claimants(path: Path) -> Sequence[Ingester]:
    """Who claims the file; nobody claims one that cannot be looked at."""
    try:
        probe = Probe(path)
        return claimants_of(probe, candidates(probe))
    except PlugInError:
        raise
    except XspError:
        return ()


# Some rows of one capture, as they are in the file: for answers that take no links, layers or steps.
#
# A trace made of them has the tables that a trace has, with the rows and columns asked for alone. Nobody may write it
# to
# a bundle, and it says nothing of what the file holds besides.

_READERS = (NSYS_SQLITE,)  # not all ingesters are asked: to import them takes longer than many an answer
_RUNS = pl.DataFrame({"run_id": [0], "clock_origin_ns": [0]})


def excerpt(
    paths: Sequence[Path],
    columns: Mapping[str, Collection[str]],
    *,
    format: str | None = None,  # noqa: A002
) -> Trace | None:
    """The trace of these sorts of rows (see `Analysis.reads`); None where the files must be read as a whole for it.

    So it is as well where they are damaged or of another format: reading them then says what is wrong.
    """
    if len(paths) != 1 or not paths[0].is_file():
        return None
    path = paths[0]
    try:
        check(path)
        probe = Probe(path)
        reader = next((each for each in _READERS if format in (None, each.name) and each.sniff(probe)), None)
        tables = reader.read_excerpt(path, columns) if reader is not None else None
    except XspError:
        return None
    return None if tables is None else Trace({name: _table(name, tables) for name in TABLES})


def _table(name: str, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    if name in tables:
        return tables[name]
    return conform(_RUNS if name == "runs" else pl.DataFrame(), TABLES[name]).head(
        _RUNS.height if name == "runs" else 0
    )
