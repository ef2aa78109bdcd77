"""Paths of spans: as a climb from every single row finds them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from xsp_analyze.frames.launch_paths import above


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[int], list[int], list[bool], list[bool], list[int]]:
    """Parents (an earlier span or none), names as codes, which spans count, which stop a climb, where climbs start."""
    count = draw(st.integers(1, 15))
    parent = [draw(st.integers(-1, i - 1)) for i in range(count)]
    code = [draw(st.integers(0, 2)) for _ in range(count)]
    selected, stop = ([draw(st.booleans()) for _ in range(count)] for _ in range(2))
    return parent, code, selected, stop, draw(st.lists(st.integers(-1, count - 1), max_size=10))


@given(tree=trees(), stops=st.booleans())
def test_paths_are_those_that_a_climb_finds(
    tree: tuple[list[int], list[int], list[bool], list[bool], list[int]], *, stops: bool
) -> None:
    parent, code, selected, stop, starts = tree
    climbed = above(
        np.array(starts, dtype=np.int64),
        np.array(parent, dtype=np.int64),
        np.array(selected, dtype=np.bool_),
        np.array(stop, dtype=np.bool_) if stops else None,
    )
    number, paths = climbed.paths_by_code(np.array(code, dtype=np.int64)[climbed.spans])
    for row, start in zip(number, starts, strict=True):
        expected: list[int] = []
        at = start
        while at >= 0 and not (stops and stop[at]):
            expected[:0] = [code[at]] if selected[at] else []
            at = parent[at]
        assert [c for c in paths[row].tolist() if c >= 0] == expected
    assert len({tuple(path) for path in paths.tolist()}) == len(paths)
