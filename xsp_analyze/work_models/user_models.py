"""Work models in a file of the user's: rows that name one of our formulas, or that hold expressions of their own.

[[model]]
operators = ["mylib::fused_mlp"]        # names as the profiler writes them; `*` stands for anything
operands = { x = 0, w = 1 }             # which input of the call is which, from 0
shapes = { x = "b... k", w = "n k" }    # names for their sizes; see `ShapePattern`
flop = "2 * b * n * k"                  # of products; see `parse`
vector_flop = "b * n"                   # all other arithmetic
read = "bytes(x) + bytes(w)"
written = "b * n * size(x)"
bus = "0"                               # what is sent to other ranks
precision = "bf16"                      # what products are computed in, where it is not the first operand's type
class = "matrix product"                # a KernelClass
source = "our own kernel, design.md"    # who says so; for readers of the file

[[model]]
operators = ["mylib::linear"]
formula = "linear"                      # a function of `formulas`
operands = { features = 0, weight = 1, bias = 2 }
settings = {}                           # what else the formula is told
"""

from __future__ import annotations

import ast
import math
import operator
import tomllib
import warnings
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from xsp_analyze.classification import KernelClass
from xsp_analyze.work_models.call import ELEMENT_BITS, ModelledWork, Tensor
from xsp_analyze.work_models.formulas import FORMULAS
from xsp_analyze.work_models.registry import Model
from xsp_model import XspError
from xsp_model.errors import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from xsp_analyze.work_models.call import Arguments, Shape

__all__ = [
    "AMOUNTS",
    "Expression",
    "ExpressionError",
    "Operands",
    "ShapeError",
    "ShapePattern",
    "UserModel",
    "parse",
    "read_user_models",
    "shape_pattern",
]

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


def parse(text: object, names: Collection[str], operands: Collection[str]) -> Expression:
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
            raise ExpressionError(f"names {node.id}, which no shape has; the shapes have {_join_names(names)}")
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
        raise ExpressionError(f"asks for {name}({what}), and the operands are {_join_names(operands)}")


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
        result = _binary_value(node, operands)
    elif isinstance(node, ast.UnaryOp):
        result = _UNARY[type(node.op)](_value(node.operand, operands))
    else:
        result = _call_value(node, operands)
    return _check_bounds(result)


def _binary_value(node: ast.BinOp, operands: Operands) -> float:
    left, right = _value(node.left, operands), _value(node.right, operands)
    if isinstance(node.op, ast.Pow) and not abs(right) <= _MAX_EXPONENT:
        raise OverflowError
    return _BINARY[type(node.op)](left, right)


def _call_value(node: ast.expr, operands: Operands) -> object:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise TypeError  # `parse` lets through no such thing
    name = node.func.id
    if name in _OF_NUMBERS:
        return _OF_NUMBERS[name][1](*(_value(each, operands) for each in node.args))
    if name == "value":
        return operands.values[_input_number(node)]
    of_name = operands.bytes if name == "bytes" else operands.element_bytes
    return of_name[node.args[0].id if isinstance(node.args[0], ast.Name) else ""]


def _check_bounds(result: object) -> float:
    if isinstance(result, bool) or not isinstance(result, int | float):
        raise TypeError  # an input that is no number, or a root of a negative one
    if not abs(result) <= _LARGEST or math.isnan(result):
        raise OverflowError
    return result


