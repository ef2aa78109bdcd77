"""Rows as numbers: they group, sort and find rows as polars does by the columns themselves."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import example, given
from hypothesis import strategies as st

from xsp_analyze.frames.group_ids import (
    group_ids,
    groups,
    in_order,
    numbers_by_appearance,
    numbers_in_order,
    positions_in,
    run_starts,
    running_max,
    sort_by,
)

_WIDE = st.sampled_from([-(2**63), -(2**62), -(2**40), -1, 0, 1, 2**40, 2**62, 2**63 - 1])
_VALUES = {
    pl.Int64(): st.one_of(st.integers(-3, 3), _WIDE),
    pl.Float64(): st.sampled_from([0.0, 0.5, -1.5, 1e300]),
    pl.String(): st.sampled_from(["b", "a", "Z", "", "aa"]),
    pl.Categorical(): st.sampled_from(["d", "c", "Y"]),
    pl.Boolean(): st.booleans(),
}


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    """One to five columns of any types, nulls and many ties among them."""
    height = draw(st.integers(0, 30))
    kinds = draw(st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=5))
    return pl.DataFrame(
        pl.Series(
            f"c{i}",
            draw(st.lists(st.one_of(st.none(), _VALUES[kind]), min_size=height, max_size=height)),
            dtype=kind,
        )
        for i, kind in enumerate(kinds)
    )


def _as_text(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _sorted(frame: pl.DataFrame) -> list[int]:
    rows = _as_text(frame).with_row_index("row")
    return rows.sort(frame.columns, nulls_last=True, maintain_order=True)["row"].to_list()


@example(pl.DataFrame({"id": [2**63 - 1, None]}))
@example(pl.DataFrame({"id": [-(2**63), None, 1 - 2**62]}))
@given(frames())
def test_rows_come_in_the_order_of_their_columns(frame: pl.DataFrame) -> None:
    assert in_order(frame.get_columns()).tolist() == _sorted(frame)
    assert sort_by(*group_ids(frame, ordered=True)).tolist() == _sorted(frame)


@given(frames())
def test_rows_get_one_number_exactly_where_all_values_agree(frame: pl.DataFrame) -> None:
    number, first = numbers_by_appearance(*group_ids(frame))
    distinct = dict.fromkeys(frame.rows())
    assert number.tolist() == [list(distinct).index(row) for row in frame.rows()]
    assert frame[first].rows() == list(distinct)
    rank, rows = numbers_in_order(*group_ids(frame, ordered=True))
    assert frame[rows].rows() == frame[_sorted(frame)].unique(maintain_order=True).rows()
    assert [frame.row(rows[i]) for i in rank] == frame.rows()


@given(frames())
def test_groups_are_those_of_the_keys_and_hold_their_rows_as_they_stood(frame: pl.DataFrame) -> None:
    keys, order, bounds = groups(frame, frame.columns)
    assert order.tolist() == _sorted(frame)
    assert len(bounds) == keys.height + 1
    for i in range(keys.height):
        assert set(frame[order[bounds[i] : bounds[i + 1]]].rows()) == {keys.row(i)}


@given(frames(), st.data())
def test_a_row_is_found_where_its_values_stand_first(table: pl.DataFrame, data: st.DataObject) -> None:
    at = data.draw(st.lists(st.integers(0, max(table.height - 1, 0)), max_size=10 if table.height else 0))
    rows = pl.concat([table[at], table.head(0)])
    firsts = positions_in(table, rows, table.columns)
    stand = table.rows()
    expected = [-1 if None in row else stand.index(row) for row in rows.rows()]
    assert firsts.tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.integers(-9, 9), _WIDE)), max_size=40))
def test_the_largest_so_far_starts_anew_with_each_run(rows: list[tuple[int, int]]) -> None:
    rows.sort(key=lambda row: row[0])
    run, values = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(2))
    starts = run_starts(run)
    expected = [max(v for r, v in rows[: i + 1] if r == rows[i][0]) for i in range(len(rows))]
    assert running_max(values, starts).tolist() == expected
