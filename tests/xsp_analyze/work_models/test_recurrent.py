"""Recurrent cells: flop and bytes worked out on paper, and as torch counts the products that they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.paper_calls import bytes_of, flop_of, tensor, work
from xsp_analyze.work_models.call import UNKNOWN_TYPE

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_analyze.work_models.call import Tensor


def fp32(*shape: int) -> Tensor:
    return tensor("fp32", *shape)


def listed(*shapes: tuple[int, ...]) -> list[Tensor]:
    """A list of tensors, whose type the profiler does not write."""
    return [tensor(UNKNOWN_TYPE, *shape) for shape in shapes]


_STEPS = fp32(7, 3, 4)
"""7 steps of 3 rows of 4 features: 21 rows."""
_LSTM = listed((20, 4), (20, 5), (20,), (20,))
_SETTINGS = [True, 1, 0.0, True, False, False]  # biases, layers, dropout, train, bidirectional, batch first


def test_an_lstm_multiplies_every_row_by_every_weight() -> None:
    modelled = work("aten::lstm", _STEPS, listed((1, 3, 5), (1, 3, 5)), _LSTM, *_SETTINGS)
    assert modelled is not None
    assert (modelled.flop, modelled.vector_flop) == (2 * 21 * (20 * 4 + 20 * 5), 2 * 21 * 20)
    # 84 of the input, 220 of weights and biases, twice 15 of states; 105 of the output and the states again
    assert (modelled.read_bytes, modelled.written_bytes) == (4 * (84 + 220 + 30), 4 * (105 + 30))


def test_two_directions_write_twice_as_wide() -> None:
    weights = listed(*[(20, 4), (20, 5), (20,), (20,)] * 2)
    settings = [True, 1, 0.0, True, True, False]
    inputs = (_STEPS, listed((2, 3, 5), (2, 3, 5)), weights, *settings)
    assert flop_of("aten::lstm", *inputs) == 2 * 2 * 21 * 180
    assert bytes_of("aten::lstm", *inputs)[1] == 4 * (210 + 60)
    assert bytes_of("aten::lstm", *inputs[:3])[1] is None  # settings not recorded


def test_a_gru_has_three_gates() -> None:
    weights = listed((15, 4), (15, 5), (15,), (15,))
    assert flop_of("aten::gru", _STEPS, fp32(1, 3, 5), weights, *_SETTINGS) == 2 * 21 * (60 + 75)


def test_packed_sequences_have_the_rows_of_each_step_behind() -> None:
    packed = fp32(14, 4), tensor("int64", 7)
    assert flop_of("aten::lstm", *packed, listed((1, 3, 5), (1, 3, 5)), _LSTM, *_SETTINGS) == 2 * 14 * 180
    weights = listed((15, 4), (15, 5), (15,), (15,))
    assert flop_of("aten::gru", *packed, fp32(1, 3, 5), weights, *_SETTINGS) == 2 * 14 * 135


def test_a_projection_is_a_product_of_every_row_too() -> None:
    weights = listed((20, 4), (20, 3), (20,), (20,), (3, 5))
    inputs = (_STEPS, listed((1, 3, 3), (1, 3, 5)), weights, *_SETTINGS)
    assert flop_of("aten::lstm", *inputs) == 2 * 21 * (80 + 60 + 15)
    assert bytes_of("aten::lstm", *inputs)[1] == 4 * (21 * 3 + 9 + 15)


_CUDNN = [_STEPS, _LSTM, 4, fp32(220), fp32(1, 3, 5), fp32(1, 3, 5)]


def test_cudnn_s_layers_and_their_gradients() -> None:
    forward = [*_CUDNN, 2, 5, 0, 1, False, 0.0, True, False, [], None]
    assert flop_of("aten::_cudnn_rnn", *forward) == 2 * 21 * 180
    assert bytes_of("aten::_cudnn_rnn", *forward) == (4 * 334, 4 * 135)
    output, reserve = fp32(7, 3, 5), tensor("uint8", 999)
    backward = [*_CUDNN, output, output, None, None, 2, 5, 0, 1, False, 0.0, True, False, [], None, reserve]
    modelled = work("aten::_cudnn_rnn_backward", *backward, [True, False, False, True])
    assert modelled is not None
    assert modelled.flop == 2 * 2 * 21 * 180
    assert (modelled.read_bytes, modelled.written_bytes) == (4 * (334 + 210) + 999, 4 * (84 + 220))
    assert flop_of("aten::_cudnn_rnn_backward", *backward, [True, True, True, False]) == 2 * 21 * 180
    assert work("aten::_cudnn_rnn_backward", *backward, None) is None


def test_miopen_s_layers() -> None:
    forward = [*_CUDNN[:3], *_CUDNN[4:], 2, 5, 1, False, 0.0, True, False, [], None]
    assert flop_of("aten::miopen_rnn", *forward) == 2 * 21 * 180
    assert bytes_of("aten::miopen_rnn", *forward) == (4 * 334, 4 * 135)


def test_a_single_cell_writes_its_states() -> None:
    weights = [fp32(20, 4), fp32(20, 5), fp32(20), fp32(20)]
    inputs = (fp32(3, 4), listed((3, 5), (3, 5)), *weights)
    assert flop_of("aten::lstm_cell", *inputs) == 2 * 3 * 180
    assert bytes_of("aten::lstm_cell", *inputs) == (4 * (12 + 220 + 30), 4 * 30)
    assert flop_of("aten::gru_cell", fp32(3, 4), fp32(3, 5), fp32(15, 4), fp32(15, 5), None, None) == 2 * 3 * 135


def test_what_a_cell_does_behind_its_products() -> None:
    # 4 gates of 3 x 5 from input and state, and c; h, c and the gates are written.
    modelled = work("aten::_thnn_fused_lstm_cell", fp32(3, 20), fp32(3, 20), fp32(3, 5), fp32(20), fp32(20))
    assert modelled is not None
    assert (modelled.flop, modelled.vector_flop) == (0, 13 * 15)
    assert (modelled.read_bytes, modelled.written_bytes) == (4 * (120 + 15 + 40), 4 * 6 * 15)
    gradients = [fp32(3, 5), fp32(3, 5), fp32(3, 5), fp32(3, 5), fp32(3, 20), True]
    assert bytes_of("aten::_thnn_fused_lstm_cell_backward_impl", *gradients) == (4 * (60 + 60), 4 * 5 * 15)
    # h of 3 x 5 and a workspace of five times that; gradients of 3 gates twice and of h
    assert bytes_of("aten::_thnn_fused_gru_cell_backward", fp32(3, 5), fp32(3, 25)) == (4 * 90, 4 * 7 * 15)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_layers_are_as_torch_counts_their_products(kind: str, tmp_path: Path) -> None:
    """By the profiler's record of two layers in two directions; torch counts the products inside.

    In FP64, which no library takes that would do all in one.
    """
    torch, dispatched = pytest.importorskip("torch"), pytest.importorskip("tests.helpers.dispatched_calls")
    module, steps = getattr(torch.nn, kind)(4, 5, 2, bidirectional=True).double(), torch.randn(7, 3, 4).double()
    with dispatched.Recorder() as recorder, torch.no_grad():
        output, _ = module(steps)
    with torch.no_grad():
        calls = dispatched.profiled(lambda: module(steps), tmp_path)
    name = "aten::rnn_tanh" if kind == "RNN" else f"aten::{kind.lower()}"
    (modelled,) = (dispatched.work_of(call) for call in calls if call.name == name)
    assert modelled.flop == recorder.torch_flop()
    assert modelled.written_bytes >= output.nbytes
