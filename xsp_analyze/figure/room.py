"""Where in a roofline text may stand: each label in the first of its positions that no other label takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.axes import Axes

__all__ = ["Room"]

_POINTS_PER_INCH = 72
_WIDE = 0.52  # of a character, in the size of its font
_Box = tuple[float, float, float, float]


class Room:
    """The logarithmic axes in points, as the figure is shaped before its layout, and what is written on them."""

    def __init__(self, axes: Axes) -> None:
        (self._left, right), (self._low, high) = axes.get_xlim(), axes.get_ylim()
        box, size = axes.get_position(), axes.get_figure().get_size_inches()
        self.wide = box.width * size[0] * _POINTS_PER_INCH
        self._across = self.wide / math.log10(right / self._left)
        self._up = box.height * size[1] * _POINTS_PER_INCH / math.log10(high / self._low)
        self._taken: list[_Box] = []

    def fit(
        self, text: str, font: float, at: tuple[float, float], offsets: Iterable[tuple[float, float, bool]]
    ) -> tuple[float, float, bool] | None:
        """The first of the offsets (points to the right, up, and whether the text ends there) that is free, else None.

        `at` is in data; text stands with its middle at its height.
        """
        x = self._across * math.log10(at[0] / self._left)
        y = self._up * math.log10(at[1] / self._low)
        length = len(text) * font * _WIDE
        for right, up, ends in offsets:
            start = x + right - (length if ends else 0)
            box = (start, y + up - font / 2, start + length, y + up + font / 2)
            if box[0] >= 0 and box[2] <= self.wide and not any(_overlap(box, other) for other in self._taken):
                self._taken.append(box)
                return right, up, ends
        return None


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
