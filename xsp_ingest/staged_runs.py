"""Runs as their files have them, ready to be linked: all to one trace, or those of a leveled file to one each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_ingest.link.link import Source, link
from xsp_ingest.staging.run_overrides import RunOverrides
from xsp_model import Finding, LedgerKind
from xsp_model.plain_text import readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_ingest.ingester import Options
    from xsp_ingest.staging.raw import RawTrace
    from xsp_model import Trace

__all__ = ["LeveledRuns", "StagedRuns"]

_NAMED = 3


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
            [*self.noted, mixed, *self._same_ranks()],
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
            names = ", ".join(readable(Path(source.path).name) for source in [*claiming.values()][:_NAMED])
            more = f" and {len(claiming) - _NAMED:,} more" if len(claiming) > _NAMED else ""
            yield Finding(kind, f"{kind.sentence}: rank {rank} of {names}{more}", len(claiming))

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
