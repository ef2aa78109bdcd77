"""Many comparisons together: models of two batches, each compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
