"""What a convolution put out, by what the next operator takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.synth import KinetoTrace
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path


def test_the_operators_inside_a_convolution_take_its_image_and_are_not_the_next(tmp_path: Path) -> None:
    # As many channels out as in, and a stride of 2 that was not recorded: 15 x 11 becomes 7 x 5.
    shapes = [[2, 8, 15, 11], [8, 8, 3, 3]]
    made = KinetoTrace()
    for at, name in enumerate(("conv2d", "cudnn_convolution", "cudnn_convolution")):
        made.operator(f"aten::{name}", at * 1_000, 90_000 - at * 2_000, shapes=shapes)
    made.operator("aten::contiguous", 3_000, 1_000, shapes=shapes[1:])
    made.launch("k", 5_000, 200_000, 1_000)
    made.operator("aten::add_", 91_000, 1_000, shapes=[[], []])
    made.operator("aten::batch_norm", 100_000, 10_000, shapes=[[2, 8, 7, 5], [8], [8]])
    table = run(find("B11"), StepView.of(convert([made.write(tmp_path / "t.json")], Options()))).table
    flop = dict(table.select("operator", "modelled_flop").rows())
    assert flop["aten::conv2d"] == 2 * 72 * 2 * 8 * 35
    assert "aten::cudnn_convolution" not in flop


def test_without_types_all_tensors_are_of_the_one_that_kernels_tell(tmp_path: Path) -> None:
    """As torch 1.8 wrote files: shapes and no types. Image, filter and output of 2 bytes an element."""
    made = KinetoTrace()
    made.operator("aten::cudnn_convolution", 0, 90_000, shapes=[[2, 8, 15, 11], [6, 8, 3, 3], []], dtypes=[])
    made.launch("void conv<c10::BFloat16>(int)", 5_000, 200_000, 1_000)
    made.operator("aten::relu_", 100_000, 10_000, shapes=[[2, 6, 13, 9]], dtypes=[])
    table = run(find("B11"), StepView.of(convert([made.write(tmp_path / "t.json")], Options()))).table
    rows = table.filter(operator="aten::cudnn_convolution").select("modelled_flop", "modelled_bytes").rows()
    assert rows == [(2 * 72 * 2 * 6 * 117, 2 * (2640 + 432 + 1404))]
