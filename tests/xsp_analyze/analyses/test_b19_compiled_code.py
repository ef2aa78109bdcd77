"""B19 on traces worked out by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from xsp_model import Trace


def _event(name: str, start: float, length: float, cat: str = "cpu_op", **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "pid": 7, "tid": 7, "ts": start, "dur": length, "name": name, "args": args}


def _trace(folder: Path, *events: dict[str, Any], code: dict[str, Any] | None = None) -> Trace:
    path, record = folder / "trace.json", folder / "compiled_code.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    if code is None:
        return convert([path], Options())
    record.write_text(json.dumps({"schema": "xsp compiled code", "version": 1, **code}), encoding="utf-8")
    return convert([path, record], Options())


def _table(trace: Trace, steps: str, *columns: str) -> list[tuple[Any, ...]]:
    table: pl.DataFrame = run(find("B19"), StepView.of(trace, steps)).table
    return table.select(columns).rows()


def _two_steps() -> list[dict[str, Any]]:
    """In each step a graph is called twice, and has two kernels."""
    events = []
    for step in range(2):
        at = 1000 * step
        events += [_event(f"ProfilerStep#{step}", at, 900, "user_annotation")]
        for call in range(2):
            begun = at + 10 + 100 * call
            events += [
                _event("## Call CompiledFxGraph abc ##", begun, 90, "user_annotation"),
                _event("aten::mm", begun + 5, 20 + step),
                _event("graph_0_cpp_fused_gelu_view_0", begun + 40, 8),
            ]
    return events


_CODE = {
    "modules": [
        {"name": "Linear_0", "class": "Linear", "path": "Net_0.Linear_0"},
        {"name": "GELU_0", "class": "GELU", "path": "Net_0.GELU_0"},
    ],
    "graphs": [
        {
            "region": "abc",
            "graph_id": 0,
            "direction": "forward",
            "kernels": [
                {"name": "extern_kernels.mm", "operators": ["aten::mm"], "modules": [{"module": 0, "weight": 1.0}]},
                {
                    "name": "cpp_fused_gelu_view_0",
                    "operators": ["aten::gelu"],
                    "sources": ["net.py:3"],
                    "modules": [{"module": 0, "weight": 0.25}, {"module": 1, "weight": 0.75}],
                },
            ],
        }
    ],
}


def test_a_row_is_a_kernel_of_a_call_of_a_graph_in_a_step(tmp_path: Path) -> None:
    trace = _trace(tmp_path, *_two_steps(), code=_CODE)
    columns = ("region", "region_call", "position", "kernel_name", "operators", "sources", "layers", "call_count")
    gelu = ("cpp_fused_gelu_view_0", "aten::gelu", "net.py:3", "GELU_0 0.75, Linear_0 0.25", 2)
    product = ("extern_kernels.mm", "aten::mm", None, "Linear_0", 2)
    assert _table(trace, "all", *columns) == [
        (0, 0, 0, *product),
        (0, 0, 1, *gelu),
        (0, 1, 0, *product),
        (0, 1, 1, *gelu),
    ]
    assert _table(trace, "all", "host_ns", "device_sum_ns")[:2] == [(41_000, None), (16_000, None)]
    assert _table(trace, "mean", "call_count", "host_ns")[:2] == [(1.0, 20_500.0), (1.0, 8_000.0)]


def test_without_a_record_names_give_the_operators_and_no_layer(tmp_path: Path) -> None:
    trace = _trace(tmp_path, *_two_steps())
    assert _table(trace, "all", "region_hash", "position", "kernel_name", "operators", "layers", "direction")[0] == (
        "abc",
        0,
        "cpp_fused_gelu_view_0",
        "aten::gelu, aten::view",
        None,
        None,
    )


def test_device_time_is_that_of_what_a_call_launched(tmp_path: Path) -> None:
    name = "triton_poi_fused_add_0"
    kernel = _event(name, 300, 50, "kernel", correlation=9, device=0, stream=7)
    trace = _trace(
        tmp_path,
        _event("## Call CompiledFxGraph abc ##", 0, 90, "user_annotation"),
        _event(name, 10, 8),
        _event("cudaLaunchKernel", 12, 2, "cuda_runtime", correlation=9),
        {**kernel, "tid": 70, "pid": 0},
    )
    columns = ("kernel_name", "operators", "call_count", "host_ns", "device_sum_ns")
    assert _table(trace, "all", *columns) == [(name, "aten::add", 1, 8_000, 50_000)]


def test_a_kernel_outside_of_all_graphs_is_listed_without_one(tmp_path: Path) -> None:
    trace = _trace(tmp_path, _event("graph_0_cpp_fused_add_0", 0, 9), _event("aten::mm", 10, 5))
    assert _table(trace, "all", "region", "region_call", "position", "kernel_name", "host_ns") == [
        (None, None, 0, "cpp_fused_add_0", 9_000)
    ]


def test_a_trace_without_compiled_code_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="kernels that a compiler generated"):
        _table(_trace(tmp_path, _event("aten::mm", 10, 5)), "all", "kernel_name")
