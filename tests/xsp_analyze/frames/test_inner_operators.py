"""What a call did is told by the operators inside, where its inputs do not say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

_SHAPES = [[2, 8, 9, 9], [2, 6, 7, 7], [6, 8, 3, 3]]
_FLOP = 2 * (8 * 9) * (2 * 6 * 7 * 7)
_NAME = "aten::cudnn_convolution_backward"


def test_a_convolution_s_gradients_are_those_that_ran_inside(tmp_path: Path) -> None:
    # The first call holds both, the second that of the weight alone; each launches a kernel of its own.
    made = KinetoTrace()
    for start, inside in ((0, ("_input", "_weight")), (100_000, ("_weight",))):
        made.operator(_NAME, start, 90_000, shapes=_SHAPES)
        for at, end in enumerate(inside):
            made.operator(f"{_NAME}{end}", start + 10_000 + at * 40_000, 30_000, shapes=[[], *_SHAPES[1:]])
            made.launch("gradient", start + 15_000 + at * 40_000, 10**6 + start + at * 40_000, 10_000)
    table = run(find("B11"), StepView.of(convert([made.write(tmp_path / "t.json")], Options()))).table
    columns = ["operator", "count", "modelled_count", "modelled_flop", "device_sum_ns"]
    assert table.select(columns).rows() == [(_NAME, 2, 2, 3 * _FLOP, 30_000)]


@pytest.mark.real
@pytest.mark.parametrize(
    ("path", "operator", "flop", "size"),
    [
        # By a script of its own from Input Dims and Concrete Inputs. ResNet-50 of 32 images in 6 steps is also the sum
        # over its layers: 4 087 136 256 multiply-adds an image forward, twice that less the first layer's backward.
        ("resnet18_train_ddp.mi300x.json.gz", "aten::convolution_backward", 17_966_636_728_320, 34_519_543_680),
        ("resnet50_train_torch19.v100.json.gz", "aten::conv2d", 1_569_460_322_304, 17_287_180_800),
        ("resnet50_train_torch19.v100.json.gz", _NAME, 3_093_603_287_040, 25_922_990_592),
        ("resnet50_train_torch18_oldcats.json.gz", "aten::conv2d", 1_569_460_322_304, 17_287_180_800),
        ("resnet50_train_torch18_oldcats.json.gz", _NAME, 3_093_603_287_040, 25_922_990_592),
    ],
)
def test_real_gradients(real_dir: Path, path: str, operator: str, flop: int, size: int) -> None:
    frames = StepView.of(convert([real_dir / "kineto" / path], Options()), steps="all")
    row = run(find("B11"), frames).table.filter(operator=operator).row(0, named=True)
    assert (row["modelled_flop"], row["modelled_bytes"]) == (flop, size)
