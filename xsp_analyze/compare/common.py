"""What two sides have in common: everything, so that there is nothing to compare, or nothing, likewise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.compare.device_levels import KERNEL
from xsp_analyze.frames.load_tests import tests_in
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.compare.layer_pairs import Pairs
    from xsp_analyze.compare.rows import Row
    from xsp_analyze.compare.side import Side
    from xsp_model import Trace

__all__ = ["check_common", "same_content"]

_CONTENT = ("step_times", "accuracies", "tensors", "output_distances", "spans")


def same_content(one: Side, two: Side) -> bool:
    """Whether the two say the same of the same work, whatever their files are called and how they are packed.

    That is the same spans, and the same step times, results and load tests.
    """
    if one.facts != two.facts:
        return False
    captures = [[view.trace for view in side.views] for side in (one, two)]
    return len(captures[0]) == len(captures[1]) and all(map(_equal, *captures))


def _equal(first: Trace, second: Trace) -> bool:
    if first is second:
        return True
    return all(_equal_tables(first, second, name) for name in _CONTENT) and tests_in(first) == tests_in(second)


def _equal_tables(first: Trace, second: Trace, name: str) -> bool:
    one, two = first.frame(name), second.frame(name)
    return one.height == two.height and one.equals(two)


def check_common(one: Side, two: Side, pairs: Pairs, operators: Sequence[Row]) -> None:
    """XspError where no layer, operator or kernel that one side names has a counterpart on the other.

    A side without any names (a run that was only timed) is not asked for some.
    """
    kernels = [_kernels(side) for side in (one, two)]
    own = (
        [row for row in operators if row.before_ns is not None],
        [row for row in operators if row.after_ns is not None],
    )
    layers = [[pair for pair in pairs.rows if pair[side] is not None] for side in (0, 1)]
    if not all(any((kernels[side], own[side], layers[side])) for side in (0, 1)):
        return
    shared = (
        kernels[0] & kernels[1],
        any(row.change == "same" for row in operators),
        any(None not in pair for pair in pairs.rows),
    )
    if not any(shared):
        raise XspError(
            f"{one.name} and {two.name} have nothing in common, no layer, operator nor kernel",
            advice="Compare captures of the same model; xsp cohort puts different ones beside each other",
        )


def _kernels(side: Side) -> set[str]:
    """Kernels by name; a copy says nothing of what ran."""
    if not side.has_kernels:
        return set()
    return {str(key) for measured in side.kernels for key in measured.keys if str(key).startswith(KERNEL)}
