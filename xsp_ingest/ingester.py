"""What an ingester is, and how one is chosen: by content, never by a file's name."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from xsp_ingest.files.content import Probe
from xsp_ingest.files.other_tools import refusal
from xsp_ingest.staging.selection import EVERYTHING, Selection, narrow
from xsp_model import XspError
from xsp_model.errors import closest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.staging.raw import RawTrace

__all__ = [
    "Ingester",
    "IngesterOfRuns",
    "LayerScope",
    "Match",
    "Options",
    "choose",
    "claimants_of",
    "files_of_layout",
    "no_format",
    "owner_of",
    "units",
]


@dataclass(frozen=True, slots=True)
class LayerScope:
    """A layer, beside the scope that its operators' names lie in; `position` is its own among the model's layers."""

    name: str
    type: str = ""
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """What the user may say about reading; regexes are matched with `re.search` on a range's name."""

    model_ranges: Sequence[str] = ()
    layer_ranges: Sequence[str] = ()
    layer_source: str = "auto"
    keep_private: bool = False
    frames: str = "lines"  # of Python's functions the lines that called operators are read, or "none"
    layer_scopes: Mapping[str, LayerScope] = field(default_factory=dict)  # where a file's operators name their scopes
    extra: dict[str, str] = field(default_factory=dict)
    graph_captures: Sequence[Path] = ()  # files, or folders of them, that hold how replayed graphs were captured
    selection: Selection = EVERYTHING
    align_clocks: bool = False  # of several runs by the ends of their collectives; the linker does it
    strict_json: bool = False  # JSON that is broken is refused

    def __post_init__(self) -> None:
        for pattern in (*self.model_ranges, *self.layer_ranges):
            try:
                re.compile(pattern)
            except re.error as error:
                raise XspError(
                    f"{pattern!r} is no pattern for ranges ({error.msg})",
                    advice="It is a regular expression, in which \\( stands for a bracket",
                ) from error


class Match(IntEnum):
    """How surely a file is of a format; of the formats that take a file the surest one reads it."""

    NONE = 0
    FORM = 1
    """The general form alone, of a tool that need not be known: any other format goes first."""
    GENERIC = 2
    """The general form, which other tools write too, and nothing that speaks against this one."""
    EXACT = 3
    """Marks of the tool itself."""

    @classmethod
    def exact_if(cls, condition: object) -> Match:
        """EXACT where the condition holds, else NONE."""
        return cls.EXACT if condition else cls.NONE


