"""The capture of a CUDA graph is recorded beside the run, so that its replays have layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from xsp_ingest.formats.torch_profiler import TORCH_PROFILER
from xsp_ingest.ingester import Options
from xsp_runners.torch_levels import recorded_capture
from xsp_runners.torch_profiler import CAPTURE

if TYPE_CHECKING:
    from pathlib import Path


def test_what_runs_while_a_graph_is_captured_is_left_beside_the_trace(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(4, 4)
    with recorded_capture(torch, tmp_path), torch.inference_mode():
        layer(torch.ones(2, 4))
    raw = TORCH_PROFILER.read(tmp_path / CAPTURE, Options())
    names = raw.tables["spans"]["name"].cast(str).to_list()
    assert "Linear_0" in names
    assert "aten::linear" in names
    shapes = raw.tables["operators"]["input_shapes"].cast(str).drop_nulls().to_list()
    assert any("[2,4]" in shape.replace(" ", "") for shape in shapes)
