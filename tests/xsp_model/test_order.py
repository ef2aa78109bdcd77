"""The total order of spans is that of one sort by every column, however many spans start together."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from xsp_model.columns.tree import total_order
from xsp_model.limits import override_limits
from xsp_model.vocabulary import LEVELS

_NUMBERS = ("run_id", "process_id", "thread_id", "device_id", "stream_id", "correlation_id")


def _spans(seed: int, count: int, moments: int) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    names = _some(random, ["b", "a", "B", "é", ""][: random.integers(1, 6)])
    columns: dict[str, object] = {
        "start_ns": random.integers(0, moments, count),
        "duration_ns": _some(random, random.integers(0, 3, count)),
        **{name: _some(random, random.integers(0, 2, count)) for name in _NUMBERS},
        "level": [str(LEVELS[i]) for i in random.integers(0, len(LEVELS), count)],
        "name": [names[i] for i in random.integers(0, len(names), count)],
        "kind": ["kernel"] * count,
    }
    texts = dict.fromkeys(("level", "name", "kind"), pl.Categorical)
    numbers = dict.fromkeys(("duration_ns", *_NUMBERS), pl.Int64)
    return pl.DataFrame(columns, schema_overrides={**texts, **numbers})


def _some(random: np.random.Generator, values: object) -> list[object]:
    return [None if random.random() < 0.2 else value for value in list(values)]  # type: ignore[call-overload]


def _expected(spans: pl.DataFrame) -> list[int]:
    """One sort of all rows by all columns, nulls last."""
    keys = spans.with_row_index("place").with_columns(
        pl.col("level").cast(pl.String).cast(pl.Enum([str(level) for level in LEVELS])).to_physical(),
        pl.col("name", "kind").cast(pl.String),
        -pl.col("duration_ns"),
    )
    by = ["start_ns", "level", "duration_ns", *_NUMBERS, "name", "kind"]
    return keys.sort(by, nulls_last=True, maintain_order=True)["place"].to_list()


@override_limits(pass_rows=7, tied_spans=11)
@pytest.mark.parametrize("moments", [1, 20, 100_000])
@pytest.mark.parametrize("seed", range(4))
def test_the_order_is_that_of_one_sort(seed: int, moments: int) -> None:
    spans = _spans(seed, 400, moments)
    rows = total_order(spans)
    assert rows is not None
    assert rows.tolist() == _expected(spans)
    assert total_order(spans[rows]) is None


def test_a_word_may_be_an_enum_and_a_table_empty() -> None:
    spans = _spans(1, 50, 3).with_columns(pl.col("name").cast(pl.String).cast(pl.Enum(["", "B", "a", "b", "é"])))
    rows = total_order(spans)
    assert rows is not None
    assert rows.tolist() == _expected(spans)
    assert total_order(spans.clear()) is None
