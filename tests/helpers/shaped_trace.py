"""A step of three kinds of operators with shapes and no counters, put together by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.helpers.hand import Hand

if TYPE_CHECKING:
    from xsp_model import Trace

__all__ = ["shaped"]


def shaped(
    *, peak: float | None = 1e12, bandwidth: float | None = 1e11, name: str | None = "Card", dtype: str = "float"
) -> Trace:
    """Two products of 100 x 200 and 200 x 300 (24 us each), a ReLU of 50,000 (16 us), a custom operator (4 us).

    All in FP32 (another `dtype` has the same peak), in a step of 100 us. A product is 12 Mflop and 440,000 bytes: 27.3
    flop/byte, 12 us at 1 TFLOP/s; the ReLU moves 400,000 bytes: 4 us at 100 GB/s. The custom operator has no model.
    """
    hand = Hand()
    hand.run(0, batch_size=8)
    hand.step(1, 0, 100_000)
    linear = hand.module("Linear_0", 10, 3_000, 0, step=1)
    relu = hand.module("ReLU_0", 4_000, 3_000, 1, step=1)
    _call(hand, "aten::mm", linear, 20, [[100, 200], [200, 300]], 10_000, 24_000, dtype)
    _call(hand, "aten::mm", linear, 1_020, [[100, 200], [200, 300]], 34_000, 24_000, dtype)
    _call(hand, "aten::relu", relu, 4_020, [[1000, 50]], 58_000, 16_000, dtype)
    _call(hand, "my::op", relu, 5_020, [[1000, 50]], 74_000, 4_000, dtype)
    rates = {"fp32_flop_per_s": peak, "dram_byte_per_s": bandwidth}
    described_by = {"peak_source": "its data sheet", **rates} if peak else {}
    hand.extra["devices"].append({"run_id": 0, "device_id": 0, "name": name, **described_by})
    if peak and dtype == "c10::BFloat16":
        rate = {"quantity": "bf16_tensor", "value": peak, "unit": "1", "source": "its data sheet"}
        hand.extra["peaks"] = [{"run_id": 0, "device_id": 0, **rate}]
    return hand.build()


def _call(
    hand: Hand, name: str, layer: int, start: int, shapes: list[list[int]], at: int, duration: int, dtype: str
) -> None:
    call = hand.span("operator", "operator", name, start, 500, parent_id=layer, layer_id=layer, step=1)
    dtypes = ", ".join(f'"{dtype}"' for _ in shapes)
    described = {"input_shapes": str(shapes), "input_dtypes": f"[{dtypes}]"}
    hand.extra.setdefault("operators", []).append({"span_id": call, **described})
    of: dict[str, Any] = {"parent": call, "layer": layer, "phase": "forward", "step": 1}
    hand.work(f"kernel of {name}", at, duration, launch=start + 10, **of)
