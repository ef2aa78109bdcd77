"""What dominates a run of the host alone, by time that operators and calls take themselves, worked out by hand."""

from __future__ import annotations

import pytest

from tests.helpers.hand import Hand
from xsp_analyze.findings import advise
from xsp_analyze.trace.step_view import StepView

_MS = 1_000_000


def _gains(hand: Hand) -> dict[tuple[str, str], float | None]:
    """By rule and first words of the sentence."""
    advice = advise(StepView.of(hand.build()))
    return {
        (one.rule.id, one.observation.sentence.split(":")[0]): one.gain_ns for one in advice if not one.rule.on_trust
    }


def _operator(hand: Hand, name: str, start: int, duration: int, parent: int | None = None) -> int:
    return hand.span("operator", "operator", name, start, duration, parent_id=parent, thread_id=1)


def test_operators_are_ranked_by_their_own_time_and_added_up_by_kind() -> None:
    """10 ms: a convolution of 6 in another operator, two normalisations of 1, a read of one value of 0.5."""
    hand = Hand()
    hand.run(0)
    outer = _operator(hand, "aten::conv2d", 0, 6 * _MS + 1_000)
    _operator(hand, "aten::mkldnn_convolution", 500, 6 * _MS, outer)
    _operator(hand, "aten::native_batch_norm", 7 * _MS, _MS)
    _operator(hand, "aten::native_layer_norm", 8 * _MS, _MS)
    _operator(hand, "aten::_local_scalar_dense", 9 * _MS + _MS // 2, _MS // 2)
    gains = _gains(hand)
    assert gains.pop(("host-dominant", "Products and convolutions")) == pytest.approx(6 * _MS + 1_000)
    assert gains.pop(("host-dominant", "Normalisation apart from what is before it")) == pytest.approx(2 * _MS)
    assert not [rule for rule, _ in gains if rule in {"host-dominant", "short-operators"}]


def test_what_is_done_to_fetch_input_is_of_input() -> None:
    hand = Hand()
    hand.run(0)
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    fetch = hand.span("application", "range", loader, 0, 6 * _MS, thread_id=1)
    _operator(hand, "aten::stack", _MS, 4 * _MS, fetch)
    _operator(hand, "aten::mm", 6 * _MS, 4 * _MS)
    gains = _gains(hand)
    assert gains["host-dominant", "Fetching input"] == pytest.approx(6 * _MS)
    assert gains["host-dominant", "Products and convolutions"] == pytest.approx(4 * _MS)
    assert ("host-dominant", "aten::stack") not in gains


def test_ranks_work_side_by_side_and_gains_are_of_a_mean_one() -> None:
    hand = Hand()
    for rank in (0, 1):
        hand.run(rank, rank=rank)
        hand.span("library", "call", "gloo:all_reduce", 0, 4 * _MS, run_id=rank, thread_id=1)
        hand.span("operator", "operator", "aten::sort", 4 * _MS, 6 * _MS, run_id=rank, thread_id=1)
    assert _gains(hand)["host-dominant", "Communication"] == pytest.approx(4 * _MS)


def test_many_short_operators_are_told_together() -> None:
    """2,000 operators of 3 us in 10 ms."""
    hand = Hand()
    hand.run(0)
    for number in range(2_000):
        _operator(hand, f"aten::op{number % 20}", number * 5_000, 3_000)
    [((rule, _), gain)] = _gains(hand).items()
    assert rule == "short-operators"
    assert gain == pytest.approx(6 * _MS)


def test_a_wait_for_a_device_that_was_not_recorded_promises_nothing() -> None:
    hand = Hand()
    hand.run(0)
    hand.span("runtime", "call", "cudaDeviceSynchronize", 0, 9 * _MS, thread_id=1)
    hand.span("runtime", "call", "cudaFree", 9 * _MS, _MS, thread_id=1)
    gains = _gains(hand)
    assert gains["host-dominant", "Waiting for a device whose work was not recorded"] is None
    assert gains["host-dominant", "Reserving and freeing memory"] == pytest.approx(_MS)


def test_nothing_is_told_where_a_device_worked() -> None:
    hand = Hand()
    hand.run(0)
    _operator(hand, "aten::mm", 0, 9 * _MS)
    hand.work("sgemm", 5_000, _MS, launch=4_000, thread_id=1)
    assert not [rule for rule, _ in _gains(hand) if rule in {"host-dominant", "short-operators"}]
