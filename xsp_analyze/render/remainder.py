"""What the rows add up to that a table does not show: sums, where a sum over rows says something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.core import Result

__all__ = ["sums_of_the_rest"]


def sums_of_the_rest(result: Result, shown: int) -> Mapping[str, int | float | None]:
    """The sums over the rows after the first `shown`, by column; null where one of these values is unknown.

    Shares of several steps, which stand in one table where each is answered for itself, are left out.
    """
    rest = result.table.slice(shown)
    several = "step" in rest.columns
    names = [
        name for name in result.analysis.additive if name in rest.columns and not (several and name.endswith("share"))
    ]
    if not names or rest.is_empty():
        return {}
    sums = (pl.when(pl.col(name).null_count() == 0).then(pl.col(name).sum()).alias(name) for name in names)
    return rest.select(sums).row(0, named=True)
