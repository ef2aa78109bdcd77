"""Files of users' work models: what their rows tell, and what is refused in which words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from xsp_analyze.classification import KernelClass
from xsp_analyze.work_models.call import call_of
from xsp_analyze.work_models.user_models import UserModel, read_user_models
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_analyze.work_models.call import ModelledWork

_PRODUCT = """
[[model]]
operators = ["mylib::product", "mylib::product_*"]
operands = { x = 0, w = 1 }
shapes = { x = "b... k", w = "n k" }
flop = "2 * b * n * k"
vector_flop = "b * n * value(2)"
read = "bytes(x) + bytes(w)"
written = "b * n * size(x)"
bus = 0
precision = "bf16"
class = "matrix product"
source = "design.md"
"""


def models(folder: Path, text: str) -> tuple[UserModel, ...]:
    file = folder / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return read_user_models(file)


def work(
    model: UserModel, shapes: Sequence[object], kinds: Sequence[str], concrete: Sequence[str] = ()
) -> ModelledWork | None:
    call = call_of("mylib::product", json.dumps(shapes), json.dumps(kinds), None, json.dumps([*concrete]))
    assert call is not None
    return model.work(call)


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(XspError) as error:
        models(folder, text)
    message = str(error.value)
    assert message.startswith(f"{folder / 'mine.toml'}: ")
    assert "\n" not in message
    return message.removeprefix(f"{folder / 'mine.toml'}: ")


def test_a_row_of_expressions_counts_by_sizes_bytes_and_inputs(tmp_path: Path) -> None:
    # (2, 3, 7) by (5, 7), of two bytes: 6 * 5 * 7 products, 30 elements of which each costs `value(2)` = 4 more.
    (model,) = models(tmp_path, _PRODUCT)
    kinds = ["c10::Half", "c10::Half", "Scalar"]
    counted = work(model, [[2, 3, 7], [5, 7], []], kinds, ["", "", "4"])
    assert counted is not None
    assert (counted.flop, counted.vector_flop, counted.bus_bytes) == (2 * 6 * 5 * 7, 6 * 5 * 4, 0)
    assert (counted.read_bytes, counted.written_bytes, counted.precision) == (2 * (42 + 35), 2 * 30, "bf16")
    assert model.operator_class is KernelClass.MATRIX_PRODUCT
    assert model.says == {"flop", "vector_flop", "read_bytes", "written_bytes", "bus_bytes"}


def test_a_call_that_does_not_fit_is_not_told(tmp_path: Path) -> None:
    (model,) = models(tmp_path, _PRODUCT)
    kinds = ["float", "float", "Scalar"]
    assert work(model, [[2, 3, 7], [5, 8], []], kinds, ["", "", "4"]) is None  # k is 7 and 8
    assert work(model, [[2, 3, 7], [5], []], kinds, ["", "", "4"]) is None
    assert work(model, [[2, 3, 7]], ["float"]) is None  # there is no w
    assert work(model, [[2, 3, 7], [], [5, 7]], ["float", "Scalar", "float"]) is None
    assert work(model, [[2, 3, 7], [5, 7], []], kinds) is None  # value(2) was not recorded


def test_a_row_says_only_what_it_has_an_expression_for(tmp_path: Path) -> None:
    (model,) = models(tmp_path, '[[model]]\noperators = ["a"]\noperands = { x = 0 }\nread = "bytes(x)"\n')
    counted = work(model, [[4]], ["float"])
    assert counted is not None
    assert (counted.flop, counted.read_bytes, counted.written_bytes) == (None, 16, None)
    assert model.says == {"read_bytes"}
    assert not model.has_class


def test_a_row_may_name_a_formula_of_ours(tmp_path: Path) -> None:
    text = '[[model]]\noperators = ["a"]\nformula = "linear"\noperands = { features = 1, weight = 0 }\n'
    (model,) = models(tmp_path, text)
    counted = work(model, [[5, 7], [6, 7]], ["float", "float"])
    assert counted is not None
    assert counted.flop == 2 * 6 * 5 * 7
    assert work(model, [[5, 7]], ["float"]) is None  # an operand is missing


def test_a_formula_that_cannot_be_asked_so_is_the_rows_error(tmp_path: Path) -> None:
    (model,) = models(tmp_path, '[[model]]\noperators = ["a"]\nformula = "padding"\noperands = { values = 0 }\n')
    what = r"its operands or settings are not what the formula padding takes \(KeyError\('offsets'\)\)"
    with pytest.raises(XspError, match=rf"mine\.toml: row 1 \(a\): {what}"):
        work(model, [[5, 7]], ["float"])


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("", "row 1: operators is no list of names"),
        ("operators = []", "row 1: operators is no list of names"),
        ('operators = "a"', "row 1: operators is no list of names"),
        ("operators = [1]", "row 1 (1): operators is no list of names"),
        ('operators = ["a"]', "row 1 (a): it has neither a formula nor any of flop, vector_flop, read, written, bus"),
        ('operators = ["a"]\nflops = "1"', "row 1 (a): flops is nothing that such a row has; it may have bus, class"),
        ('operators = ["a"]\nformula = "lineal"', "row 1 (a): there is no formula 'lineal'; did you mean linear?"),
        ('operators = ["a"]\nformula = "linear"\nflop = "1"', "row 1 (a): flop is nothing that such a row has"),
        ('operators = ["a"]\nformula = "linear"\nsettings = 1', "row 1 (a): settings is no table"),
        ('operators = ["a"]\nflop = "1"\noperands = { x = -1 }', "row 1 (a): operands is no table of numbers"),
        ('operators = ["a"]\nflop = "1"\noperands = { x = true }', "row 1 (a): operands is no table of numbers"),
        ('operators = ["a"]\nflop = "1"\noperands = [0]', "row 1 (a): operands is no table of numbers"),
        ('operators = ["a"]\nflop = "1"\nshapes = { x = "n" }', "row 1 (a): shapes has x, which is no operand"),
        ('operators = ["a"]\nflop = "1"\nshapes = 3', "row 1 (a): shapes is no table"),
        (
            'operators = ["a"]\nflop = "1"\noperands = { x = 0 }\nshapes = { x = "n; k" }',
            "row 1 (a): the shape of x has 'n;' in it",
        ),
        ('operators = ["a"]\nflop = "n"', "row 1 (a): flop names n, which no shape has; the shapes have none"),
        ('operators = ["a"]\nread = "bytes(x)"', "row 1 (a): read asks for bytes(x), and the operands are none"),
        ('operators = ["a"]\nflop = "__import__(\'os\')"', "row 1 (a): flop calls __import__; it may have numbers"),
        ('operators = ["a"]\nflop = "1"\nclass = "magic"', "row 1 (a): 'magic' is no class; the classes are matrix"),
        ('operators = ["a"]\nflop = "1"\nprecision = "bf17"', "row 1 (a): 'bf17' is no precision; those are bf16"),
        ('operators = ["a"]\nflop = "1"\nprecision = [1]', "row 1 (a): [1] is no precision"),
    ],
)
def test_a_row_that_is_not_sound_is_refused(tmp_path: Path, row: str, why: str) -> None:
    assert refusal(tmp_path, f"[[model]]\n{row}\n").startswith(why)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no work models"),
        ("model = 3", "holds no work models"),
        ("model = []", "holds no work models"),
        ("[model]\nflop = '1'", "holds no work models"),
        ("[[device]]\nname = 'x'", "holds no work models"),
        (_PRODUCT + "[extra]\n", "holds no work models"),
        ("[[model", "is no TOML"),
        ("a = " + "[" * 5000, "is no TOML"),
        ("#" * (1 << 20) + "\n" + _PRODUCT, "is larger than work models are"),
        ("x = " + "9" * 9_000, "is no TOML"),
        ("model = [1]", "row 1: operators is no list of names"),
    ],
)
def test_a_file_of_anything_else_is_refused(tmp_path: Path, text: str, why: str) -> None:
    assert refusal(tmp_path, text).startswith(why)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(XspError, match=r"none\.toml: cannot be read: No such file"):
        read_user_models(tmp_path / "none.toml")
    with pytest.raises(XspError, match="cannot be read: Is a directory"):
        read_user_models(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(XspError, match=r"bytes\.toml: is no TOML"):
        read_user_models(tmp_path / "bytes.toml")


def test_two_rows_for_one_name_are_refused(tmp_path: Path) -> None:
    again = '[[model]]\noperators = ["mylib::other", "mylib::product"]\nflop = "1"\n'
    assert refusal(tmp_path, _PRODUCT + again).startswith("row 2 (mylib::other): mylib::product is of row 1 already")
