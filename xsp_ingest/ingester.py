"""What an ingester is, and how one is chosen: by content, never by a file's name."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from xsp_ingest.files.known_others import refusal
from xsp_ingest.staging.selection import EVERYTHING, Selection, narrowed
from xsp_model import XspError
from xsp_model.closest import closest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.staging.raw import RawTrace

__all__ = [
    "Ingester",
    "KnownLayout",
    "LayerScope",
    "Options",
    "PartReader",
    "Probe",
    "SeveralFiles",
    "SeveralRuns",
    "Supplement",
    "WholeFolder",
    "choose",
    "claimants_of",
    "laid_out",
    "owner_of",
    "read_part",
    "read_runs",
    "units",
]

_HEAD_BYTES = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class Probe:
    """A file's first 64 KiB, as they are and decompressed: all that `sniff` looks at, besides SQLite's tables."""

    path: Path

    @cached_property
    def head(self) -> bytes:
        """The first bytes as they are on disk."""
        try:
            with self.path.open("rb") as file:
                return file.read(_HEAD_BYTES)
        except OSError as error:
            raise XspError(f"the file cannot be read ({error.strerror})", path=self.path) from error

    @cached_property
    def is_gzip(self) -> bool:
        """Whether the file is gzip-compressed."""
        return self.head.startswith(_GZIP_MAGIC)

    @cached_property
    def text(self) -> bytes:
        """The first bytes of the content, decompressed where needed."""
        if not self.is_gzip:
            return self.head
        try:
            return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(self.head, _HEAD_BYTES)
        except zlib.error as error:
            raise XspError(
                "the file says it is gzip but cannot be decompressed", path=self.path, advice="Copy it again"
            ) from error


@dataclass(frozen=True, slots=True)
class LayerScope:
    """What is known of a layer beside the scope that its operators' names lie in; `place` among the model's layers."""

    name: str
    type: str = ""
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """What the user may say about reading; regexes are matched with `re.search` on a range's name."""

    model_ranges: Sequence[str] = ()
    layer_ranges: Sequence[str] = ()
    layer_source: str = "auto"
    keep_private: bool = False
    layer_scopes: Mapping[str, LayerScope] = field(default_factory=dict)  # where a file's operators name their scopes
    extra: dict[str, str] = field(default_factory=dict)
    selection: Selection = EVERYTHING


class Ingester(Protocol):
    """One file format."""

    @property
    def name(self) -> str:
        """The format's name, as `--format` takes it."""

    @property
    def title(self) -> str:
        """One line for `xsp formats`: what the format is and which versions were seen."""

    def sniff(self, probe: Probe) -> bool:
        """Whether the file is of this format, judged from its content."""

    def read(self, path: Path, options: Options) -> RawTrace:
        """The file's rows; XspError where it cannot be used at all."""


@runtime_checkable
class SeveralRuns(Protocol):
    """What an ingester offers besides, where one file of its format may hold several runs."""

    def read_runs(self, path: Path, options: Options) -> Sequence[RawTrace]:
        """The file's runs, at least one; XspError where it cannot be used at all."""


@runtime_checkable
class PartReader(Protocol):
    """What an ingester offers besides, where it need not read a whole file for a part of its run."""

    def read_part(self, path: Path, options: Options) -> RawTrace:
        """What `narrowed` makes of the file's rows for the selection of the options."""


@runtime_checkable
class SeveralFiles(Protocol):
    """What an ingester offers besides, where several files of its format are one run."""

    def together(self, paths: Sequence[Path]) -> Sequence[Sequence[Path]]:
        """The files of each run, the one it is named after first; XspError where that cannot be told."""

    def read_together(self, paths: Sequence[Path], options: Options) -> RawTrace:
        """The run of these files; XspError where one of them cannot be used."""


@runtime_checkable
class Supplement(Protocol):
    """What an ingester offers besides, where its files say more of runs that other files hold."""

    def supplement(self, path: Path, runs: Sequence[RawTrace]) -> Sequence[RawTrace]:
        """As many runs, in the same order, with what the file says of them; XspError where it is of none of them."""


