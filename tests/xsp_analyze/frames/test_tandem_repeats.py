"""Which stretches of a sequence repeat, against searching all of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.examples import examples
from xsp_analyze.frames.layers.repeated_blocks import Repeat, repeats_in

_RULE = (None, None, None, 2, 1)  # three of two items or more, or four of one


def of(text: str, rule: tuple[int | None, ...] = _RULE) -> list[tuple[int, int, int]]:
    repeats = repeats_in([ord(character) for character in text], [1] * len(text), rule)
    return [(repeat.start, repeat.period, repeat.count) for repeat in repeats]


def test_stretches_side_by_side() -> None:
    assert of("xABCABCABCy") == [(1, 3, 3)]


def test_stretches_end_as_late_as_they_can() -> None:
    assert of("xBCABCABCABCy") == [(3, 3, 3)]  # the first is another one that ends alike


def test_too_few_are_none() -> None:
    assert of("ABAB") == of("AAA") == of("ABCDEF") == []


def test_smallest_period_of_the_longest_stretch() -> None:
    assert of("AAAAAAAA") == [(0, 1, 8)]
    assert of("AAAABAAAABAAAAB") == [(0, 5, 3)]  # not three times four As


def test_what_an_overlapping_one_leaves_is_looked_at_again() -> None:
    # Four of AB end in the B that six of BCC begin with; what is left of those are three, which end late: BA.
    assert of("ABABABABCCBCCBCCBCCBCCBCC") == [(1, 2, 3), (7, 3, 6)]


def test_two_are_taken_where_the_rule_says_so() -> None:
    assert of("ABCDABCDx", (None, None, 4)) == [(0, 4, 2)]
    assert of("ABCABCx", (None, None, 4)) == []


def test_items_count_for_their_rows() -> None:
    assert repeats_in([7, 7], [4, 4], (None, None, 4)) == [Repeat(0, 1, 2)]
    assert repeats_in([7, 7, 7, 7], [0, 0, 0, 0], _RULE) == []


def test_long_periods() -> None:
    block = [at * at % 1009 for at in range(700)]
    assert repeats_in([-1, *block * 30, -2], [1] * 21_002, _RULE) == [Repeat(1, 700, 30)]
    assert repeats_in([-1, *range(700), *range(700), -2], [1] * 1_402, (None, None, 4)) == [Repeat(1, 700, 2)]


@settings(max_examples=examples(200), deadline=None)
@given(st.text("ABC", max_size=24))
def test_the_longest_of_all(text: str) -> None:
    """Repeats are equal stretches, do not overlap, and one holds as many items as any that there is."""
    repeats = of(text)
    for start, period, count in repeats:
        assert text[start : start + period] * count == text[start : start + period * count]
    assert all(a[0] + a[1] * a[2] <= b[0] for a, b in pairwise(repeats))
    every = [
        period * count
        for start in range(len(text))
        for period in range(1, len(text))
        for count in range(3 if period > 1 else 4, len(text) + 1)
        if start + period * count <= len(text)
        and text[start : start + period] * count == text[start : start + period * count]
    ]
    assert max((period * count for _, period, count in repeats), default=0) == max(every, default=0)
