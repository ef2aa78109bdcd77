"""Which inputs of a batch are another one again: copies of files and folders, and bundles beside their sources."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.batch.job_ranks import is_named_after_rank
from xsp.batch.locations import is_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp.batch.trace_inputs import TraceInputs

__all__ = ["without_copies"]


def without_copies(parts: Sequence[TraceInputs]) -> tuple[list[TraceInputs], dict[str, str]]:
    """The inputs each once, and what was left out with what holds the same; inputs at URLs all stay.

    Of equal ones that stays which lies beside most others, as a job's ranks do; then whose name says a rank; then the
    first. Of a bundle and its sources, these.
    """
    from xsp_ingest.distinct import beside_sources, distinct  # noqa: PLC0415 (imports polars)

    local = [part for part in parts if not is_url(part.inputs[0])]
    beside = Counter(Path(part.inputs[0]).parent for part in local)
    local.sort(key=lambda part: (-beside[Path(part.inputs[0]).parent], not is_named_after_rank(part)))
    once = distinct([[Path(name) for name in part.inputs] for part in local])
    copies = {str(copy): str(of) for copy, of in once.copies.items()}
    kept = [local[position] for position in once.inputs]
    converted = beside_sources([Path(part.inputs[0]) for part in kept], [*map(Path, _inputs(kept)), *once.copies])
    copies |= {str(path): str(source) for path, source in converted.items()}
    stays = {part for part in kept if part.inputs[0] not in copies}
    return [part for part in parts if part in stays or is_url(part.inputs[0])], copies


def _inputs(parts: Sequence[TraceInputs]) -> Iterator[str]:
    return (name for part in parts for name in part.inputs)
