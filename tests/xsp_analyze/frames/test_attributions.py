"""Work that several layers share is handed out whole: parts add up, and it is counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.hand import Hand
from xsp_analyze.frames.kernels.activities import share_among_layers

if TYPE_CHECKING:
    from xsp_model import Trace


def _shared(weights: list[float], durations: list[int]) -> Trace:
    """Work of these durations, each shared among as many layers as there are weights."""
    hand = Hand()
    hand.run(0)
    layers = [hand.module(f"Layer_{n}", 10 * n, 5, n) for n in range(len(weights))]
    total = sum(weights)
    rows = []
    for number, duration in enumerate(durations):
        span = hand.work(f"kernel_{number}", 1_000 + number, duration, layer=layers[0])
        rows += [
            {"span_id": span, "layer_id": layer, "weight": weight / total, "basis": "compiled_code"}
            for layer, weight in zip(layers, weights, strict=True)
        ]
    hand.extra["attributions"] = rows if len(weights) > 1 else []
    return hand.build()


def _work(trace: Trace) -> pl.DataFrame:
    spans = trace.frame("spans").filter(pl.col("level") == "kernel")
    one = pl.lit(1, pl.Int64).alias("count")
    return spans.select("span_id", "layer_id", pl.col("duration_ns").alias("work_ns"), one, pl.lit(6.0).alias("flop"))


def test_parts_are_by_weight_and_counted_with_the_weightiest() -> None:
    trace = _shared([1.0, 2.0], [10])
    parts = share_among_layers(trace, _work(trace), time="work_ns", count="count", by_weight=("flop",))
    assert parts.sort("layer_id").select("layer_id", "work_ns", "count", "flop").rows() == [
        (0, 4, 0, 2.0),
        (1, 6, 1, 4.0),
    ]


def test_work_of_one_layer_stays_as_it_is() -> None:
    trace = _shared([1.0], [10, 20])
    assert share_among_layers(trace, _work(trace), time="work_ns", count="count").equals(_work(trace))


def test_of_equal_weights_the_first_layer_counts_it() -> None:
    trace = _shared([1.0, 1.0, 1.0], [7])
    parts = share_among_layers(trace, _work(trace), time="work_ns", count="count").sort("layer_id")
    assert parts.select("work_ns", "count").rows() == [(2, 1), (2, 0), (3, 0)]


@given(
    weights=st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=9),
    durations=st.lists(st.integers(0, 10**13), min_size=1, max_size=5),
)
def test_parts_add_up_to_the_nanosecond(weights: list[float], durations: list[int]) -> None:
    trace = _shared(weights, durations)
    work = _work(trace)
    parts = share_among_layers(trace, work, time="work_ns", count="count")
    assert parts.schema == work.schema
    assert parts["work_ns"].min() >= 0  # type: ignore[operator]
    sums = parts.group_by("span_id").agg(pl.col("work_ns", "count").sum()).sort("span_id")
    assert sums.rows() == work.select("span_id", "work_ns", "count").rows()
