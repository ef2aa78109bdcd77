"""Collectives: bytes that a rank must send to the others, where the shapes alone tell them.

Where the trace records sizes and group, `frames.collectives.modelled_collectives` knows more, kernel by kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ModelledWork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.call import Arguments

__all__ = ["FORMULAS"]


def gather_or_scatter(arguments: Arguments) -> ModelledWork | None:
    """`input` and `output`, one of which is the whole and the other a rank's part: all but the own part is sent.

    That is (n - 1) / n of the whole of n ranks: nccl-tests, doc/PERFORMANCE.md. The ranks are counted by the shapes, or
    by the input `ranks` where there is no output.
    """
    sent, received = arguments.tensor("input"), arguments.tensor("output")
    if sent is None:
        return None
    if received is not None:
        bus, written = abs(received.bytes - sent.bytes), received.bytes
        return ModelledWork(0, 0, sent.bytes, written, bus)
    ranks = arguments.value("ranks")
    if type(ranks) is not int or ranks < 1:
        return None
    if arguments.settings.get("scatters"):
        part = sent.bytes // ranks
        return ModelledWork(0, 0, sent.bytes, part, sent.bytes - part)
    return ModelledWork(0, 0, sent.bytes, sent.bytes * ranks, sent.bytes * (ranks - 1))


def exchange(arguments: Arguments) -> ModelledWork | None:
    """`input` in as many parts as `splits` has sizes, one for each rank: all but the own one is sent.

    Which part is the own one is not recorded: (n - 1) / n of the whole, as in nccl-tests, doc/PERFORMANCE.md.
    """
    sent, splits = arguments.tensor("input"), arguments.value("splits")
    if sent is None or not isinstance(splits, list) or not splits:
        return None
    received = arguments.tensor("output")
    written = sent.bytes if received is None else received.bytes
    return ModelledWork(0, 0, sent.bytes, written, sent.bytes * (len(splits) - 1) // len(splits))


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {
    "exchange": exchange,
    "gather_or_scatter": gather_or_scatter,
}
