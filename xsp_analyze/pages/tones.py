"""The colours of a page: one a class of device work and one a cause of idle time, the same wherever it is drawn.

A tone is a word; `page.css` has the variable `--c-TONE` for it, the class `c-TONE` for backgrounds and `fc-TONE` for
fills, each in light and dark.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from xsp_analyze.classification import KernelClass

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["IDLE", "IDLE_TONES", "TONES", "tone"]

IDLE: Mapping[str, str] = MappingProxyType({
    "idle_sync_ns": "host waits",
    "idle_initialisation_ns": "start-up, end",
    "idle_input_ns": "input",
    "idle_host_ns": "host work",
    "idle_profiler_ns": "profiler",
    "idle_launch_ns": "launch",
    "idle_unknown_ns": "unknown",
})  # fmt: skip
"""The causes of idle time as B03 has them, in words."""

IDLE_TONES: Mapping[str, str] = MappingProxyType(
    {column: column.removesuffix("_ns").replace("_", "-") for column in IDLE}
)
"""The tone of each cause."""


def tone(kernel_class: KernelClass | str) -> str:
    """The tone of a class: `matrix product` is `matrix-product`."""
    return str(kernel_class).replace(" ", "-")


TONES = (*map(tone, KernelClass), *IDLE_TONES.values())
"""All of them, in the order in which a legend lists them."""
