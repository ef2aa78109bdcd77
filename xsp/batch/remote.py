"""What lies below a URL as parts, told from names, and what is fetched of it to be compared; workers read the rest."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from xsp.batch.locations import fetch, is_http, is_url, join_path, list_files, read_head
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from xsp.batch.locations import Entry

__all__ = ["Fetched", "TraceInputs", "fetch_to_compare", "parts"]


@dataclass(frozen=True, slots=True)
class TraceInputs:
    """Inputs that are one trace, and where they lie below what the user named: the unit's name comes from that.

    `listing`: of an input at a URL the paths of its files below it ("" of a file), with their bytes as far as known.
    """

    inputs: tuple[str, ...]
    below: str
    discovered: bool = True
    listing: tuple[tuple[str, int | None], ...] = field(default=(), compare=False)


_MANIFEST = "manifest.json"
_DESCRIPTION = "run.json"
T = TypeVar("T")


def parts(url: str) -> list[TraceInputs]:
    """Bundles (by `manifest.json`), run sets (by `run.json`), and every other file as a trace of its own."""
    entries = list_files(url)
    one = entries[0] if len(entries) == 1 else None
    if one is not None and one.below == one.url.rpartition("/")[2]:
        return [TraceInputs((one.url,), one.below, one.below not in url, (("", one.size),))]
    folders = _folders(entries)
    end = "/" if url.endswith("/") and is_http(url) else ""
    traces = {f: TraceInputs((f + end,), below, listing=_listing(f, entries)) for f, below in folders.items()}
    rest = [
        TraceInputs((e.url,), e.below, listing=(("", e.size),))
        for e in entries
        if e.size != 0
        and not any(e.url.startswith(f"{f}/") for f in folders)
        and not e.below.rpartition("/")[2].startswith(".")
    ]
    return sorted((*traces.values(), *rest), key=lambda part: part.inputs[0].rstrip("/"))


def _listing(folder: str, entries: Sequence[Entry]) -> tuple[tuple[str, int | None], ...]:
    start = f"{folder}/"
    return tuple((e.url.removeprefix(start), e.size) for e in entries if e.url.startswith(start))


def _folders(entries: Sequence[Entry]) -> dict[str, str]:
    """Folders that are one input, by URL, with where they lie: bundles, and what holds run folders or is one."""
    inputs: dict[str, str] = {}
    runs: dict[str, str] = {}
    for entry in entries:
        folder, _, name = entry.url.rpartition("/")
        below = entry.below.rpartition("/")[0]
        if name == _MANIFEST:
            inputs[folder] = below or folder.rpartition("/")[2]
        elif name == _DESCRIPTION:
            runs[folder] = below or folder.rpartition("/")[2]
    for folder, below in runs.items():
        parent = folder.rpartition("/")[0]
        siblings = [other for other in runs if other.rpartition("/")[0] == parent]
        if len(siblings) > 1 and "/" in below:
            inputs[parent] = below.rpartition("/")[0]
        elif not any(folder.startswith(f"{other}/") for other in inputs):
            inputs[folder] = below
    return inputs


# What is fetched of it before any worker does: heads, which may say a rank, and what may be another's copy.
_HEAD_BYTES = 1 << 16  # what a probe looks at
_AT_ONCE = 16
_MAX_MANIFEST_BYTES = 1 << 26


@dataclass(frozen=True, slots=True)
class Fetched:
    """Where here lies what files at URLs begin with, manifests of bundles there, and what was fetched to its end.

    Complete are those that may be another's copy, as they begin alike and are as long or one is gzip; and those that
    may be sources of a bundle.
    """

    heads: Mapping[str, Path] = field(default_factory=dict)
    manifests: Mapping[str, Path] = field(default_factory=dict)
    complete: Mapping[str, Path] = field(default_factory=dict)


@contextmanager
def fetch_to_compare(parts: Sequence[TraceInputs], format_name: str | None) -> Iterator[Fetched]:
    """Within `with`, what tells inputs at URLs apart, from each other and from those of this machine.

    What cannot be fetched is like nothing else: the worker that reads it says why.
    """
    far = {part.inputs[0]: part for part in parts if is_url(part.inputs[0])}
    if not far or len(parts) == 1:
        yield Fetched()
        return
    with tempfile.TemporaryDirectory(prefix="xsp-compare-") as scratch:
        files = [url for url, part in far.items() if [name for name, _ in part.listing] == [""]]
        heads = _fetch_each(files, Path(scratch, "heads"), _fetch_head)
        bundles = [url for url, part in far.items() if _MANIFEST in dict(part.listing)]
        manifests = _fetch_each(bundles, Path(scratch, "manifests"), _fetch_manifest)
        sizes = {url: far[url].listing[0][1] or size for url, (_, size) in heads.items()}
        begun = {url: path for url, (path, _) in heads.items()}
        comparable = _may_be_alike(parts, {**begun, **manifests}, sizes) | _may_be_sources(far, sizes, manifests)
        complete = _fetch_each([url for url in far if url in comparable], Path(scratch, "complete"), fetch)
        yield Fetched(begun, manifests, {u: path for u, path in complete.items() if _may_be_trace(path, format_name)})


def _fetch_each(urls: Sequence[str], scratch: Path, fetch_one: Callable[[str, Path], T]) -> dict[str, T]:
    def attempt(numbered: tuple[int, str]) -> tuple[str, T] | None:
        number, url = numbered
        folder = scratch / str(number)
        folder.mkdir(parents=True)
        try:
            return url, fetch_one(url, folder)
        except (XspError, OSError):
            return None

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(filter(None, pool.map(attempt, enumerate(urls))))


def _fetch_head(url: str, folder: Path) -> tuple[Path, int | None]:
    content, size = read_head(url, _HEAD_BYTES)
    path = folder / "head"
    path.write_bytes(content)
    return path, size


def _fetch_manifest(url: str, folder: Path) -> Path:
    """A folder that holds of the bundle its manifest alone."""
    content, _ = read_head(join_path(url, _MANIFEST), _MAX_MANIFEST_BYTES)
    (folder / _MANIFEST).write_bytes(content)
    return folder


def _may_be_alike(parts: Sequence[TraceInputs], begun: Mapping[str, Path], sizes: Mapping[str, int | None]) -> set[str]:
    """The inputs that begin as others do and are as long, where that is known and none of these is gzip.

    Bundles begin with their manifest, other folders with the names in them.
    """
    from xsp_ingest.distinct import head_of  # noqa: PLC0415
    from xsp_ingest.files.content import Probe  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_model import bundle  # noqa: PLC0415

    groups: dict[Hashable, list[tuple[str, int | None]]] = defaultdict(list)
    for part in parts:
        for name in part.inputs:
            path = begun.get(name, Path(name))
            with suppress(XspError, OSError):
                if bundle.is_bundle(path):
                    groups[(path / _MANIFEST).read_bytes()].append((name, 0))
                elif is_url(name) and name not in begun:
                    groups[tuple(sorted((Path(below), size) for below, size in part.listing))].append((name, 0))
                elif path.is_dir():
                    groups[head_of(path)].append((name, 0))
                else:
                    size = sizes.get(name) if is_url(name) else path.stat().st_size
                    groups[head_of(path)].append((name, None if Probe(path).is_gzip else size))
    alike: set[str] = set()
    for group in groups.values():
        counts = Counter(size for _, size in group)
        alike |= {name for name, size in group if len(group) > 1 and (None in counts or counts[size] > 1)}
    return alike


def _may_be_sources(
    far: Mapping[str, TraceInputs], sizes: Mapping[str, int | None], manifests: Mapping[str, Path]
) -> set[str]:
    """The inputs at URLs of which a file is as long as a source of one of the bundles, or may be."""
    from xsp_ingest.distinct import sources  # noqa: PLC0415 (imports polars)

    lengths = {length for bundle in manifests.values() for _, length in sources(bundle)}
    return {
        url
        for url, part in far.items()
        if lengths and url not in manifests
        for of_file in ([sizes[url]] if url in sizes else [size for _, size in part.listing])
        if of_file is None or of_file in lengths
    }


def _may_be_trace(path: Path, format_name: str | None) -> bool:
    """Whether anybody claims the file; of folders, and where the user names the format, each may be one."""
    from xsp_ingest.files.content import Probe  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_ingest.ingester import claimants_of  # noqa: PLC0415
    from xsp_ingest.registry import candidates  # noqa: PLC0415

    if path.is_dir() or format_name is not None:
        return True
    try:
        probe = Probe(path)
        return bool(claimants_of(probe, candidates(probe)))
    except XspError:
        return False
