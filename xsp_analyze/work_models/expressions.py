"""Arithmetic that users write in their work models: numbers, names of sizes, and a few functions; nothing else.

    2 * b * n * k        ceil_div(n, 128) * 128        bytes(x) + bytes(w)        size(x) * value(3)

An expression is parsed as Python and every part of it has to be one of those listed here, so that a file of models can
compute and do nothing more: no attribute, index, string, comparison or other call. Whatever a part may be, evaluating
ends soon: texts are short, exponents small and values bounded.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

__all__ = ["Expression", "ExpressionError", "Operands", "parsed"]

_MAX_TEXT = 1000
_MAX_NODES = 300
_MAX_EXPONENT = 8
_LARGEST = 1e30  # no work, nor a product on the way to it, is larger

_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[float], float]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_OF_NUMBERS: Mapping[str, tuple[int, Callable[..., float]]] = {  # the least number of arguments
    "min": (2, min),
    "max": (2, max),
    "ceil_div": (2, lambda a, b: -(-a // b)),
}
_OF_OPERANDS = ("bytes", "size")
_ALLOWED = "numbers, names of sizes, + - * / // **, min, max, ceil_div, bytes(operand), size(operand) and value(number)"


class ExpressionError(Exception):
    """Why a text is no expression, in words that follow its name."""


@dataclass(frozen=True, slots=True)
class Operands:
    """What an expression is evaluated with: sizes by name, bytes of operands and of an element of each, and inputs."""

    sizes: Mapping[str, int]
    bytes: Mapping[str, int]
    element_bytes: Mapping[str, float]
    values: Sequence[object]


@dataclass(frozen=True, slots=True)
class Expression:
    """One expression, of which every part is known to be allowed."""

    text: str
    body: ast.expr

    def value(self, operands: Operands) -> int | None:
        """What it comes to, rounded; None where that is no number of at least 0, or an input of it was not recorded."""
        try:
            result = _value(self.body, operands)
        except (ArithmeticError, LookupError, TypeError):
            return None
        return round(result) if result >= 0 else None


def parsed(text: object, names: Collection[str], operands: Collection[str]) -> Expression:
    """The expression that a text is, of sizes of these names and operands of those; a number stands for itself.

    Raises:
        ExpressionError: It is none.
    """
    if type(text) in {int, float}:
        text = repr(text)
    if not isinstance(text, str):
        raise ExpressionError("is no text")
    if len(text) > _MAX_TEXT:
        raise ExpressionError(f"has more than {_MAX_TEXT} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a text that is no arithmetic: it is refused below
            body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ExpressionError("is no arithmetic expression") from error
    if sum(1 for _ in ast.walk(body)) > _MAX_NODES:
        raise ExpressionError(f"has more than {_MAX_NODES} parts")
    _check(body, names, operands)
    return Expression(text, body)


def _check(node: ast.expr, names: Collection[str], operands: Collection[str]) -> None:
    if isinstance(node, ast.Constant):
        _check_number(node)
    elif isinstance(node, ast.Name):
        if node.id not in names:
            raise ExpressionError(f"names {node.id}, which no shape has; the shapes have {_listed(names)}")
    elif isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        _check(node.left, names, operands)
        _check(node.right, names, operands)
    elif isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        _check(node.operand, names, operands)
    elif isinstance(node, ast.Call):
        _check_call(node, names, operands)
    else:
        raise ExpressionError(f"has {ast.unparse(node)!r} in it; it may have {_ALLOWED}")


def _check_number(node: ast.Constant) -> None:
    if type(node.value) not in {int, float} or not abs(node.value) <= _LARGEST:  # type: ignore[arg-type]
        raise ExpressionError(f"has {ast.unparse(node)[:40]} in it, which is no number up to {_LARGEST:g}")


def _check_call(node: ast.Call, names: Collection[str], operands: Collection[str]) -> None:
    name = node.func.id if isinstance(node.func, ast.Name) else None
    if name is None or node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
        raise ExpressionError(f"calls {ast.unparse(node)!r}; it may have {_ALLOWED}")
    if name in _OF_NUMBERS:
        if len(node.args) < _OF_NUMBERS[name][0] or (name == "ceil_div" and len(node.args) > _OF_NUMBERS[name][0]):
            raise ExpressionError(f"calls {name} with {len(node.args)} values")
        for each in node.args:
            _check(each, names, operands)
    elif name in _OF_OPERANDS:
        _check_operand(name, node.args, operands)
    elif name == "value":
        _input_number(node)
    else:
        raise ExpressionError(f"calls {name}; it may have {_ALLOWED}")


def _check_operand(name: str, arguments: Sequence[ast.expr], operands: Collection[str]) -> None:
    operand = arguments[0].id if len(arguments) == 1 and isinstance(arguments[0], ast.Name) else None
    if operand not in operands:
        what = ", ".join(ast.unparse(each) for each in arguments)
        raise ExpressionError(f"asks for {name}({what}), and the operands are {_listed(operands)}")


def _input_number(node: ast.Call) -> int:
    number = node.args[0].value if len(node.args) == 1 and isinstance(node.args[0], ast.Constant) else None
    if type(number) is not int:
        raise ExpressionError("asks for value() of something else than the number of an input, from 0")
    return number


def _value(node: ast.expr, operands: Operands) -> float:
    """Raises ArithmeticError, LookupError and TypeError where there is none."""
    if isinstance(node, ast.Constant):
        result: object = node.value
    elif isinstance(node, ast.Name):
        result = operands.sizes[node.id]
    elif isinstance(node, ast.BinOp):
        result = _combined(node, operands)
    elif isinstance(node, ast.UnaryOp):
        result = _UNARY[type(node.op)](_value(node.operand, operands))
    else:
        result = _called(node, operands)
    return _bounded(result)


def _combined(node: ast.BinOp, operands: Operands) -> float:
    left, right = _value(node.left, operands), _value(node.right, operands)
    if isinstance(node.op, ast.Pow) and not abs(right) <= _MAX_EXPONENT:
        raise OverflowError
    return _BINARY[type(node.op)](left, right)


def _called(node: ast.expr, operands: Operands) -> object:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise TypeError  # `parsed` lets through no such thing
    name = node.func.id
    if name in _OF_NUMBERS:
        return _OF_NUMBERS[name][1](*(_value(each, operands) for each in node.args))
    if name == "value":
        return operands.values[_input_number(node)]
    of_name = operands.bytes if name == "bytes" else operands.element_bytes
    return of_name[node.args[0].id if isinstance(node.args[0], ast.Name) else ""]


def _bounded(result: object) -> float:
    if isinstance(result, bool) or not isinstance(result, int | float):
        raise TypeError  # an input that is no number, or a root of a negative one
    if not abs(result) <= _LARGEST or math.isnan(result):
        raise OverflowError
    return result


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"
