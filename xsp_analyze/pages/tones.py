"""The colours of a page: one a class of device work and one a cause of idle time, the same wherever it is drawn.

A tone is a word; `page.css` has the variable `--c-TONE` for it, the class `c-TONE` for backgrounds and `fc-TONE` for
fills, each in light and dark.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from xsp_analyze.classification import KernelClass
from xsp_analyze.text.names import IDLE

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["IDLE_TONES", "TONES", "tone"]

IDLE_TONES: Mapping[str, str] = MappingProxyType(
    {column: column.removesuffix("_ns").replace("_", "-") for column in IDLE}
)
"""The tone of each cause."""


def tone(kernel_class: KernelClass | str) -> str:
    """The tone of a class: `matrix product` is `matrix-product`."""
    return str(kernel_class).replace(" ", "-")


TONES = (*map(tone, KernelClass), *IDLE_TONES.values())
"""All of them, in the order in which a legend lists them."""
