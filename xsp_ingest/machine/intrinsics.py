"""Loads and stores by address for the compiled scanner: what numba has no word for.

An address is a whole number, so passing one to a function costs a register; an array costs seven and a reference
count.
"""

# ruff: noqa: ANN401 (numba's and LLVM's builders are untyped)

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "BACKSLASH",
    "CAPITAL_I",
    "CLOSE_LIST",
    "CLOSE_OBJECT",
    "COLON",
    "COMMA",
    "LANES",
    "LONG",
    "MINUS",
    "NINE",
    "OPEN_LIST",
    "OPEN_OBJECT",
    "PLUS",
    "POINT",
    "QUOTE",
    "ZERO",
    "byte",
    "eight_bytes",
    "leading_alike",
    "leading_blanks",
    "leading_digits",
    "leading_ordinary",
    "machine",
    "marked",
    "masked_word",
    "number",
    "put",
    "put_byte",
    "put_small",
    "trailing_zeros",
]

QUOTE, BACKSLASH, COMMA, COLON, MINUS, PLUS, POINT, ZERO, NINE, CAPITAL_I = b'"\\,:-+.09I'
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = b"{}[]"
LANES = 32
LONG = 64

_F = TypeVar("_F", bound="Callable[..., Any]")


def machine(function: _F) -> _F:
    """Compiles the function as part of what calls it."""
    return cast("_F", njit(nogil=True, error_model="numpy")(function))


def _loads(width: int, result: Any) -> Any:
    """An intrinsic: the number of so many bits at an address, the byte there lowest."""

    def load(_: Any, address: Any) -> Any:
        def emit(__: Any, builder: Any, ___: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(width).as_pointer())
            return builder.zext(builder.load(pointer, align=1), ir.IntType(64))

        return result(address), emit

    return intrinsic(load)


def _stores(width: int) -> Any:
    """An intrinsic: writes the low bits of a number to an address."""

    def store(_: Any, address: Any, value: Any) -> Any:
        def emit(context: Any, builder: Any, __: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(width).as_pointer())
            builder.store(builder.trunc(args[1], ir.IntType(width)), pointer, align=1)
            return context.get_dummy_value()

        return types.void(address, value), emit

    return intrinsic(store)


def _lanes(builder: Any, address: Any, count: int) -> Any:
    """The bytes from an address on."""
    return builder.load(builder.inttoptr(address, ir.VectorType(ir.IntType(8), count).as_pointer()), align=1)


def _bits(builder: Any, passed: Any, count: int) -> Any:
    """One bit a lane, the first lowest, as a whole number."""
    bits = builder.bitcast(passed, ir.IntType(count))
    return bits if count == 64 else builder.zext(bits, ir.IntType(64))  # noqa: PLR2004 (bits of a word)


def _zeros_below(builder: Any, bits: Any) -> Any:
    """How many bits below the lowest that is set: 64 where none is."""
    return builder.cttz(bits, ir.Constant(ir.IntType(1), 0))


def _trailing_zeros(_: Any, bits: Any) -> Any:
    """How many bits below the lowest that is set; 64 where none is."""
    return types.int64(bits), lambda _, builder, __, args: _zeros_below(builder, args[0])


def _leading_alike(_: Any, address: Any, other: Any) -> Any:
    """How many of the LONG bytes from two addresses on are the same before the first that differs."""

    def emit(__: Any, builder: Any, ___: Any, args: Any) -> Any:
        here, there = (_lanes(builder, each, LONG) for each in args)
        return _zeros_below(builder, _bits(builder, builder.icmp_unsigned("!=", here, there), LONG))

    return types.int64(address, other), emit


def _byte_bits(_: Any, address: Any, char: Any) -> Any:
    """A bit for each of the LONG bytes from an address on, the first lowest: set where it is the letter."""

    def emit(__: Any, builder: Any, ___: Any, args: Any) -> Any:
        lanes = ir.VectorType(ir.IntType(8), LONG)
        one = builder.insert_element(
            ir.Constant(lanes, ir.Undefined), builder.trunc(args[1], ir.IntType(8)), ir.Constant(ir.IntType(32), 0)
        )
        all_alike = ir.Constant(ir.VectorType(ir.IntType(32), LONG), [0] * LONG)
        every = builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), all_alike)
        return _bits(builder, builder.icmp_unsigned("==", _lanes(builder, args[0], LONG), every), LONG)

    return types.uint64(address, char), emit


def _constant(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def _leading_digits(_: Any, address: Any) -> Any:
    """How many of the 8 bytes from an address on are decimal digits before the first that is none."""

    def emit(__: Any, builder: Any, ___: Any, args: Any) -> Any:
        loaded = builder.load(builder.inttoptr(args[0], ir.IntType(64).as_pointer()), align=1)
        digits = builder.xor(loaded, _constant(0x3030303030303030))
        # A sum's carry reaches only bytes behind the first that is no digit.
        above_nine = builder.or_(builder.add(digits, _constant(0x7676767676767676)), digits)
        return builder.lshr(
            _zeros_below(builder, builder.and_(above_nine, _constant(0x8080808080808080))), _constant(3)
        )

    return types.int64(address), emit


def _counts(test: Callable[[Any, Any, Callable[[int], Any]], Any]) -> Any:
    """An intrinsic: how many of the LANES bytes from an address on come before the first that passes the test."""
    lanes = ir.VectorType(ir.IntType(8), LANES)

    def every(value: int) -> Any:
        return ir.Constant(lanes, [value] * LANES)

    def count(_: Any, address: Any) -> Any:
        def emit(__: Any, builder: Any, ___: Any, args: Any) -> Any:
            block = builder.load(builder.inttoptr(args[0], lanes.as_pointer()), align=1)
            passed = builder.bitcast(test(builder, block, every), ir.IntType(LANES))
            guarded = builder.or_(builder.zext(passed, ir.IntType(64)), ir.Constant(ir.IntType(64), 1 << LANES))
            return builder.cttz(guarded, ir.Constant(ir.IntType(1), 1))

        return types.int64(address), emit

    return intrinsic(count)


def _ends_ordinary(builder: Any, block: Any, every: Callable[[int], Any]) -> Any:
    quote = builder.icmp_unsigned("==", block, every(ord('"')))
    escape = builder.icmp_unsigned("==", block, every(ord("\\")))
    control = builder.icmp_unsigned("<", block, every(ord(" ")))
    return builder.or_(builder.or_(quote, escape), control)


def _ends_blanks(builder: Any, block: Any, every: Callable[[int], Any]) -> Any:
    other = [builder.icmp_unsigned("!=", block, every(ord(blank))) for blank in " \n\r\t"]
    return builder.and_(builder.and_(other[0], other[1]), builder.and_(other[2], other[3]))


trailing_zeros = intrinsic(_trailing_zeros)
leading_alike = intrinsic(_leading_alike)
leading_digits = intrinsic(_leading_digits)
marked = intrinsic(_byte_bits)
byte = _loads(8, types.int64)
number = _loads(64, types.int64)
eight_bytes = _loads(64, types.uint64)
put_byte = _stores(8)
put_small = _stores(32)
put = _stores(64)
leading_ordinary = _counts(_ends_ordinary)
leading_blanks = _counts(_ends_blanks)


@machine
def masked_word(offset: int, length: int) -> np.uint64:
    """The word at the place, bytes beyond the length as zeros."""
    if length >= 8:  # noqa: PLR2004 (bytes of a word)
        return eight_bytes(offset)  # type: ignore[no-any-return]
    return eight_bytes(offset) & ((np.uint64(1) << np.uint64(8 * length)) - np.uint64(1))  # type: ignore[no-any-return]
