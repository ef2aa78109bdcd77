"""Loads and stores that only this format needs: numbers with their highest byte first, and real numbers."""

# ruff: noqa: ANN401 (numba's and LLVM's builders are untyped)

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["big_endian", "pair", "put_real"]


def _swapped(width: int) -> Any:
    """An intrinsic: the number of so many bits at an address, the byte there highest."""

    def load(_: Any, address: Any) -> Any:
        def emit(__: Any, builder: Any, ___: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(width).as_pointer())
            return builder.zext(builder.bswap(builder.load(pointer, align=1)), ir.IntType(64))

        return types.int64(address), emit

    return intrinsic(load)


def _store_real() -> Any:
    """An intrinsic: writes a whole number to an address as a real one."""

    def store(_: Any, address: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, __: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.DoubleType().as_pointer())
            builder.store(builder.sitofp(args[1], ir.DoubleType()), pointer, align=1)
            return context.get_dummy_value()

        return types.void(address, value), emit

    return intrinsic(store)


big_endian = _swapped(64)
pair = _swapped(16)
put_real = _store_real()
