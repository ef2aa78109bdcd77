"""Which traces of a batch are ranks of one job, and which inputs are another one again."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.batch.locations import is_url, join_path
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp.batch.remote import Fetched, TraceInputs

__all__ = ["claimed_ranks", "group_ranks", "is_named_after_rank", "may_be_jobs", "without_copies"]

_RANK_IN_NAME = re.compile(r"(?<![A-Za-z])rank[-_.=]?(\d{1,9})(?!\d)", re.IGNORECASE)
_RECORDED = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,9})\b')
_PAIR = 2


def is_named_after_rank(part: TraceInputs) -> bool:
    """Whether where the trace lies says a rank."""
    return bool(_RANK_IN_NAME.search(part.below))


def claimed_ranks(parts: Sequence[TraceInputs], heads: Mapping[str, Path]) -> dict[TraceInputs, int]:
    """The ranks that names or heads of traces state; `heads`: what files at URLs begin with."""
    named = {p: int(m[-1]) for p in parts if (m := _RANK_IN_NAME.findall(p.below))}
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
    return "/".join(step for step in steps if not _RANK_IN_NAME.search(step))


# Which inputs of a batch are another one again: copies of files, folders and jobs, bundles beside their sources.

_Parts = list["TraceInputs"]


class _Inputs:
    """All inputs of a batch: where each can be read on this machine, and which hold the same."""

    def __init__(self, parts: Sequence[TraceInputs], fetched: Fetched) -> None:
        from xsp_ingest.distinct import content_of  # noqa: PLC0415 (imports polars)

        self._parts = parts
        self._manifests = fetched.manifests
        names = dict.fromkeys(name for part in parts for name in part.inputs)
        self._paths = {
            # what was not fetched to its end is like nothing else
            name: fetched.complete.get(name, Path(os.devnull, str(number))) if is_url(name) else Path(name)
            for number, name in enumerate(names)
        }
        self._names = {path: name for name, path in self._paths.items()}
        self.content = content_of(self._paths.values())
        self.copies: dict[str, str] = {}  # what is not read, with what holds the same

    def of(self, parts: Sequence[TraceInputs]) -> list[Path]:
        """Where their files are."""
        return [self._paths[name] for part in parts for name in part.inputs]

    def key(self, part: TraceInputs) -> frozenset[Path]:
        """The same for inputs that hold the same."""
        return frozenset(self.content[path] for path in self.of([part]))

    def note(self, copies: Mapping[Path, Path]) -> None:
        """Copies, each with what holds the same."""
        self.copies |= {self._name(copy): self._name(of) for copy, of in copies.items()}

    def _name(self, path: Path) -> str:
        """What the user calls it: of a file in a folder that lies elsewhere, its place there."""
        for above in (path, *path.parents):
            if above in self._names:
                return join_path(self._names[above], *path.relative_to(above).parts)
        return str(path)

    def without_bundles(self) -> set[TraceInputs]:
        """The inputs without bundles that were made of others; of several copies of one, the first is told of these."""
        from xsp_ingest.distinct import beside_sources  # noqa: PLC0415 (imports polars)

        firsts = {part.inputs[0]: part for part in self._parts}
        bundles = {self._manifests.get(name, self._paths[name]): name for name in firsts}
        converted = beside_sources(list(bundles), [path for path in self._paths.values() if path.exists()])
        for path, source in converted.items():
            own = self._paths[bundles[path]]
            self.note({own: source if self.content[own] == own else self.content[own]})
        return set(self._parts) - {firsts[bundles[path]] for path in converted}

    def once(self, inputs: Sequence[Sequence[TraceInputs]]) -> list[int]:
        """The positions of those of which none is another one again; what several share otherwise stays in each."""
        from xsp_ingest.distinct import distinct  # noqa: PLC0415 (imports polars)

        once = distinct([self.of(parts) for parts in inputs], self.content)
        noted = [parts for number, parts in enumerate(inputs) if number not in once.inputs or len(parts) == 1]
        copies = {path for parts in noted for path in self.of(parts)} & once.copies.keys()
        self.note({path: once.copies[path] for path in copies})
        return list(once.inputs)


def without_copies(
    groups: Sequence[Sequence[TraceInputs]],
    rank_of: Mapping[TraceInputs, int],
    forced: bool | None,
    fetched: Fetched,
) -> tuple[set[TraceInputs], dict[str, str], list[str]]:
    """The traces to be read, what was left out with what holds the same, and a sentence for each rank of several jobs.

    `groups`: those of each thing that the user named. No job is torn: it is left out where another one has all its
    ranks, and else keeps those that others have, too. Of equal traces stays the one that lies beside most others; then
    whose name says a rank; then the first. Of a bundle and its sources, these.
    """
    inputs = _Inputs([part for group in groups for part in group], fetched)
    kept = inputs.without_bundles()
    beside = Counter(Path(part.inputs[0]).parent for part in kept)
    jobs: list[_Parts] = []
    for group in groups:
        for folder in may_be_jobs([part for part in group if part in kept], rank_of, forced):
            folder.sort(key=lambda part: not is_named_after_rank(part))
            stay = inputs.once([[part] for part in folder])
            kept -= {part for number, part in enumerate(folder) if number not in stay}
        of_group, _ = group_ranks([part for part in group if part in kept], rank_of, forced)
        jobs += [list(ranks) for ranks in of_group.values()]
    in_jobs = {part for job in jobs for part in job}
    single = [part for group in groups for part in group if part in kept and part not in in_jobs]
    single.sort(key=lambda part: (-beside[Path(part.inputs[0]).parent], not is_named_after_rank(part)))
    all_inputs = [*jobs, *([part] for part in single)]
    stay = inputs.once(all_inputs)
    shared = _shared_ranks([all_inputs[n] for n in stay if n < len(jobs)], inputs)
    return {part for n in stay for part in all_inputs[n]}, inputs.copies, shared


def _shared_ranks(jobs: Sequence[Sequence[TraceInputs]], inputs: _Inputs) -> list[str]:
    first: dict[frozenset[Path], TraceInputs] = {}
    pairs = [(part, first.setdefault(inputs.key(part), part)) for job in jobs for part in job]
    return [
        f"{part.inputs[0]} and {like.inputs[0]} hold the same: it is read as a rank of the job of each"
        for part, like in pairs
        if like != part
    ]
