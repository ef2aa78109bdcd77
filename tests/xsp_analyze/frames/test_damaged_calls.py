"""Sizes and scalars that no operator takes: what the call did is unknown, and nothing breaks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

_HUGE = 10**18
_SETTINGS = ["", "", "", "[0, 0]", "NaN", "{[1]: 2}", "Infinity"]
_FLOAT = ["float", "float", "", "", "", "", ""]


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "concrete"),
    [
        ("aten::mm", [[_HUGE, _HUGE], [_HUGE, _HUGE]], ["float", "float"], []),
        ("aten::add", [[_HUGE] * 20, [_HUGE] * 20, []], ["float", "float", "Scalar"], []),
        ("aten::mm", [[[[[2]]]], [3]], ["float", "float"], []),
        ("aten::mm", [[2, 3]], ["float", "float"], []),
        ("aten::mm", [[0, 0], [0, 0]], ["float", "float"], []),
        ("aten::conv2d", [[1, 3, 8, 8], [4, 3, 3, 3], [], [], [], [], []], _FLOAT, _SETTINGS),
        ("aten::sum", [[4, 4], [], [], []], ["float", "", "", ""], ["", "[" * 50_000, "True", ""]),
        ("aten::cat", [[], []], ["TensorList", "Scalar"], ["", "0"]),
        ("aten::_foreach_add_", [[], [], []], ["TensorList", "TensorList", "Scalar"], ["", "", "1"]),
        ("aten::topk", [[4, 4], [], [], [], []], ["float", "Scalar", "", "", ""], ["", "-7", "9e99", "x", "y"]),
    ],
)  # fmt: skip
def test_what_a_damaged_call_did_is_not_known(
    name: str, shapes: list[object], dtypes: list[str], concrete: list[str], tmp_path: Path
) -> None:
    made = KinetoTrace()
    made.operator(name, 0, 90_000, shapes=shapes, dtypes=dtypes)  # type: ignore[arg-type]
    args = made.events[-1]["args"]
    assert isinstance(args, dict)
    args["Concrete Inputs"] = concrete
    made.launch("k", 1_000, 200_000, 5_000)
    frames = StepView.of(convert([made.write(tmp_path / "t.json")], Options()))
    for identity in ("B11", "B23"):
        table = run(find(identity), frames).table
        numbers = table.select(pl.col(pl.Float64)).unpivot()["value"].drop_nulls()
        assert all(math.isfinite(each) and each >= 0 for each in numbers)
        assert table["device_sum_ns"].sum() == 5_000


@pytest.mark.parametrize("name", ["aten::cat", "aten::_foreach_add_"])
def test_a_list_without_sizes_is_no_list_of_nothing(name: str, tmp_path: Path) -> None:
    made = KinetoTrace()
    made.operator(name, 0, 90_000, shapes=[[], []], dtypes=["TensorList", "Scalar"])
    made.launch("k", 1_000, 200_000, 5_000)
    table = run(find("B11"), StepView.of(convert([made.write(tmp_path / "t.json")], Options()))).table
    assert table.select("modelled_count", "modelled_bytes", "roof_ns").row(0) == (0, None, None)
