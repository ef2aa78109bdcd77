"""Names as rocprofv3 writes them, in plain form."""

from __future__ import annotations

from functools import lru_cache

from xsp_ingest.link.demangle import demangle

__all__ = ["plain_kernel_name"]

_CLONE = " [clone .kd]"


@lru_cache(maxsize=1 << 16)
def plain_kernel_name(name: str) -> str:
    """The kernel's function: without the mark of a kernel descriptor, demangled where it is not."""
    return demangle(name.removesuffix(_CLONE))
