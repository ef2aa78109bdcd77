"""Calls of compiled code hold operators and are none: Dynamo marks them among the operators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.analyses.rooflines import modelled_work
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace


def _event(category: str, name: str, start: int, end: int, tid: int = 1, **args: object) -> dict[str, object]:
    where = {"pid": 1, "tid": tid}
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": end - start, **where, "args": args}


def _trace(folder: Path) -> Trace:
    events = [
        _event("cpu_op", "Torch-Compiled Region: 0/0", 0, 100),
        _event("user_annotation", "## Call CompiledFxGraph f0 ##", 5, 95),
        _event("cpu_op", "aten::mm", 10, 30),
        _event("cuda_runtime", "cudaLaunchKernel", 12, 14, correlation=1),
        _event("cpu_op", "triton_poi_fused_add_0", 40, 60),
        _event("cuda_runtime", "cuLaunchKernel", 42, 44, correlation=2),
        _event("kernel", "gemm", 20, 50, 7, device=0, stream=7, correlation=1),
        _event("kernel", "triton_poi_fused_add_0", 60, 70, 7, device=0, stream=7, correlation=2),
    ]
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return convert([path], Options())


def test_a_compiled_region_is_a_range_of_the_application(tmp_path: Path) -> None:
    spans = _trace(tmp_path).frame("spans").with_columns(pl.col("level", "kind", "name").cast(pl.String))
    regions = spans.filter(pl.col("name").str.contains("Compiled"))
    assert set(regions["level"]) == {"application"}
    assert set(regions["kind"]) == {"range"}


def test_work_in_it_stands_with_its_own_operators(tmp_path: Path) -> None:
    table = run(modelled_work, StepView.of(_trace(tmp_path))).table
    assert dict(table.select("operator", "device_sum_ns").iter_rows()) == {
        "aten::mm": 30_000,
        "triton_poi_fused_add_0": 10_000,
    }


def test_layers_are_the_operators_in_it(tmp_path: Path) -> None:
    layers = _trace(tmp_path).frame("layers").filter(pl.col("layer_index").is_not_null())
    assert layers["layer_name"].cast(pl.String).to_list() == ["aten::mm", "triton_poi_fused_add_0"]
