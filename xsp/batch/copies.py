"""Which inputs of a batch are another one again: copies of files and folders, and bundles beside their sources."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.batch.job_ranks import is_named_after_rank
from xsp.batch.locations import is_url
from xsp_model import XspError, bundle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xsp.batch.trace_inputs import TraceInputs

__all__ = ["without_copies"]


def without_copies(parts: Sequence[TraceInputs]) -> tuple[list[TraceInputs], dict[str, str]]:
    """The inputs each once, and what was left out with what holds the same; inputs at URLs all stay.

    Of equal ones that stays which lies beside most others, as a job's ranks do; then whose name says a rank; then the
    first. Of a bundle and its sources, these.
    """
    from xsp_ingest.distinct import distinct  # noqa: PLC0415 (imports polars)

    local = [part for part in parts if not is_url(part.inputs[0])]
    beside = Counter(Path(part.inputs[0]).parent for part in local)
    local.sort(key=lambda part: (-beside[Path(part.inputs[0]).parent], not is_named_after_rank(part)))
    once = distinct([[Path(name) for name in part.inputs] for part in local])
    copies = {str(copy): str(of) for copy, of in once.copies.items()}
    kept = [local[position] for position in once.inputs]
    converted = _beside_sources([Path(part.inputs[0]) for part in kept], [*map(Path, _inputs(kept)), *once.copies])
    copies |= {str(path): str(source) for path, source in converted.items()}
    stays = {part for part in kept if part.inputs[0] not in copies}
    return [part for part in parts if part in stays or is_url(part.inputs[0])], copies


def _inputs(parts: Sequence[TraceInputs]) -> Iterator[str]:
    return (name for part in parts for name in part.inputs)


def _beside_sources(inputs: Sequence[Path], others: Sequence[Path]) -> Mapping[Path, Path]:
    """The bundles all of whose sources are among the others, or in these, each with its first source."""
    from xsp_ingest.files.safe_files import sha256  # noqa: PLC0415 (imports polars)

    made_of = {path: sources for path in inputs if bundle.is_bundle(path) and (sources := _sources(path))}
    lengths = {length for sources in made_of.values() for _, length in sources}
    files = [(path, _bytes(path)) for path in _files(others)] if made_of else []
    by_digest: dict[str, Path] = {}
    for path, length in files:
        if length in lengths:
            by_digest.setdefault(sha256(path), path)
    return {
        path: by_digest[sources[0][0]]
        for path, sources in made_of.items()
        if all(digest in by_digest for digest, _ in sources)
    }


def _sources(path: Path) -> list[tuple[str, int]]:
    """Digest and length of each of a bundle's sources; none where it does not say them all."""
    try:
        recorded = bundle.read_manifest(path).get("sources")
        return [(str(each["source_sha256"]), int(each["source_bytes"])) for each in recorded]  # type: ignore[attr-defined]
    except (XspError, OSError, TypeError, KeyError, ValueError):
        return []


def _files(inputs: Sequence[Path]) -> Iterator[Path]:
    """The inputs but bundles, and the files in those that are folders."""
    for path in inputs:
        if path.is_dir() and bundle.is_bundle(path):
            continue
        yield path
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*") if file.is_file())


def _bytes(path: Path) -> int:
    from xsp_ingest.files.safe_files import files_of  # noqa: PLC0415

    return sum(file.stat().st_size for file in files_of(path))
