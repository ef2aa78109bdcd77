"""Logs of PyTorch's compiler: kernels, their modules by parameters' paths, and source lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.compiler_log import LOWERED, TRACED, compiler_log, trace_of_a_call
from xsp_ingest.convert import convert
from xsp_ingest.formats.compiled_code.log import TORCH_TRACE_LOG
from xsp_ingest.formats.compiled_code.log.artifacts import modules_of_nodes, nodes_with_work
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path


def _paths(folder: Path, log: str) -> list[Path]:
    trace, record = folder / "trace.json", folder / "dedicated_log_torch_trace_x.log"
    trace.write_bytes(trace_of_a_call())
    record.write_text(log, encoding="utf-8")
    return [trace, record]


def test_kernels_are_of_the_modules_whose_parameters_their_nodes_read(tmp_path: Path) -> None:
    trace = convert(_paths(tmp_path, compiler_log()), Options())
    names = trace.frame("spans").select("span_id", pl.col("name").cast(pl.String))
    layers = names.select(layer_id="span_id", layer="name")
    shares = trace.frame("attributions").join(names, on="span_id").join(layers, on="layer_id").sort("span_id")
    assert shares.select("name", "layer", "weight").rows() == [
        ("aten::mm", "a.0", 1.0),
        ("graph_0_cpp_fused_gelu_view_0", "a", 1.0),  # between a.0 and a.2 in one line; its view is no work
        ("aten::mm", "a.2", 1.0),
    ]
    kernels = trace.frame("compiled_kernels").select(pl.col("kernel_name", "operators", "sources").cast(pl.String))
    assert kernels.rows() == [
        ("extern_kernels.mm", "aten::mm", "net.py:3"),
        ("cpp_fused_gelu_view_0", "aten::erf", None),
        ("extern_kernels.mm", "aten::mm", None),
        ("cpp_fused_add_1", "aten::add", None),
    ]


def test_a_log_without_provenance_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="does not say what compiled kernels were made of") as error:
        convert(_paths(tmp_path, compiler_log(inductor_output_code="# AOT ID: ['0_inference']")), Options())
    assert "INDUCTOR_PROVENANCE=1" in str(error.value.advice)


@pytest.mark.parametrize("damage", ["[[[", "[1, 2]", '{"cppCodeToPost": 3}', '{"cppCodeToPost": {"a": [1]}}'])
def test_a_damaged_mapping_leaves_the_order_of_kernels(tmp_path: Path, damage: str) -> None:
    log = compiler_log(inductor_provenance_tracking_node_mappings=damage)
    trace = convert(_paths(tmp_path, log), Options())
    assert trace.frame("attributions").height == 0
    assert trace.frame("compiled_kernels").height == 4


def test_alone_it_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="but not when they ran"):
        TORCH_TRACE_LOG.read(_paths(tmp_path, compiler_log())[1], Options())


def test_modules_of_nodes_are_those_of_their_parameters() -> None:
    assert modules_of_nodes(TRACED) == {"input_1": "a.0", "input_2": "a", "input_3": "a.2"}


def test_views_are_no_work() -> None:
    assert nodes_with_work(LOWERED) == {"mm": "mm", "erf": "erf", "mm_1": "mm", "add_1": "add"}