@runtime_checkable
class WholeFolder(Protocol):
    """What an ingester offers besides, where a folder is one input of its format, its files being parts of it."""

    def sniff_folder(self, folder: Path) -> bool:
        """Whether the folder as a whole is of this format."""


@runtime_checkable
class KnownLayout(Protocol):
    """What an ingester offers besides, where its tool lays its files out in folders of its own."""

    def files_in(self, folder: Path) -> Sequence[Path]:
        """The files to read of such a folder, none of any other; XspError where the user must choose."""


def units(found: Sequence[tuple[Path, Ingester]]) -> list[tuple[Sequence[Path], Ingester]]:
    """What is read at once: a file, or files that are one run, in the place of the one the run is named after."""
    several = {ingester.name: ingester for _, ingester in found if isinstance(ingester, SeveralFiles)}
    groups = {
        name: {paths[0]: paths for paths in one.together([path for path, by in found if by.name == name])}
        for name, one in several.items()
    }
    result: list[tuple[Sequence[Path], Ingester]] = []
    for path, ingester in found:
        paths = groups.get(ingester.name, {path: [path]}).get(path)
        if paths is not None:
            result.append((paths, ingester))
    return result


def read_runs(ingester: Ingester, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
    """The runs of a unit's files; most formats hold one in one file."""
    if isinstance(ingester, SeveralFiles):
        return [ingester.read_together(paths, options)]
    if isinstance(ingester, SeveralRuns):
        return ingester.read_runs(paths[0], options)
    return [ingester.read(paths[0], options)]


def read_part(ingester: Ingester, paths: Sequence[Path], options: Options) -> Sequence[RawTrace]:
    """The part of the runs that the options select."""
    if isinstance(ingester, PartReader) and not isinstance(ingester, SeveralFiles | SeveralRuns):
        return [ingester.read_part(paths[0], options)]
    return [narrowed(raw, options.selection) for raw in read_runs(ingester, paths, options)]


def owner_of(folder: Path, ingesters: Sequence[Ingester], wanted: str | None = None) -> Ingester | None:
    """The one ingester that takes the folder as a whole; None where its files are inputs of their own."""
    takers = [i for i in ingesters if isinstance(i, WholeFolder) and i.sniff_folder(folder)]
    asked = [i for i in takers if wanted in (None, i.name)]
    return asked[0] if len(asked) == 1 else None


def laid_out(folder: Path, ingesters: Sequence[Ingester], wanted: str | None = None) -> list[tuple[Path, Ingester]]:
    """The files of a folder that one tool laid out, with the tool's ingester; none of any other folder."""
    known = (i for i in ingesters if isinstance(i, KnownLayout) and wanted in (None, i.name))
    return next(([(file, i) for file in files] for i in known if (files := i.files_in(folder))), [])


def claimants_of(probe: Probe, ingesters: Sequence[Ingester]) -> list[Ingester]:
    """The ingesters that claim the file."""
    return [i for i in ingesters if i.sniff(probe)]


def no_format(wanted: str, ingesters: Sequence[Ingester]) -> XspError:
    """The error for a name that is no format's, with those that are near to it by name or title."""
    titles = {i.title: i.name for i in ingesters}
    near = [titles.get(name, name) for name in closest(wanted, [*(i.name for i in ingesters), *titles])]
    hint = f"Did you mean {' or '.join(dict.fromkeys(near))}? " if near else ""
    return XspError(f"there is no format {wanted!r}", advice=f"{hint}`xsp formats` lists them")


def choose(
    path: Path,
    ingesters: Sequence[Ingester],
    wanted: str | None = None,
    *,
    claimants: Sequence[Ingester] | None = None,
) -> Ingester:
    """The one ingester that claims the file (`claimants`: those that do, if known), or the one asked for by name."""
    if wanted is not None:
        for ingester in ingesters:
            if ingester.name == wanted:
                _check_not_empty(path)
                return ingester
        raise no_format(wanted, ingesters)
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