class Ingester(ABC):
    """One file format: `name` as `--format` takes it, `title` for `xsp formats`: what it is, which versions were seen.

    A format whose files are a run each, and of which no folder is known, needs `sniff` and `read` alone.
    """

    name: str
    title: str
    exported_with: str | None = None
    """The ending in place of its own that its tool gives what it writes beside a file, which is then read instead."""
    own_ending: str | None = None
    """The ending that the other stands in place of, without .gz; None: what follows the last dot."""
    is_supplement: bool = False
    """Whether its files only say more of runs that other files hold: `supplement` adds that."""

    @abstractmethod
    def sniff(self, probe: Probe) -> Match:
        """How surely the file is of this format, judged from its content."""

    @abstractmethod
    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's rows; XspError where it cannot be used at all."""

    def together(self, paths: Sequence[Path]) -> Sequence[Sequence[Path]]:
        """The files of each input, the one it is named after first; XspError where that cannot be told."""
        return [[path] for path in paths]

    def read_runs(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """The runs of one input's files, at least one; XspError where it cannot be used at all."""
        return [self.read(path, options) for path in paths]

    def read_part(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """What `narrow` makes of these runs for the selection of the options; of several those that have any of it."""
        parts: list[RawTrace] = []
        nothing: XspError | None = None
        for raw in self.read_runs(paths, options):
            try:
                parts.append(narrow(raw, options.selection))
            except XspError as error:
                nothing = error
        if not parts and nothing is not None:
            raise nothing
        return parts

    def supplement(self, path: Path, runs: Sequence[RawTrace]) -> Sequence[RawTrace]:
        """The same runs, in their order, with what the file says of them; XspError where it is of none of them."""
        del path
        return runs

    def sniff_folder(self, folder: Path) -> bool:
        """Whether the folder as a whole is one input of this format, its files being parts of it."""
        del folder
        return False

    def files_in(self, folder: Path) -> Sequence[Path]:
        """The files to read of a folder that its tool laid out, none of any other; XspError where one must choose."""
        del folder
        return ()


class IngesterOfRuns(Ingester):
    """One whose files hold a run or several: `read_runs` reads them."""

    @abstractmethod
    def read_runs(self, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
        """The runs of these files, as of `Ingester.read_runs`."""

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's only run; XspError where it holds several."""
        runs = self.read_runs([path], options)
        if len(runs) > 1:
            raise XspError(f"the file holds {len(runs)} runs where one is wanted", path=path)
        return runs[0]


def units(files: Sequence[tuple[Path, Ingester]]) -> list[tuple[Sequence[Path], Ingester]]:
    """What is read at once: a file, or files that are one input, in the position of the one it is named after."""
    ingesters = {ingester.name: ingester for _, ingester in files}
    groups = {
        name: {paths[0]: paths for paths in one.together([path for path, by in files if by.name == name])}
        for name, one in ingesters.items()
    }
    grouped = ((groups[ingester.name].get(path), ingester) for path, ingester in files)
    return [(paths, ingester) for paths, ingester in grouped if paths is not None]


def owner_of(folder: Path, ingesters: Sequence[Ingester], format_name: str | None = None) -> Ingester | None:
    """The one ingester that takes the folder as a whole; None where its files are inputs of their own."""
    owners = [i for i in ingesters if format_name in (None, i.name) and i.sniff_folder(folder)]
    return owners[0] if len(owners) == 1 else None


def files_of_layout(
    folder: Path, ingesters: Sequence[Ingester], format_name: str | None = None
) -> list[tuple[Path, Ingester]]:
    """The files of a folder that one tool laid out, with the tool's ingester; none of any other folder."""
    layouts = (i for i in ingesters if format_name in (None, i.name))
    return next(([(file, i) for file in files] for i in layouts if (files := i.files_in(folder))), [])


def claimants_of(probe: Probe, ingesters: Sequence[Ingester]) -> list[Ingester]:
    """The ingesters that claim the file the most surely: one, unless formats cannot be told apart; or none."""
    matches = [(ingester.sniff(probe), ingester) for ingester in ingesters]
    best = max((match for match, _ in matches), default=Match.NONE)
    return [ingester for match, ingester in matches if match == best and match]


def no_format(format_name: str, ingesters: Sequence[Ingester]) -> XspError:
    """The error for a name that is no format's, with those that are near to it by name or title."""
    titles = {i.title: i.name for i in ingesters}
    near = [titles.get(name, name) for name in closest(format_name, [*(i.name for i in ingesters), *titles])]
    hint = f"Did you mean {' or '.join(dict.fromkeys(near))}? " if near else ""
    return XspError(f"there is no format {format_name!r}", advice=f"{hint}`xsp formats` lists them")


def choose(
    path: Path,
    ingesters: Sequence[Ingester],
    format_name: str | None = None,
    *,
    claimants: Sequence[Ingester] | None = None,
) -> Ingester:
    """The one ingester that claims the file (`claimants`: those that do, if known), or the one asked for by name."""
    if format_name is not None:
        for ingester in ingesters:
            if ingester.name == format_name:
                _check_not_empty(path)
                return ingester
        raise no_format(format_name, ingesters)
    probe = Probe(path)
    if claimants is None:
        _check_not_empty(path)
        claimants = claimants_of(probe, ingesters)
    if len(claimants) == 1:
        return claimants[0]
    if claimants:
        names = ", ".join(i.name for i in claimants)
        raise XspError(f"several formats claim the file: {names}", path=path, advice="Choose one with --format")
    raise refusal(probe)


def _check_not_empty(path: Path) -> None:
    if path.is_file() and not path.stat().st_size:
        raise XspError("the file is empty", path=path, advice="Capture or copy it again")
