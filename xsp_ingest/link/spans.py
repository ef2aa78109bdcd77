"""Questions put to columns of spans (kind, text, number, key), and the wanted spans above each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_ingest.machine.functions import NUMBER, CompiledFunction
from xsp_ingest.machine.sweep import dual
from xsp_model import Kind, Level
from xsp_model.columns import tree
from xsp_model.columns.arrays import empty, full, lookup, no_refs, pieces, release
from xsp_model.limits import limits
from xsp_model.vocabulary import LEVELS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from xsp_ingest.staging.raw import RawTrace
    from xsp_model.columns.arrays import Bools, Ints, Positions

__all__ = [
    "CLIMB",
    "SpanKinds",
    "as_categorical",
    "call_numbers",
    "category_indices",
    "details_of",
    "innermost",
    "matches",
    "outermost",
    "pair_keys",
    "span_kinds",
]

# The nearest and the farthest wanted span above each span, for as many spans as there are.

CLIMB = CompiledFunction("climb", "_climb", ("int32", "uint8", *(NUMBER,) * 3, "int32", "int32"), (__name__,))
_CYCLE = "the span tree has a cycle"


def innermost(parent: Positions, mask: Bools) -> Positions:
    """What `tree.innermost` answers."""
    return _climb_all(parent, mask, farthest=0) if _is_worth_it(parent) else tree.innermost(parent, mask)


def outermost(parent: Positions, mask: Bools) -> Positions:
    """What `tree.outermost` answers."""
    return _climb_all(parent, mask, farthest=1) if _is_worth_it(parent) else tree.outermost(parent, mask)


def _is_worth_it(parent: Positions) -> bool:
    return len(parent) >= limits().climb_min_spans


def _climb_all(parent: Positions, mask: Bools, farthest: int) -> Positions:
    nearest, cycle = no_refs(len(parent)), np.full(1, -1, dtype=parent.dtype)
    spans = limits().climb_piece_spans
    for first in range(0, len(parent), spans):
        _climb.into((nearest, cycle), parent, mask, farthest, first, min(first + spans, len(parent)))
        release()
    if cycle[0] >= 0:
        raise ValueError(_CYCLE)
    return nearest


@dual(CLIMB)
def _climb(parent: Ints, mask: Ints, farthest: int, first: int, last: int, nearest: Ints, cycle: Ints) -> None:
    """Upwards from each span as far as an earlier one, whose answer is known: parents mostly come before children."""
    for i in range(first, last):
        j = i
        steps = 0
        while j >= 0 and j < len(parent):
            if mask[j] != 0:
                nearest[i] = j
                if farthest == 0:
                    break
            j = parent[j]
            if j >= 0 and j < i:
                if nearest[j] >= 0:
                    nearest[i] = nearest[j]
                break
            steps += 1
            if steps > len(parent):
                cycle[0] = i
                return


# Questions put to columns of spans: of which kind, which text, which number, which key.

# What tells spans apart that start and end together: what the source says of them, never where its file has them.
_DETAILS = ("operators", "ranges", "kernels", "copies", "collectives", "messages", "layers", "compiled_kernels")
_LAST = (1 << 63) - 1


def call_numbers(spans: pl.DataFrame, operators: pl.DataFrame, ranges: pl.DataFrame) -> Ints:
    """The source's number of each call: sources count them as they begin. That of a span without one is the greatest.

    `operators` have `at`, their position in `spans`.
    """
    out = full(spans.height, _LAST, np.int64)
    numbered = operators.select("at", pl.coalesce("external_id", "record_function_id").alias("number")).drop_nulls()
    out[numbered["at"].to_numpy()] = numbered["number"].to_numpy()
    of_ranges = ranges.select("row", "range_id").drop_nulls()
    at = lookup(spans["row"].to_numpy(), of_ranges["row"].to_numpy())
    out[at[at >= 0]] = of_ranges["range_id"].to_numpy()[at >= 0]
    return out


def details_of(raw: RawTrace, rows: Positions) -> Sequence[Ints]:
    """Numbers that rise with what the tables of details say of these spans, which are alike in all other columns."""
    at = pl.DataFrame({"row": raw.tables["spans"]["row"].gather(rows)})
    keys = []
    for name in _DETAILS:
        table = raw.tables[name].filter(pl.col("row").is_in(at["row"].implode()))
        facts = [column for column in table.columns if column != "row" and not column.endswith("_row")]
        for column in facts:
            if table[column].null_count() < table.height:
                one = table.select("row", pl.col(column).cast(pl.String) if table[column].dtype != pl.Int64 else column)
                values = at.join(one.unique("row", keep="any"), on="row", how="left", maintain_order="left")[column]
                keys.append(values.rank("dense").fill_null(0).to_numpy().astype(np.int64))
    return keys


# Looks at a dictionary-encoded column by its few distinct texts, not by its many rows.


def matches(column: pl.Series, pattern: str) -> Bools:
    """For each row of a Categorical column whether the regex is found in its text; null: no."""
    mask: Bools = _answer_by_text(column, lambda texts: texts.str.contains(pattern), np.bool_, fill=False)
    return mask


def category_indices(column: pl.Series, categories: Sequence[str]) -> NDArray[np.int8]:
    """For each row of a Categorical column the index of its text among the categories; null or another text: -1."""
    index_of = {category: index for index, category in enumerate(categories)}
    indices: NDArray[np.int8] = _answer_by_text(
        column, lambda texts: [index_of.get(t, -1) for t in texts], np.int8, fill=-1
    )
    return indices


def _answer_by_text(column: pl.Series, answer: Callable[[pl.Series], Any], kind: Any, *, fill: int) -> Any:  # noqa: ANN401
    """The answer for each distinct text, given to all rows that have it; `fill` for null."""
    distinct = column.unique().drop_nulls()
    physical = distinct.to_physical().to_numpy()
    table = np.full(int(physical.max(initial=0)) + 2, fill, dtype=kind)  # its last entry is for null
    table[physical] = np.asarray(answer(distinct.cast(pl.String)), dtype=kind)
    rows, out = column.to_physical(), np.empty(len(column), dtype=kind)
    for piece in pieces(len(column)):
        some = rows[piece]
        out[piece] = table[(some.fill_null(len(table) - 1) if some.null_count() else some).to_numpy()]
    return out


def as_categorical(indices: NDArray[np.int8], categories: Sequence[str]) -> pl.Series:
    """The Categorical column in which each row has the category of its index; -1: null."""
    values = pl.Series([*categories, None], dtype=pl.Categorical)
    return values.gather(np.where(indices < 0, len(categories), indices).astype(np.uint8))


# One integer for a pair of them, so that tables are joined by looking a number up.
_MAX_KEY = 1 << 62


def pair_keys(have: pl.DataFrame, want: pl.DataFrame) -> tuple[Ints, Ints]:
    """For each row of two frames with the same two columns a number, alike exactly where both columns are.

    The first column should have few values. Rows with a null are like none: in `want` they are -1, in `have` -2.
    """
    name, other = have.columns
    firsts = np.sort(have[name].drop_nulls().unique().to_numpy())
    seconds = have[other].drop_nulls()
    low, high = (int(seconds.min() or 0), int(seconds.max() or 0))  # type: ignore[arg-type]
    if (high - low + 1) * max(len(firsts), 1) > _MAX_KEY:  # widely scattered numbers: their ranks will do
        distinct = np.sort(seconds.unique().to_numpy())
        return tuple(_numbers(f, firsts, distinct, 0, len(distinct), n) for f, n in ((have, -2), (want, -1)))  # type: ignore[return-value]
    return _numbers(have, firsts, None, low, high + 1 - low, -2), _numbers(want, firsts, None, low, high + 1 - low, -1)


def _numbers(rows: pl.DataFrame, firsts: Ints, distinct: Ints | None, low: int, width: int, none: int) -> Ints:
    out: Ints = empty(rows.height, np.int64)
    for piece in pieces(rows.height):
        out[piece] = _some_numbers(rows[piece], firsts, distinct, low, width, none)
    return out


def _some_numbers(rows: pl.DataFrame, firsts: Ints, distinct: Ints | None, low: int, width: int, none: int) -> Ints:
    first, second = (rows[column] for column in rows.columns)
    a, b = first.fill_null(0).to_numpy(), second.fill_null(0).to_numpy()
    index, is_known = _search_sorted(firsts, a)
    if distinct is None:
        is_known &= (b >= low) & (b < low + width)
    else:
        b, also = _search_sorted(distinct, b)
        is_known &= also
    for each in (first, second):
        if each.null_count():
            is_known &= each.is_not_null().to_numpy()
    return np.where(is_known, index * width + (b - low), none)


def _search_sorted(sorted_values: Ints, values: Ints) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    if len(sorted_values) == 1:
        return np.zeros(len(values), dtype=np.int64), values == sorted_values[0]
    if not len(sorted_values):
        return np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.bool_)
    index = np.minimum(np.searchsorted(sorted_values, values), len(sorted_values) - 1)
    return index, sorted_values[index] == values


# Of which level and kind spans are, as small numbers to compare.
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
