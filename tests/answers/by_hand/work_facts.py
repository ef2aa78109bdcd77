"""Facts on modelled work: what a call had to do, from the shapes and scalars in the file, counted one by one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__: list[str] = []

_BYTES = {"c10::BFloat16": 2, "float": 4, "int": 4, "long int": 8, "bool": 1, "unsigned char": 1}


def _call(path: Path, name: str) -> dict[str, Any]:
    """What the profiler wrote of the first call of this name."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    args: dict[str, Any] = next(one["args"] for one in events if one["name"] == name)
    return args


def _sizes(call: dict[str, Any]) -> list[int]:
    """Bytes of each input."""
    out = []
    for shape, kind in zip(call["Input Dims"], call["Input type"], strict=True):
        size = _BYTES.get(kind, 0)
        for each in shape:
            size *= each
        out.append(size)
    return out


def experts_hit(experts: int, per_token: int, tokens: int) -> float:
    """How many experts are expected to be hit: of a token's own, each is new as often as others were not hit yet."""
    hit = 0.0
    for _ in range(tokens):
        hit += per_token * (1 - hit / experts)
    return hit


def bytes_of_experts(path: Path) -> float:
    """Of a block of experts: tokens in and out, which experts they chose, and the weights of those hit."""
    call = _call(path, "vllm::inplace_fused_experts")
    tokens, up, down, _, chosen = _sizes(call)
    experts, per_token = int(call["Input Dims"][1][0]), int(call["Input Dims"][4][1])
    hit = experts_hit(experts, per_token, call["Input Dims"][0][0])
    return 2 * tokens + chosen + (up + down) / experts * hit


def flop_of_extend_attention(path: Path) -> int:
    """Of requests as long as the longest: two products with each key up to a token's own, for each head."""
    call = _call(path, "aiter::mha_batch_prefill")
    _, heads, size = call["Input Dims"][0]
    requests, length = call["Input Dims"][3][0] - 1, int(call["Concrete Inputs"][6])
    flop = 0
    for _ in range(requests):
        for token in range(length):
            flop += 2 * 2 * size * heads * (token + 1)
    return flop


def work_of_triton_kernel(path: Path) -> list[int]:
    """Of a pointwise kernel whose last scalar is how many elements it has: operations, and bytes of its operands."""
    call = _call(path, "triton_poi_fused_add_bitwise_and_0")
    elements = int(call["Concrete Inputs"][-1])
    return [elements, sum(_BYTES.get(kind, 0) * elements for kind in call["Input type"])]
