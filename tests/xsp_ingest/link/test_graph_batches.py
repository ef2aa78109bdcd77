"""Which captured graphs a step of a batch may replay."""

from __future__ import annotations

import pytest

from xsp_ingest.link.graph_pairing import Batch, graphs_for_step

CAPTURED = [8, 16, 32, None]


@pytest.mark.parametrize(
    ("step", "graphs"),
    [
        (None, [0, 1, 2, 3]),
        (Batch(8, exact=False), [0, 3]),
        (Batch(9, exact=False), [1, 3]),
        (Batch(33, exact=False), [3]),
        (Batch(16, exact=True), [1, 3]),
        (Batch(9, exact=True), [3]),
    ],
)
def test_the_smallest_graph_that_holds_the_step_or_the_padded_one(step: Batch | None, graphs: list[int]) -> None:
    assert graphs_for_step([0, 1, 2, 3], CAPTURED, step) == graphs


def test_only_graphs_of_the_same_kernels_count() -> None:
    assert graphs_for_step([2], CAPTURED, Batch(8, exact=False)) == [2]
