"""Many comparisons together: models of two batches, each compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_analyze.compare.rows import Conclusion
from xsp_analyze.compare.rules import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rules import Outcome

__all__ = ["Compared", "Several"]


@dataclass(frozen=True, slots=True)
class Compared:
    """A model of both batches, compared, with what became of the rules."""

    name: str
    comparison: Comparison
    outcomes: Sequence[Outcome] = ()


@dataclass(frozen=True, slots=True)
class Several:
    """Models of two batches; those that only one of them has are named, not compared."""

    compared: Sequence[Compared]
    only_before: Sequence[str] = ()
    only_after: Sequence[str] = ()

    @property
    def any_violated(self) -> bool:
        """Whether a rule is broken."""
        return any(o.verdict is Verdict.VIOLATED for one in self.compared for o in one.outcomes)

    @property
    def any_undecided(self) -> bool:
        """Whether of a rule, or where a comparison has none of its latency, noise leaves open what to say."""
        return any(_is_open(one) for one in self.compared)


def _is_open(one: Compared) -> bool:
    if one.comparison.same_content:
        return False
    if one.outcomes:
        return any(o.verdict in {Verdict.INCONCLUSIVE, Verdict.UNKNOWN} for o in one.outcomes)
    return one.comparison.latency.conclusion in {None, Conclusion.INCONCLUSIVE}
