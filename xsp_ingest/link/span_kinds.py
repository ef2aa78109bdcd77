"""Of which level and kind spans are, as small numbers to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_ingest.link.distinct_texts import category_indices
from xsp_model import Kind, Level
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from xsp_model.arrays import Bools

__all__ = ["SpanKinds", "span_kinds"]

_KINDS = tuple(Kind)
_ALL = slice(None)


@dataclass(frozen=True, slots=True)
class SpanKinds:
    """Of which level and kind each span is, as indices among all levels and kinds."""

    level: NDArray[np.int8]
    kind: NDArray[np.int8]

    def is_level(self, level: Level, some: slice = _ALL) -> Bools:
        """Which spans are of the level; of some of them only."""
        mask: Bools = self.level[some] == LEVELS.index(level)
        return mask

    def is_kind(self, kind: Kind) -> Bools:
        """Which spans are of the kind."""
        mask: Bools = self.kind == _KINDS.index(kind)
        return mask


def span_kinds(spans: pl.DataFrame) -> SpanKinds:
    """Level and kind of raw spans."""
    return SpanKinds(
        category_indices(spans["level"], [str(x) for x in LEVELS]),
        category_indices(spans["kind"], [str(x) for x in _KINDS]),
    )
