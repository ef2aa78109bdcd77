"""Work models in a file of the user's: rows that name one of our formulas, or that hold expressions of their own.

[[model]]
operators = ["mylib::fused_mlp"]        # names as the profiler writes them; `*` stands for anything
operands = { x = 0, w = 1 }             # which input of the call is which, from 0
shapes = { x = "b... k", w = "n k" }    # names for their sizes; see `shape_patterns`
flop = "2 * b * n * k"                  # of products; see `expressions`
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

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from xsp_analyze.classification import KernelClass
from xsp_analyze.work_models.call import ELEMENT_BITS, Tensor
from xsp_analyze.work_models.expressions import Expression, ExpressionError, Operands, parsed
from xsp_analyze.work_models.formulas import FORMULAS
from xsp_analyze.work_models.registry import Model
from xsp_analyze.work_models.shape_patterns import ShapeError, ShapePattern, agreed, shape_pattern
from xsp_analyze.work_models.work import ModelledWork
from xsp_model import XspError
from xsp_model.closest import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from xsp_analyze.work_models.arguments import Arguments

__all__ = ["AMOUNTS", "UserModel", "read_user_models"]

AMOUNTS: Mapping[str, str] = {
    "flop": "flop",
    "vector_flop": "vector_flop",
    "read": "read_bytes",
    "written": "written_bytes",
    "bus": "bus_bytes",
}
"""The fields of `ModelledWork` that a row may have an expression for, by their names there."""

_PRECISIONS = {*ELEMENT_BITS, "tf32"}
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
        return agreed(pairs)


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
    formula = _formula(row) if named else _computed(row, operands)
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


def _computed(row: _Row, operands: Mapping[str, int]) -> _Computed:
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
        return parsed(row.values[name], names, operands)
    except ExpressionError as error:
        row.refuse(f"{name} {error}")
