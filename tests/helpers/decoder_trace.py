"""A model of four equal decoder layers, one of which takes longer, between an embedding and a head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.hand import Hand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_model import Trace

__all__ = ["ATTENTION_NS", "decoder"]

ATTENTION_NS = (70, 80, 75, 200)  # ns of device time, by decoder layer


def decoder(
    attention_ns: Sequence[int] = ATTENTION_NS, *, names: str = "Decoder_{}", shift: int = 0, head_first: bool = False
) -> Trace:
    """Net_0 > Embedding_0, four times Decoder > (Attention, Linear, Linear), Head_0; attention takes attention_ns.

    The first Linear of layer i takes 10 ns, the second 20 + i.
    """
    hand = Hand()
    hand.run(0, serialised=False)
    net = hand.module("Net_0", 0, 10_000, self_host=0)
    at, index = 0, 0

    def layer(path: str, parent: int, duration: int, shapes: str = "[[1, 8]]") -> None:
        nonlocal at, index
        call = hand.module(path, at, 100, index, parent_id=parent)
        hand.rows["layers"][-1]["shapes"] = shapes
        hand.work("k", at + 10, duration, launch=at + 1, parent=call, layer=call, phase="forward")
        at, index = at + 300, index + 1

    if head_first:
        layer("Net_0.Head_0", net, 40)
    layer("Net_0.Embedding_0", net, 5)
    for number, attention in enumerate(attention_ns):
        name = names.format(number)
        block = hand.module(f"Net_0.{name}", at, 1_000, self_host=0, parent_id=net)
        hand.rows["layers"][-1]["layer_type"] = "Decoder"
        layer(f"Net_0.{name}.Attention_{number}", block, attention)
        layer(f"Net_0.{name}.Linear_{2 * number}", block, 10)
        layer(f"Net_0.{name}.Linear_{2 * number + 1}", block, 20 + number)
    if not head_first:
        layer("Net_0.Head_0", net, 40)
    return hand.build(shift=shift)
