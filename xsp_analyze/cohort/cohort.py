"""Traces gathered by model and system: the rows that the tables of a cohort are made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_analyze.cohort.quality import NO_PRICES
from xsp_analyze.formulas import first_saturating_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from xsp_analyze.cohort.facts import Speed, TraceFacts
    from xsp_analyze.cohort.quality import Prices

__all__ = ["Member", "System", "group_by_system"]


@dataclass(frozen=True, slots=True)
class Member:
    """One trace of the cohort: its name there, its facts, and where its report is, if it has one.

    `path`: where the trace is; two of one name are two traces. Without one, the name tells them apart.
    """

    name: str
    facts: TraceFacts
    report: str | None = None
    path: str = ""

    @property
    def identity(self) -> str:
        """What no other trace of the cohort has."""
        return self.path or self.name


@dataclass(frozen=True)
class System:
    """A model on a system in a framework, at every batch size that it was measured at.

    `best` is the batch size that the row stands for: the optimal one; else the one of the most inputs per second;
    else the only one. `member` is the trace of it, from which all numbers but throughput over batch sizes are taken.
    """

    members: Sequence[Member]
    speeds: Sequence[tuple[Speed, Member]]
    is_alone: bool = True  # in having its key

    @property
    def label(self) -> str:
        """The model; where other rows have its system and framework too, with the name of the trace."""
        return self.facts.model if self.is_alone else f"{self.facts.model} ({self.member.name})"

    @property
    def facts(self) -> TraceFacts:
        """The facts of the trace that the row stands for."""
        return self.member.facts

    @property
    def member(self) -> Member:
        """The trace that the row stands for."""
        return self.best[1] if self.best else self.members[0]

    @property
    def key(self) -> tuple[str, str, str]:
        """Model, system and framework, as they sort."""
        facts = self.members[0].facts
        return facts.model, facts.system or "", facts.framework or ""

    @property
    def optimal_batch(self) -> int | None:
        """XSP's: the first batch size whose doubling raises throughput by 5 % or less; None: none was doubled."""
        return first_saturating_batch(
            {s.batch_size: s.throughput_per_s for s, _ in self.speeds if s.batch_size and s.throughput_per_s}
        )

    @property
    def best(self) -> tuple[Speed, Member] | None:
        """The batch size that the row stands for, with its trace."""
        optimal = self.optimal_batch
        if optimal is not None:
            return next(one for one in self.speeds if one[0].batch_size == optimal)
        return max(self.speeds, key=lambda one: one[0].throughput_per_s or 0.0, default=None)

    @property
    def single_latency_ns(self) -> float | None:
        """Latency of one input at a time; None where batch size 1 was not measured."""
        return next((s.latency_ns for s, _ in self.speeds if s.batch_size == 1), None)

    def cost(self, prices: Prices = NO_PRICES) -> float | None:
        """Of 1,000 inputs at the row's throughput."""
        return prices.per_thousand(self.facts.system, self.best[0].throughput_per_s if self.best else None)


def group_by_system(members: Iterable[Member]) -> list[System]:
    """The members by model, system and framework, in that order.

    Traces that do not name a batch size are a row each, as nothing says that they are of the same work.
    """
    groups: dict[tuple[str, ...], list[Member]] = {}
    for member in sorted(members, key=lambda m: (m.name, m.identity)):
        facts = member.facts
        named = any(s.batch_size is not None for s in facts.speeds)
        key = (facts.model, facts.system or "", facts.framework or "", "" if named else member.identity)
        groups.setdefault(key, []).append(member)
    counts = Counter(key[:-1] for key in groups)
    return [_system(groups[key], is_alone=counts[key[:-1]] == 1) for key in sorted(groups)]


def _system(members: Sequence[Member], *, is_alone: bool) -> System:
    """Of traces of one batch size the one with most steps gives its speed, then the one that saw deepest."""
    chosen: dict[int | None, tuple[Speed, Member]] = {}
    for member in members:
        for speed in member.facts.speeds:
            kept = chosen.get(speed.batch_size)
            if kept is None or _rank(speed, member) > _rank(*kept):
                chosen[speed.batch_size] = (speed, member)
    return System(members, [chosen[batch] for batch in sorted(chosen, key=lambda b: b or 0)], is_alone)


def _rank(speed: Speed, member: Member) -> tuple[int, int]:
    return speed.steps, len(member.facts.levels)
