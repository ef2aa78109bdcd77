"""Rows staged piece by piece come out as they went in."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from xsp_ingest.staging.raw import Stage
from xsp_model.limits import override_limits

_ALONE = """
import polars as pl
from xsp_ingest.staging.raw import Stage
stage = Stage({"word": pl.Categorical()})
for words in (["a", "b"], ["c", None], ["a", "d"]):
    stage.add(pl.DataFrame({"word": pl.Series(words, dtype=pl.Categorical)}))
print(stage.frame()["word"].cast(pl.String).to_list())
"""


def test_words_keep_their_numbers_where_no_other_column_of_words_is_there() -> None:
    """In a process of its own: polars forgets all words with the last column that has any."""
    done = subprocess.run([sys.executable, "-c", _ALONE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['a', 'b', 'c', None, 'a', 'd']"


@pytest.mark.parametrize("min_bytes", [0, 1 << 40])
def test_rows_come_out_as_they_went_in(min_bytes: int) -> None:
    types = {"n": pl.Int64(), "w": pl.Categorical(), "none": pl.Categorical(), "t": pl.String(), "x": pl.Float64()}
    rows = pl.DataFrame(
        {
            "n": [1, None, -(1 << 62), 4],
            "w": ["b", None, "a", "b"],
            "none": [None] * 4,
            "t": ["x", "", None, "é"],
            "x": [0.5, None, float("inf"), 1.0],
        },
        schema=types,
    )
    stage = Stage(types)
    with override_limits(mapped_column_min_bytes=min_bytes):
        for first in range(4):
            stage.add(rows.slice(first, 1))
        frame = stage.frame()
    as_text = pl.col("w", "none").cast(pl.String)
    assert frame.with_columns(as_text).equals(rows.with_columns(as_text))
    assert Stage(types).frame().height == 0
