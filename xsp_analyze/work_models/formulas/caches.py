"""Writing to caches of keys and values, and what else only moves its operands to others, converting them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.work_models.call import ELEMENT_BITS
from xsp_analyze.work_models.work import ModelledWork

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.work_models.arguments import Arguments

__all__ = ["FORMULAS"]


def cache_update(arguments: Arguments) -> ModelledWork | None:
    """Rows of `key` and `value` (tokens, ...) to the places of `slots` in `cache`, whose elements they become.

    Of a batch that was padded only the step's own tokens are written, where its lengths are known.
    """
    key, value, cache, slots = (arguments.tensor(role) for role in ("key", "value", "cache", "slots"))
    if key is None or value is None or cache is None or slots is None or not key.shape or not key.shape[0]:
        return None
    rows = min(key.shape[0], slots.elements)
    if arguments.lengths is not None and arguments.lengths.queries is not None:
        rows = min(rows, arguments.lengths.queries)
    elements = (key.elements + value.elements) * rows // key.shape[0]
    read = (key.bytes + value.bytes) * rows // key.shape[0] + rows * ELEMENT_BITS[slots.element_type] // 8
    return ModelledWork(0, 0, read, elements * ELEMENT_BITS[cache.element_type] // 8)


FORMULAS: Mapping[str, Callable[[Arguments], ModelledWork | None]] = {"cache_update": cache_update}
