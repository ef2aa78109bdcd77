"""A log as PyTorch's compiler writes it under TORCH_TRACE, of a small graph, and the trace of a call of it."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["LOWERED", "TRACED", "compiler_log", "trace_of_a_call"]

TRACED = """class GraphModule(torch.nn.Module):
    def forward(self, L_self_modules_a_modules_0_parameters_weight_: "f32[4]", L_x_: "f32[4]"):
        l_self_modules_a_modules_0_parameters_weight_ = L_self_modules_a_modules_0_parameters_weight_
        l_x_ = L_x_

        # File: /src/net.py:3 in forward, code: return self.a(x)
        input_1: "f32[4]" = torch._C._nn.linear(l_x_, l_self_modules_a_modules_0_parameters_weight_);  l_x_ = None
        input_2: "f32[4]" = torch.nn.functional.gelu(input_1);  input_1 = None
        input_3: "f32[4]" = torch._C._nn.linear(input_2, l_self_modules_a_modules_2_parameters_weight_)

        # File: /src/net.py:4 in forward, code: return y + x
        add: "f32[4]" = input_3 + l_x_
"""
LOWERED = """class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: "f32[4]"):
        # File: /src/net.py:3 in forward, code: return self.a(x)
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
_STACKS = {"extern_kernels.mm:1": ['  File "/src/net.py", line 3, in forward\n    return self.a(x)\n']}


def _record(payload: str, **header: object) -> str:
    text = json.dumps({**header, "frame_id": 0, "frame_compile_id": 0, "has_payload": "0"})
    indented = "".join(f"\t{line}\n" for line in payload.splitlines())
    return f"V1122 21:55:28.924000 22030 torch/_inductor/compile_fx.py:1149] {text}\n{indented}"


def compiler_log(**changes: str) -> str:
    """The log; `changes` are payloads by the names of artifacts."""
    parts = {
        "dynamo_output_graph": TRACED,
        "inductor_post_grad_graph": LOWERED,
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


def trace_of_a_call() -> bytes:
    """A torch.profiler trace in which the graph is called once."""
    region = _event("## Call CompiledFxGraph fabc ##", 0, 100, "user_annotation")
    names = ("aten::mm", "graph_0_cpp_fused_gelu_view_0", "aten::mm", "graph_0_cpp_fused_add_1")
    events = [region, *(_event(name, 10 * n + 5, 8) for n, name in enumerate(names))]
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
