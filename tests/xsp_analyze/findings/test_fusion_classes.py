"""Which kernels make a chain that one could fuse: by their class, not by a word in their names."""

from __future__ import annotations

import pytest

from tests.helpers.hand import Hand
from xsp_analyze.findings.computing import unfused_chains
from xsp_analyze.findings.facts import Facts
from xsp_analyze.trace.step_view import StepView

_ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >"


@pytest.mark.parametrize(
    ("name", "operator", "chains"),
    [
        (_ADD, "aten::add", 1),
        ("triton_poi_fused_add_mul_3", "CompiledFunction", 0),  # fused already
        (_ADD, "aten::convolution", 0),  # part of how a convolution is done
    ],
)
def test_neighbours_that_are_elementwise_and_not_fused_are_a_chain(name: str, operator: str, chains: int) -> None:
    hand = Hand()
    hand.run(0)
    parent = hand.span("operator", "operator", operator, 0, 90)
    for number in range(8):
        hand.work(name, 100 + 10 * number, 10, launch=10 * number, parent=parent)
    assert len(list(unfused_chains.find(Facts(StepView.of(hand.build()))))) == chains
