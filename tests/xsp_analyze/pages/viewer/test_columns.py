"""Columns of numbers as text that a page's script reads."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.viewer_block import packed
from tests.helpers.viewer_columns import unpacked, unpacked_rows
from xsp_analyze.pages.viewer.boxes import encode_numbers, encoded_columns

_NUMBERS = st.lists(st.integers(-(1 << 53), 1 << 53), max_size=40)


@given(_NUMBERS)
def test_numbers_come_back(numbers: list[int]) -> None:
    values = np.array(numbers, dtype=np.int64)
    assert unpacked(encode_numbers(values), summed=False) == numbers
    assert unpacked(encode_numbers(values, differences=True), summed=True) == numbers


def test_a_column_is_the_varints_that_another_writer_writes() -> None:
    numbers = [0, 1, -1, 63, 64, -65, 8_191, 8_192, 1_065_658_000, -(1 << 52)]
    assert encode_numbers(np.array(numbers)) == packed(numbers, summed=False)
    assert encode_numbers(np.array(numbers), differences=True) == packed(numbers, summed=True)


def test_starts_are_differences_and_durations_are_not() -> None:
    columns = {"start": np.array([5, 7, 7]), "duration": np.array([9, 0, 3])}
    assert unpacked_rows(encoded_columns(columns)) == [
        {"start": 5, "duration": 9},
        {"start": 7, "duration": 0},
        {"start": 7, "duration": 3},
    ]
