"""Expressions of users: what they come to, and all that they may not be."""

from __future__ import annotations

import pytest

from xsp_analyze.work_models.user_models import Expression, ExpressionError, Operands, parse

_OPERANDS = Operands({"b": 3, "n": 5, "k": 7}, {"x": 42, "w": 70}, {"x": 2.0, "w": 0.5}, (None, None, 4, "same", True))


def expression(text: object) -> Expression:
    return parse(text, {"b", "n", "k"}, {"x", "w"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * b * n * k", 210),
        ("2*(b+n)*k - 12", 100),
        ("bytes(x) + bytes(w)", 112),
        ("b * n * size(x)", 30),
        ("b * k * size(w)", 10),  # 10.5, to the nearest even
        ("b * n // 4 + n / 2", 6),  # 3 + 2.5
        ("min(b, n, k) * max(b, n)", 15),
        ("ceil_div(k, 2) * 2", 8),
        ("k ** 2", 49),
        ("16 ** 0.5", 4),
        ("value(2) * +b", 12),
        ("-b + k", 4),
        ("1e9", 1_000_000_000),
        (0, 0),
        (2.5e3, 2500),
    ],
)
def test_arithmetic_of_sizes_and_bytes(text: object, value: int) -> None:
    assert expression(text).value(_OPERANDS) == value


@pytest.mark.parametrize(
    "text",
    [
        "b // (n - 5)",  # by 0
        "b - k",  # less than nothing
        "value(0)",  # not recorded
        "value(3)",  # a text
        "value(4)",  # true is no 1
        "value(9)",  # no such input
        "2 ** (k * k)",
        "2 ** -9",
        "(0 - 8) ** 0.5",  # no real number
        "1e29 * k * k",
        "1e30 ** 8 * 1e30 ** 8",
        "0 ** (0 - 1)",
    ],
)
def test_what_comes_to_no_amount_is_unknown(text: str) -> None:
    assert expression(text).value(_OPERANDS) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("__import__('os').system('true')", "calls"),
        ("b.__class__", "has 'b.__class__' in it"),
        ("().__class__.__bases__[0]", "in it; it may have numbers"),
        ("open('/etc/passwd')", "calls open"),
        ("eval('1')", "calls eval"),
        ("lambda: 1", "in it; it may have"),
        ("[b for b in range(9)]", "in it; it may have"),
        ("b if n else k", "in it; it may have"),
        ("b and n", "in it; it may have"),
        ("b < n", "in it; it may have"),
        ("b @ n", "in it; it may have"),
        ("b << 60", "in it; it may have"),
        ("b % n", "in it; it may have"),
        ("~b", "in it; it may have"),
        ("not b", "in it; it may have"),
        ("'a' * 9", "is no number"),
        ("True", "is no number"),
        ("9j", "is no number"),
        ("1e999", "is no number"),
        ("9" * 400, "is no number"),
        ("...", "is no number"),
        ("(x := 1)", "in it; it may have"),
        ("f'{b}'", "in it; it may have"),
        ("await b", "in it; it may have"),
        ("min(*x)", "calls 'min(*x)'"),
        ("min(b, key=n)", "calls 'min(b, key=n)'"),
        ("min(b)", "calls min with 1 values"),
        ("ceil_div(b, n, k)", "calls ceil_div with 3 values"),
        ("(min)(b, n)(k)", "calls"),
        ("m * 2", "names m, which no shape has; the shapes have b, k, n"),
        ("bytes(y)", "asks for bytes(y), and the operands are w, x"),
        ("bytes(10 ** 9)", "asks for bytes(10 ** 9)"),
        ("bytes()", "asks for bytes()"),
        ("size(b)", "asks for size(b)"),
        ("value(b)", "asks for value() of something else"),
        ("value(-1)", "asks for value() of something else"),
        ("value(True)", "asks for value() of something else"),
        ("", "is no arithmetic expression"),
        ("2 *", "is no arithmetic expression"),
        ("b = 2", "is no arithmetic expression"),
        ("import os", "is no arithmetic expression"),
        ("b\x00", "is no arithmetic expression"),
        ("(" * 400 + ")" * 400, "is no arithmetic expression"),
        ("b" + " + b" * 200, "has more than 300 parts"),
        ("b" + "+ b" * 400, "has more than 1000 characters"),
        ([1], "is no text"),
        (True, "is no text"),
        (None, "is no text"),
    ],
)
def test_anything_else_is_refused(text: object, why: str) -> None:
    with pytest.raises(ExpressionError) as error:
        expression(text)
    assert why in str(error.value)


def test_a_deep_expression_ends() -> None:
    assert expression("-" * 100 + "b").value(_OPERANDS) == 3
    with pytest.raises(ExpressionError):
        expression("-" * 900 + "b")
