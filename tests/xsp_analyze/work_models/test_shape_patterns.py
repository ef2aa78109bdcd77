"""Names of sizes as users write them."""

from __future__ import annotations

import pytest

from xsp_analyze.work_models.user_models import ShapeError, shape_pattern


@pytest.mark.parametrize(
    ("text", "shape", "sizes"),
    [
        ("n k", (5, 7), {"n": 5, "k": 7}),
        ("b... k", (2, 3, 7), {"b": 6, "k": 7}),
        ("b... k", (7,), {"b": 1, "k": 7}),
        ("n b... k", (5, 2, 3, 7), {"n": 5, "b": 6, "k": 7}),
        ("n b...", (5, 2, 3), {"n": 5, "b": 6}),
        ("n n", (5, 5), {"n": 5}),
        ("n n", (5, 6), None),
        ("_ _ k", (5, 6, 7), {"k": 7}),
        ("2 k", (2, 7), {"k": 7}),
        ("2 k", (3, 7), None),
        ("... k", (2, 3, 7), {"k": 7}),
        ("n k", (5,), None),
        ("n k", (5, 6, 7), None),
        ("n k b...", (5,), None),
        ("", (), {}),
        ("", (1,), None),
    ],
)
def test_a_shape_gives_its_names_values_or_is_another(
    text: str, shape: tuple[int, ...], sizes: dict[str, int] | None
) -> None:
    assert shape_pattern(text).sizes(shape) == sizes


def test_names_are_those_that_get_a_value() -> None:
    assert shape_pattern("2 _ n b... k").names == {"n", "b", "k"}
    assert shape_pattern("...").names == set()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a... b...", "has ... twice"),
        ("b, k", "has 'b,' in it"),
        ("-1", "has '-1' in it"),
        ("b.c", "has 'b.c' in it"),
        ("x()", "has 'x()' in it"),
        ("\u0663", "in it"),
        (["b"], "is no text"),
    ],
)
def test_anything_else_is_refused(text: object, why: str) -> None:
    with pytest.raises(ShapeError) as error:
        shape_pattern(text)
    assert why in str(error.value)
