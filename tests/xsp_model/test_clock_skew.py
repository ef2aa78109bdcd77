"""How far clocks are apart, and whether they drift."""

from __future__ import annotations

import polars as pl
import pytest

from xsp_model.clock_skew import clock_skews


def _ends(offset_ns: int, drift: float, count: int, noise_ns: int = 0) -> pl.DataFrame:
    """Collectives of two ranks every 10 ms; the second clock is so far ahead, and gains that part of the time."""
    rows = [
        (
            rank,
            "",
            "all_reduce",
            n,
            n * 10_000_000 + rank * (offset_ns + round(drift * n * 10_000_000) + noise_ns * (n % 3)),
        )
        for rank in (0, 1)
        for n in range(count)
    ]
    return pl.DataFrame(rows, schema=["rank", "group", "name", "nth", "end_ns"], orient="row")


@pytest.mark.parametrize("drift", [2e-5, -1e-5])
def test_a_clock_that_drifts_is_told_by_how_much(drift: float) -> None:
    drift_ns = clock_skews(_ends(70_000, drift, 40, 20))[1].drift_ns_per_s
    assert drift_ns == pytest.approx(drift * 1e9, rel=0.01)


def test_noise_alone_is_no_drift() -> None:
    assert clock_skews(_ends(70_000, 0.0, 40, 500))[1].drift_ns_per_s is None


def test_of_few_collectives_none_is_told() -> None:
    assert clock_skews(_ends(70_000, 2e-5, 7))[1].drift_ns_per_s is None