def _join_names(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"


# Names for the sizes of operands, as users write them: `b... k` is a tensor whose last size is k, and b all others.

_SEVERAL = "..."
_ANY = "_"


class ShapeError(Exception):
    """Why a text is no pattern of a shape, in words that follow it."""


@dataclass(frozen=True, slots=True)
class ShapePattern:
    """The names of the sizes before, in and behind those that stand for any number of sizes, if there are such."""

    first: tuple[str, ...]
    several: str | None
    last: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """What it gives a value to."""
        every = (*self.first, *self.last, *((self.several,) if self.several else ()))
        return frozenset(name for name in every if name != _ANY and not name.isdigit())

    def sizes(self, shape: Shape) -> Mapping[str, int] | None:
        """The value of each name, of several sizes their product; None where the shape is another."""
        between = len(shape) - len(self.first) - len(self.last)
        if between < 0 or (self.several is None and between):
            return None
        rest = shape[len(self.first) : len(self.first) + between]
        pairs = [
            *zip(self.first, shape, strict=False),
            *zip(self.last, shape[len(shape) - len(self.last) :], strict=True),
        ]
        if self.several is not None:
            pairs.append((self.several, prod(rest)))
        return agreeing_sizes(pairs)


def agreeing_sizes(pairs: list[tuple[str, int]]) -> dict[str, int] | None:
    """Names with their values; None where one has two, or a number is another."""
    values: dict[str, int] = {}
    for name, size in pairs:
        if name == _ANY:
            continue
        if values.setdefault(name, int(name) if name.isdigit() else size) != size:
            return None
    return {name: size for name, size in values.items() if not name.isdigit()}


def shape_pattern(text: object) -> ShapePattern:
    """The pattern that a text is: names, numbers and `_` apart by spaces, one of them with `...` behind it.

    Raises:
        ShapeError: It is none.
    """
    if not isinstance(text, str):
        raise ShapeError("is no text")
    tokens = text.split()
    several = [number for number, token in enumerate(tokens) if token.endswith(_SEVERAL)]
    if len(several) > 1:
        raise ShapeError("has ... twice")
    names = [token.removesuffix(_SEVERAL) or _ANY for token in tokens]
    for name in names:
        if not (name.isascii() and (name.isidentifier() or name.isdigit())):
            raise ShapeError(f"has {name!r} in it, which is no name of a size, number or _")
    if not several:
        return ShapePattern(tuple(names), None, ())
    at = several[0]
    return ShapePattern(tuple(names[:at]), names[at], tuple(names[at + 1 :]))


AMOUNTS: Mapping[str, str] = {
    "flop": "flop",
    "vector_flop": "vector_flop",
    "read": "read_bytes",
    "written": "written_bytes",
    "bus": "bus_bytes",
}
"""The fields of `ModelledWork` that a row may have an expression for, by their names there."""
_PRECISIONS = {*(kind for kind in ELEMENT_BITS if " " not in kind), "tf32"}
_SHARED = {"operators", "operands", "class", "source"}
_OF_FORMULA = {*_SHARED, "formula", "settings"}
_OF_EXPRESSIONS = {*_SHARED, *AMOUNTS, "shapes", "precision"}
_BITS_A_BYTE = 8
_MAX_BYTES = 1 << 20  # of a file: it is written by hand
_MAX_SETTING = 1_000_000


@dataclass(frozen=True, slots=True)
class UserModel(Model):
    """One row of a file. `says`: the fields of `ModelledWork` that it has; `has_class`: whether it says one."""

    file: Path = Path()
    says: frozenset[str] = frozenset()
    has_class: bool = False


@dataclass(frozen=True, slots=True)
class _Row:
    """A row as it was read, and where it stands."""

    values: Mapping[str, object]
    file: Path
    number: int

    def refuse(self, what: str) -> NoReturn:
        """XspError that names file, row and operators."""
        operators = self.values.get("operators")
        first = f" ({operators[0]})" if isinstance(operators, list) and operators else ""
        raise XspError(f"row {self.number}{first}: {what}", path=self.file, advice="See docs/work-models.md")


@dataclass(frozen=True, slots=True)
class _Computed:
    """The formula of a row of expressions."""

    patterns: Mapping[str, ShapePattern]
    expressions: Mapping[str, Expression]
    precision: str | None

    def __call__(self, arguments: Arguments) -> ModelledWork | None:
        """Its work; None where the call has no such operands, or one of the expressions comes to nothing."""
        every = {role: arguments.tensor(role) for role in arguments.operands}
        tensors = {role: tensor for role, tensor in every.items() if tensor is not None}
        sizes = self._sizes(tensors)
        if sizes is None or len(tensors) < len(every):
            return None
        operands = Operands(
            sizes,
            {role: tensor.bytes for role, tensor in tensors.items()},
            {role: ELEMENT_BITS[tensor.element_type] / _BITS_A_BYTE for role, tensor in tensors.items()},
            arguments.call.values,
        )
        amounts = {AMOUNTS[name]: each.value(operands) for name, each in self.expressions.items()}
        if None in amounts.values():
            return None
        vector = amounts.get("vector_flop")
        rest = {name: amounts.get(name) for name in ("flop", "read_bytes", "written_bytes", "bus_bytes")}
        return ModelledWork(vector_flop=vector or 0, precision=self.precision, **rest)

    def _sizes(self, tensors: Mapping[str, Tensor]) -> Mapping[str, int] | None:
        pairs: list[tuple[str, int]] = []
        for role, pattern in self.patterns.items():
            sizes = pattern.sizes(tensors[role].shape) if role in tensors else None
            if sizes is None:
                return None
            pairs += sizes.items()
        return agreeing_sizes(pairs)


@dataclass(frozen=True, slots=True)
class _Named:
    """A formula of ours as a row of a user calls it."""

    formula: Callable[[Arguments], ModelledWork | None]
    row: _Row

    def __call__(self, arguments: Arguments) -> ModelledWork | None:
        """What it gives; XspError where the row lacks something without which it cannot be asked."""
        try:
            return self.formula(arguments)
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            name = self.row.values["formula"]
            self.row.refuse(f"its operands or settings are not what the formula {name} takes ({error!r})")


def read_user_models(file: Path) -> tuple[UserModel, ...]:
    """The rows of a file; XspError, in one sentence with the row, where it holds anything else."""
    rows = _rows(file)
    seen: dict[str, int] = {}
    models = []
    for row in rows:
        model = _user_model(row)
        for name in model.operators:
            if name in seen:
                row.refuse(f"{name} is of row {seen[name]} already")
            seen[name] = row.number
        models.append(model)
    return tuple(models)


def _rows(file: Path) -> Sequence[_Row]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise XspError(f"is larger than work models are: over {_MAX_BYTES:,} bytes", path=file)
        document = tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise XspError(f"cannot be read: {error.strerror}", path=file) from error
    except (ValueError, RecursionError) as error:  # of text, of TOML, and of numbers with thousands of digits
        raise XspError(f"is no TOML: {error}", path=file) from error
    tables = document.get("model")
    if not isinstance(tables, list) or not tables or set(document) != {"model"}:
        raise XspError("holds no work models, which are tables [[model]]", path=file, advice="See docs/work-models.md")
    return [_Row(each if isinstance(each, dict) else {}, file, number) for number, each in enumerate(tables, start=1)]


def _user_model(row: _Row) -> UserModel:
    named = "formula" in row.values
    allowed = _OF_FORMULA if named else _OF_EXPRESSIONS
    for key in row.values:
        if key not in allowed:
            row.refuse(f"{key} is nothing that such a row has; it may have {', '.join(sorted(allowed))}")
    operators = _operators(row)
    operands = _operands(row)
    formula = _formula(row) if named else _compile_row(row, operands)
    says = AMOUNTS.values() if not isinstance(formula, _Computed) else (AMOUNTS[name] for name in formula.expressions)
    settings = row.values.get("settings", {})
    if not isinstance(settings, dict):
        row.refuse("settings is no table")
    _check_settings(row, settings)
    source = str(row.values.get("source", ""))
    has_class = "class" in row.values
    return UserModel(
        operators, formula, _class(row), source, operands, settings, row.file, frozenset(says), has_class=has_class
    )


def _check_settings(row: _Row, settings: Mapping[str, object]) -> None:
    """Numbers count operations, elements or inputs, so none is below 0 or endless."""
    for key, value in settings.items():
        if isinstance(value, float) or (type(value) is int and not 0 <= value <= _MAX_SETTING):
            row.refuse(f"settings.{key} is no whole number from 0 to {_MAX_SETTING:,}")
    if "flop" in settings and type(settings["flop"]) is not int:
        row.refuse("settings.flop is no number of operations an element")


def _operators(row: _Row) -> tuple[str, ...]:
    names = row.values.get("operators")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        row.refuse("operators is no list of names")
    return tuple(dict.fromkeys(names))


def _operands(row: _Row) -> dict[str, int]:
    operands = row.values.get("operands", {})
    if not isinstance(operands, dict) or not all(type(index) is int and index >= 0 for index in operands.values()):
        row.refuse("operands is no table of numbers of inputs, from 0")
    return operands


def _class(row: _Row) -> KernelClass:
    name = row.values.get("class", str(KernelClass.OTHER))
    try:
        return KernelClass(str(name))
    except ValueError:
        row.refuse(f"{name!r} is no class; the classes are {', '.join(KernelClass)}")


def _formula(row: _Row) -> _Named:
    name = str(row.values["formula"])
    if name not in FORMULAS:
        near = closest(name, FORMULAS)
        row.refuse(f"there is no formula {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else ""))
    if name == "view":
        row.refuse("a view has no work to tell of: leave the row out, and what the operator calls counts")
    return _Named(FORMULAS[name], row)


def _compile_row(row: _Row, operands: Mapping[str, int]) -> _Computed:
    patterns = dict(_patterns(row, operands))
    names = frozenset(name for pattern in patterns.values() for name in pattern.names)
    expressions = {name: _expression(row, name, names, operands) for name in AMOUNTS if name in row.values}
    if not expressions:
        row.refuse(f"it has neither a formula nor any of {', '.join(AMOUNTS)}")
    precision = row.values.get("precision")
    if precision is not None and str(precision) not in _PRECISIONS:
        row.refuse(f"{precision!r} is no precision; those are {', '.join(sorted(_PRECISIONS))}")
    return _Computed(patterns, expressions, None if precision is None else str(precision))


def _patterns(row: _Row, operands: Collection[str]) -> Iterator[tuple[str, ShapePattern]]:
    shapes = row.values.get("shapes", {})
    if not isinstance(shapes, dict):
        row.refuse("shapes is no table")
    for role, text in shapes.items():
        if role not in operands:
            row.refuse(f"shapes has {role}, which is no operand; the operands are {', '.join(operands) or 'none'}")
        try:
            yield role, shape_pattern(text)
        except ShapeError as error:
            row.refuse(f"the shape of {role} {error}")


def _expression(row: _Row, name: str, names: Collection[str], operands: Collection[str]) -> Expression:
    try:
        return parse(row.values[name], names, operands)
    except ExpressionError as error:
        row.refuse(f"{name} {error}")
