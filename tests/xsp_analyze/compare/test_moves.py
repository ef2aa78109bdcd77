"""Time that moved between operators and kernels of a class, on cells with the answer worked out in the test."""

from __future__ import annotations

import polars as pl

from tests.helpers.captures import Work, view
from xsp_analyze.compare.comparison import compare
from xsp_analyze.compare.parts import leading, waterfall
from xsp_analyze.compare.rows import moves


def _cells(*rows: tuple[str, str, str, float, float]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["operator", "kernel_class", "kernel", "ns", "count"], orient="row")


_BEFORE = _cells(
    ("aten::mm", "matrix product", "gemm_a", 700.0, 7.0),
    ("aten::bmm", "matrix product", "gemm_b", 300.0, 3.0),
    ("aten::add", "elementwise", "add", 50.0, 5.0),
)


def test_an_operator_that_launches_less_of_what_a_graph_now_replays_moved() -> None:
    after = _cells(
        ("aten::mm", "matrix product", "gemm_a", 200.0, 2.0),
        ("aten::bmm", "matrix product", "gemm_b", 300.0, 3.0),
        ("graph replay", "matrix product", "gemm_a", 600.0, 5.0),
        ("aten::add", "elementwise", "add", 50.0, 5.0),
    )
    moved, classes = moves(_BEFORE, after, "operator")
    assert {name: (list(move.others), move.is_to) for name, move in moved.items()} == {
        "aten::mm": (["graph replay"], True),
        "graph replay": (["aten::mm"], False),
    }
    (one,) = classes
    assert (one.kernel_class, one.before_ns, one.after_ns) == ("matrix product", 1000.0, 1100.0)
    assert (one.losses, one.gains) == ([("aten::mm", -500.0)], [("graph replay", 600.0)])


def test_what_runs_as_often_and_takes_less_got_faster_whatever_others_do() -> None:
    after = _cells(
        ("aten::mm", "matrix product", "gemm_a", 200.0, 7.0),
        ("aten::bmm", "matrix product", "gemm_b", 900.0, 9.0),
        ("aten::add", "elementwise", "add", 50.0, 5.0),
    )
    moved, _ = moves(_BEFORE, after, "operator")
    assert moved == {}


def test_what_is_gone_and_nowhere_else_did_not_move() -> None:
    moved, classes = moves(_BEFORE, _BEFORE.filter(pl.col("operator") != "aten::mm"), "operator")
    assert (moved, classes) == ({}, [])


def test_work_of_another_class_is_no_place_to_move_to() -> None:
    after = _cells(
        ("aten::mm", "matrix product", "gemm_a", 200.0, 2.0),
        ("aten::bmm", "matrix product", "gemm_b", 300.0, 3.0),
        ("aten::add", "elementwise", "add", 550.0, 55.0),
    )
    assert moves(_BEFORE, after, "operator") == ({}, [])


def test_another_kernel_of_the_same_operator_takes_the_place_of_one() -> None:
    after = _cells(
        ("aten::mm", "matrix product", "gemm_new", 500.0, 7.0),
        ("aten::bmm", "matrix product", "gemm_b", 300.0, 3.0),
        ("aten::add", "elementwise", "add", 50.0, 5.0),
    )
    moved, _ = moves(_BEFORE, after, "kernel")
    assert {name: (list(move.others), move.is_to) for name, move in moved.items()} == {
        "gemm_a": (["gemm_new"], True),
        "gemm_new": (["gemm_a"], False),
    }
    assert moves(_BEFORE, after, "operator")[0] == {}


def test_a_little_of_a_large_gain_does_not_explain_it() -> None:
    after = _cells(
        ("aten::mm", "matrix product", "gemm_a", 600.0, 6.0),
        ("aten::bmm", "matrix product", "gemm_b", 300.0, 3.0),
        ("graph replay", "matrix product", "gemm_a", 5000.0, 50.0),
        ("aten::add", "elementwise", "add", 50.0, 5.0),
    )
    moved, _ = moves(_BEFORE, after, "operator")
    assert set(moved) == {"aten::mm"}


def test_a_cause_has_the_sign_of_the_change() -> None:
    before = {("layer", "a"): {"slow": 100.0, "fast": 500.0}}
    after = {("layer", "a"): {"slow": 900.0, "fast": 100.0}}
    part = waterfall("device", "layer", (600.0, 1000.0), before, after).parts[0]
    assert (part.difference_ns, part.kernel, part.kernel_difference_ns) == (400, "slow", 800)
    after = {("layer", "a"): {"slow": 450.0, "fast": 0.0}}
    part = waterfall("device", "layer", (600.0, 450.0), before, after).parts[0]
    assert (part.difference_ns, part.kernel, part.kernel_difference_ns) == (-150, "fast", -500)
    assert leading({"a": 3.0, "b": -5.0}, 0.0) is None


def test_every_cause_of_a_comparison_has_the_sign_of_its_row() -> None:
    comparison = compare([view(Work(steps=5), 1)], [view(Work(steps=5, slower={3: 1.5, 7: 0.5}), 2)])
    causes = [row for row in comparison.level("layer") if row.kernel is not None]
    assert {row.name for row in causes} >= {"Linear_3", "Linear_7"}
    assert all((row.kernel_difference_ns or 0) * (row.difference_ns or 0) > 0 for row in causes)


def test_rows_that_sum_up_others_come_first() -> None:
    comparison = compare([view(Work(steps=5), 1)], [view(Work(steps=5, slower={3: 1.5}), 2)])
    levels = list(dict.fromkeys(row.level for row in comparison.rows))
    assert levels == ["layer_type", "kernel_class", "layer", "kernel"]
    (kind,) = comparison.level("layer_type")
    layers = comparison.level("layer")
    assert kind.before_ns == sum(row.before_ns or 0 for row in layers)
    assert kind.after_ns == sum(row.after_ns or 0 for row in layers)
