"""A server's trace of 30 steps: it fills up with requests, serves 32 of them for a while, and drains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace

__all__ = ["BATCHES", "US", "Batch", "served", "serving_trace"]

US = 1_000
GAP_US = 2_000  # between steps the host schedules

Batch = tuple[int, int, int, int]  # requests in their prompt, tokens of prompts, requests past it, latency in us

_FULL: Batch = (0, 0, 32, 10_000)
_ONE_REPLACED: Batch = (1, 1_000, 31, 15_000)

BATCHES: Sequence[Batch] = (
    (8, 8_000, 0, 40_000),
    (8, 8_000, 8, 42_000),
    (8, 8_000, 16, 44_000),
    (8, 8_000, 24, 46_000),
    *(_FULL,) * 8,
    _ONE_REPLACED,
    *(_FULL,) * 5,
    _ONE_REPLACED,
    *(_FULL,) * 5,
    (0, 0, 24, 9_000),
    (0, 0, 16, 8_000),
    (0, 0, 12, 7_000),
    (0, 0, 8, 6_000),
    (0, 0, 4, 5_500),
    (0, 0, 1, 5_000),
)
"""4 of ramp-up, 20 of the steady state, two of them mixed, 6 of drain."""


def served(batches: Sequence[Batch] = BATCHES) -> KinetoTrace:
    """The steps as vLLM names them, 2 ms apart. In each the device works but for the first 1 ms and the last 0.5 ms.

    Of its work 40 % are Attention_0's, in a kernel by phase, and the rest MLP_0's.
    """
    kineto = KinetoTrace(schemaVersion=1, deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3"}])
    start = 1_000
    for batch in batches:
        _step(kineto, batch, start)
        start += batch[3] + GAP_US
    return kineto


def _step(kineto: KinetoTrace, batch: Batch, start: int) -> None:
    prefill, tokens, decode, latency = batch
    work = latency - 1_500
    attention = work * 2 // 5
    begin = start + 1_000

    def at(after: int) -> int:
        return (start + after) * US

    kineto.annotation(f"execute_context_{prefill}({tokens})_generation_{decode}({decode})", at(0), latency * US)
    kineto.module("Decoder_0", at(100), 800 * US)
    kineto.module("Attention_0", at(200), 400 * US)
    kineto.operator("vllm::unified_attention", at(300), 290 * US, shapes=[[tokens + decode, 4096]])
    kineto.launch(_attention_of(batch), at(500), begin * US, attention * US)
    kineto.module("MLP_0", at(650), 240 * US)
    kineto.operator("aten::mm", at(660), 220 * US, shapes=[[tokens + decode, 4096], [4096, 14336]])
    kineto.launch("nvjet_tst_128x256_64x4", at(800), (begin + attention) * US, (work - attention) * US)
    kineto.runtime("cudaStreamSynchronize", at(910), (latency - 1_410) * US)


def _attention_of(batch: Batch) -> str:
    prefill, _, decode, _ = batch
    return "paged_attention_decode" if not prefill else "flash_attention_mixed" if decode else "flash_attention_prefill"


def serving_trace(folder: Path, batches: Sequence[Batch] = BATCHES) -> Trace:
    """The linked trace of them."""
    return convert([served(batches).write(folder / "server.json")], Options())
