"""Logs of PyTorch's compiler: kernels, their modules by parameters' paths, and source lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from xsp_ingest.convert import convert
from xsp_ingest.formats.compiled_code import TORCH_TRACE_LOG
from xsp_ingest.formats.compiled_code.graph_text import modules_of_nodes, nodes_with_work
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

_TRACED = """class GraphModule(torch.nn.Module):
    def forward(self, L_self_modules_a_modules_0_parameters_weight_: "f32[4]", L_x_: "f32[4]"):
        l_self_modules_a_modules_0_parameters_weight_ = L_self_modules_a_modules_0_parameters_weight_
        l_x_ = L_x_

        # File: /home/someone/net.py:3 in forward, code: return self.a(x)
        input_1: "f32[4]" = torch._C._nn.linear(l_x_, l_self_modules_a_modules_0_parameters_weight_);  l_x_ = None
        input_2: "f32[4]" = torch.nn.functional.gelu(input_1);  input_1 = None
        input_3: "f32[4]" = torch._C._nn.linear(input_2, l_self_modules_a_modules_2_parameters_weight_)

        # File: /home/someone/net.py:4 in forward, code: return y + x
        add: "f32[4]" = input_3 + l_x_
"""
_LOWERED = """class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: "f32[4]"):
        # File: /home/someone/net.py:3 in forward, code: return self.a(x)
        mm: "f32[4]" = torch.ops.aten.mm.default(arg0_1, arg1_1)
        view: "f32[4]" = torch.ops.aten.reshape.default(mm, [4]);  mm = None
        erf: "f32[4]" = torch.ops.aten.erf.default(view)
        mm_1: "f32[4]" = torch.ops.aten.mm.default(erf, arg2_1)
        add_1: "f32[4]" = torch.ops.aten.add.Tensor(mm_1, arg0_1)
"""
_CODE = """# AOT ID: ['0_inference']
        # [Provenance debug handles] extern_kernels.mm:1
        # [Provenance debug handles] cpp_fused_gelu_view_0:2
        # [Provenance debug handles] extern_kernels.mm:3
        # [Provenance debug handles] cpp_fused_add_1:4
"""
_MAPPINGS = {
    "cppCodeToPost": {
        "extern_kernels.mm:1": ["mm"],
        "cpp_fused_gelu_view_0:2": ["view", "erf"],
        "extern_kernels.mm:3": ["mm_1"],
        "cpp_fused_add_1:4": ["add_1"],
    },
    "postToPre": {"mm": ["input_1"], "view": ["input_1"], "erf": ["input_2"], "mm_1": ["input_3"], "add_1": ["add"]},
}
_STACKS = {"extern_kernels.mm:1": ['  File "/home/someone/net.py", line 3, in forward\n    return self.a(x)\n']}


def _record(payload: str, **header: object) -> str:
    text = json.dumps({**header, "frame_id": 0, "frame_compile_id": 0, "has_payload": "0"})
    indented = "".join(f"\t{line}\n" for line in payload.splitlines())
    return f"V1122 21:55:28.924000 22030 torch/_inductor/compile_fx.py:1149] {text}\n{indented}"


def _log(**changes: str) -> str:
    parts = {
        "dynamo_output_graph": _TRACED,
        "inductor_post_grad_graph": _LOWERED,
        "inductor_output_code": _CODE,
        "inductor_provenance_tracking_node_mappings": json.dumps(_MAPPINGS),
        "inductor_provenance_tracking_kernel_stack_traces": json.dumps(_STACKS),
        "fx_graph_cache_miss": '{"cache_state": "miss", "key": "fabc", "components": ["[x] y"]}',
        **changes,
    }
    own = ("dynamo_output_graph", "inductor_output_code")
    return _record("", str={"0": "net.py"}) + "".join(
        _record(text, **({name: {}} if name in own else {"artifact": {"name": name}})) for name, text in parts.items()
    )


def _event(name: str, start: float, length: float, cat: str = "cpu_op") -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "pid": 7, "tid": 7, "ts": start, "dur": length, "name": name}


def _paths(folder: Path, log: str) -> list[Path]:
    region = _event("## Call CompiledFxGraph fabc ##", 0, 100, "user_annotation")
    names = ("aten::mm", "graph_0_cpp_fused_gelu_view_0", "aten::mm", "graph_0_cpp_fused_add_1")
    events = [region, *(_event(name, 10 * n + 5, 8) for n, name in enumerate(names))]
    trace, record = folder / "trace.json", folder / "dedicated_log_torch_trace_x.log"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    record.write_text(log, encoding="utf-8")
    return [trace, record]


def test_kernels_are_of_the_modules_whose_parameters_their_nodes_read(tmp_path: Path) -> None:
    trace = convert(_paths(tmp_path, _log()), Options())
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
        convert(_paths(tmp_path, _log(inductor_output_code="# AOT ID: ['0_inference']")), Options())
    assert "INDUCTOR_PROVENANCE=1" in str(error.value.advice)


@pytest.mark.parametrize("damage", ["[[[", "[1, 2]", '{"cppCodeToPost": 3}', '{"cppCodeToPost": {"a": [1]}}'])
def test_a_damaged_mapping_leaves_the_order_of_kernels(tmp_path: Path, damage: str) -> None:
    log = _log(inductor_provenance_tracking_node_mappings=damage)
    trace = convert(_paths(tmp_path, log), Options())
    assert trace.frame("attributions").height == 0
    assert trace.frame("compiled_kernels").height == 4


def test_alone_it_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="but not when they ran"):
        TORCH_TRACE_LOG.read(_paths(tmp_path, _log())[1], Options())


def test_modules_of_nodes_are_those_of_their_parameters() -> None:
    assert modules_of_nodes(_TRACED) == {"input_1": "a.0", "input_2": "a", "input_3": "a.2"}


def test_views_are_no_work() -> None:
    assert nodes_with_work(_LOWERED) == {"mm": "mm", "erf": "erf", "mm_1": "mm", "add_1": "add"}
