"""Memory for machine code to fail in: it ends where a page begins that nothing may touch, so a store beyond it kills.

Inside `guarded_memory` the compiled readers and sweeps get their buffers there. Linux.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from xsp_ingest.files import content
from xsp_ingest.formats.torch_profiler.compiled import columns as scan_columns
from xsp_ingest.formats.xplane import scan
from xsp_ingest.machine.sqlite import reader
from xsp_ingest.machine.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import DTypeLike, NDArray

__all__ = ["guarded_memory", "guarded_zeros"]

_NOTHING = 0  # PROT_NONE
_LIBC = ctypes.CDLL(None, use_errno=True)


def guarded_zeros(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Zeros that end at a page without access; the page before theirs is another."""
    count, size = int(np.prod(shape)), int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return np.zeros(shape, dtype=dtype)
    page = mmap.PAGESIZE
    inside = -(-size // page) * page
    mapped = mmap.mmap(-1, inside + 2 * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    array = np.frombuffer(mapped, dtype=dtype, count=count, offset=page + inside - size)
    end = array.ctypes.data + size
    for guard in (end - inside - page, end):
        if _LIBC.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), _NOTHING):
            raise OSError(ctypes.get_errno(), "mprotect")
    return array.reshape(shape)


def _guarded_copy(array: NDArray[Any]) -> NDArray[Any]:
    copy = guarded_zeros(array.shape, array.dtype)
    copy[...] = array
    return copy


class _Numpy:
    """numpy for a module whose new arrays are to be guarded."""

    empty = staticmethod(guarded_zeros)
    zeros = staticmethod(guarded_zeros)

    @staticmethod
    def full(shape: int | tuple[int, ...], value: float, dtype: DTypeLike) -> NDArray[Any]:
        array = guarded_zeros(shape, dtype)
        array[...] = value
        return array

    @staticmethod
    def array(values: object, dtype: DTypeLike) -> NDArray[Any]:
        return _guarded_copy(np.array(values, dtype=dtype))

    @staticmethod
    def arange(*bounds: int) -> NDArray[Any]:
        return _guarded_copy(np.arange(*bounds))

    @staticmethod
    def frombuffer(buffer: Any, dtype: DTypeLike) -> NDArray[Any]:  # noqa: ANN401
        return _guarded_copy(np.frombuffer(buffer, dtype=dtype))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(np, name)


_compiled = Sweep.run_compiled


def _guarded_sweep(
    sweep: Sweep, inputs: Sequence[NDArray[Any] | int], results: Sequence[NDArray[Any]]
) -> tuple[NDArray[Any], ...]:
    inputs = [_guarded_copy(each) if isinstance(each, np.ndarray) else each for each in inputs]
    return _compiled(sweep, inputs, [_guarded_copy(each) for each in results])


@contextmanager
def guarded_memory() -> Iterator[None]:
    """What the compiled readers and sweeps read and write is guarded."""
    with ExitStack() as patches:
        for module in (reader, scan_columns, content, scan):
            patches.enter_context(mock.patch.object(module, "np", _Numpy()))
        patches.enter_context(mock.patch.object(reader, "_zeros", guarded_zeros))
        patches.enter_context(mock.patch.object(Sweep, "run_compiled", _guarded_sweep))
        yield
