"""Which traces of a folder are ranks of one job: by their names, or by what PyTorch's profiler writes at their head."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.batch.locations import is_url
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp.batch.trace_inputs import TraceInputs

__all__ = ["claimed_ranks", "group_ranks", "is_named_after_rank", "may_be_jobs"]

_NAMED = re.compile(r"(?<![A-Za-z])rank[-_.=]?(\d{1,9})(?!\d)", re.IGNORECASE)
_RECORDED = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,9})\b')
_PAIR = 2


def is_named_after_rank(part: TraceInputs) -> bool:
    """Whether where the trace lies says a rank."""
    return bool(_NAMED.search(part.below))


def claimed_ranks(parts: Sequence[TraceInputs], heads: Mapping[str, Path]) -> dict[TraceInputs, int]:
    """The ranks that names or heads of traces state; `heads`: what files at URLs begin with."""
    named = {p: int(m[-1]) for p in parts if (m := _NAMED.findall(p.below))}
    return {p: r for p in parts if (r := named.get(p, _rank_in_head(p, heads))) is not None}


def may_be_jobs(
    parts: Sequence[TraceInputs], rank_of: Mapping[TraceInputs, int], forced: bool | None
) -> list[list[TraceInputs]]:
    """The traces of each folder that say a rank, which are a job if their ranks differ; all of them if it is forced."""
    if forced:
        return [list(parts)]
    return [list(ranks) for ranks in _by_folder(parts, rank_of).values()] if forced is None else []


def _by_folder(parts: Sequence[TraceInputs], rank_of: Mapping[TraceInputs, int]) -> dict[str, dict[TraceInputs, int]]:
    folders: dict[str, dict[TraceInputs, int]] = {}
    for part in parts:
        if part in rank_of:
            folders.setdefault(_without_rank(part.below), {})[part] = rank_of[part]
    return folders


def group_ranks(
    parts: Sequence[TraceInputs], rank_of: Mapping[TraceInputs, int], forced: bool | None
) -> tuple[dict[str, Mapping[TraceInputs, int]], list[str]]:
    """Ranks of each job, by where the job lies below the input ("": all of it); jobs have two ranks at least.

    And a sentence for each folder whose traces are no job because several of them say they are one rank.

    `rank_of`: what `claimed_ranks` says of them. `forced`: everything is one job, numbered in order where it does not
    say its rank; False: nothing is. Raises XspError where two traces of a forced job say they are the same rank.
    """
    if forced:
        ranks = _force_ranks(parts, {part: rank_of[part] for part in parts if part in rank_of})
        return {"": ranks} if ranks else {}, []
    if forced is False:
        return {}, []
    several = {job: of for job, of in _by_folder(parts, rank_of).items() if len(of) >= _PAIR}
    claimed = {job: sentence for job, of in several.items() if (sentence := _twice_claimed_sentence(of))}
    return {job: of for job, of in several.items() if job not in claimed}, list(claimed.values())


def _twice_claimed_sentence(ranks: Mapping[TraceInputs, int]) -> str | None:
    """A sentence where several traces say they are one rank."""
    first: dict[int, TraceInputs] = {}
    again = [(rank, part) for part, rank in ranks.items() if first.setdefault(rank, part) is not part]
    if not again:
        return None
    rank, part = again[0]
    return (
        f"{part.inputs[0]} and {first[rank].inputs[0]} both say that they are rank {rank}: the traces of their folder"
        " are reported one by one, not as ranks of a job"
    )


def _force_ranks(parts: Sequence[TraceInputs], ranks: Mapping[TraceInputs, int]) -> dict[TraceInputs, int]:
    if not ranks:
        return {part: number for number, part in enumerate(parts)}
    silent = next((p for p in parts if p not in ranks), None)
    if silent is not None:
        raise XspError(
            "this file does not say which rank it is of, and others do",
            path=silent.inputs[0],
            advice="Put rank and number into its name (rank7.json), or leave it out",
        )
    seen: dict[int, TraceInputs] = {}
    for part, rank in ranks.items():
        if rank in seen:
            raise XspError(
                f"two traces are of rank {rank}: this one and {seen[rank].inputs[0]}",
                path=part.inputs[0],
                advice="Give one job at a time",
            )
        seen[rank] = part
    return dict(ranks)


def _rank_in_head(part: TraceInputs, heads: Mapping[str, Path]) -> int | None:
    """The rank that the file's head states."""
    from xsp_ingest.files.content import Probe  # noqa: PLC0415 (--help must not wait for polars)

    name = part.inputs[0]
    path = heads.get(name) if is_url(name) else Path(name)
    if path is None or not path.is_file():
        return None
    try:
        match = _RECORDED.search(Probe(path).text)
    except XspError:
        return None
    return int(match[1]) if match else None


def _without_rank(below: str) -> str:
    """Where the job lies: the folders that hold its ranks, without those that are named after one."""
    steps = below.split("/")[:-1]
    return "/".join(step for step in steps if not _NAMED.search(step))
