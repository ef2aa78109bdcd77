"""What a row is said to be: changed, unchanged, or not to be told by these captures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xsp_analyze.compare.rows import Conclusion, Row, conclude, conclude_all


def _row(low: float, high: float, *, p: float = 0.5, rank_p: float | None = None, min_p: float = 0.002) -> Row:
    return Row("layer", "a", low=low, high=high, p_value=p, rank_p_value=rank_p, rank_min_p=min_p)


@pytest.mark.parametrize(
    ("row", "is_discovery", "conclusion"),
    [
        (_row(1.2, 1.4), True, Conclusion.CHANGED),
        (_row(1.2, 1.4, rank_p=0.002), True, Conclusion.CHANGED),
        (_row(1.2, 1.4, rank_p=0.1, min_p=0.1), True, Conclusion.CHANGED),  # three against three: 0.1 at least
        (_row(1.2, 1.4, rank_p=0.1), True, Conclusion.INCONCLUSIVE),
        (_row(0.95, 1.05), False, Conclusion.UNCHANGED),
        (_row(1.02, 1.05, p=0.04), False, Conclusion.UNCHANGED),  # beyond 1 by itself, not among as many rows
        (_row(0.95, 1.5), False, Conclusion.INCONCLUSIVE),
        (_row(0.5, 1.05), False, Conclusion.INCONCLUSIVE),
        (_row(0.5, 3.0, rank_p=0.002), False, Conclusion.INCONCLUSIVE),
    ],
)
def test_interval_and_ranks_decide_together(row: Row, is_discovery: bool, conclusion: Conclusion) -> None:  # noqa: FBT001
    judged = conclude(row, is_discovery=is_discovery)
    assert judged.conclusion is conclusion
    assert judged.significant is (conclusion is Conclusion.CHANGED)


def test_a_row_that_moved_is_called_so_only_where_it_changed() -> None:
    changed, same, gone = conclude_all(
        [
            replace(_row(0.3, 0.4, p=1e-6), moved_to=("b",)),
            replace(_row(0.95, 1.05), moved_to=("b",)),
            Row("layer", "c", change="vanished", moved_to=("b",)),
        ]
    )
    assert (changed.change, changed.moved_to) == ("moved", ("b",))
    assert (same.change, same.moved_to) == ("same", ())
    assert (gone.change, gone.moved_to) == ("vanished", ("b",))


def test_where_nothing_is_known_of_noise_nothing_is_said() -> None:
    (row,) = conclude_all([Row("layer", "a", before_ns=1.0, after_ns=2.0)])
    assert (row.conclusion, row.significant, row.q_value) == (None, None, None)
