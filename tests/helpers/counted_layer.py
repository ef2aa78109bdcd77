"""A layer whose kernels have counters, put together by hand."""

from __future__ import annotations

from typing import Any

from tests.helpers.hand import Hand

__all__ = ["mixed"]


def mixed(*, peaks: dict[str, float] | None = None) -> Hand:
    """A layer of two kernels: `mma` does tensor work beside a little FP32, `copy_kernel` no flop at all."""
    hand = Hand()
    hand.run(0, batch_size=8)
    hand.step(1, 0, 1000)
    layer = hand.module("Linear_0", 0, 1000, 0, step=1)
    here: dict[str, Any] = {"layer": layer, "parent": layer, "phase": "forward", "grid": 1, "step": 1}
    mma = hand.work("mma", 100, 400, launch=5, **here)
    copy = hand.work("copy_kernel", 600, 100, launch=50, **here)
    for span, tensor, single, read, write in ((mma, 8e6, 4e4, 3000.0, 1000.0), (copy, 0.0, 0.0, 500.0, 500.0)):
        hand.metric(span, "flop_count_tensor_bf16", tensor)
        hand.metric(span, "flop_count_sp", single)
        hand.metric(span, "flop_count_dp", 0.0)
        hand.metric(span, "dram_read_bytes", read)
        hand.metric(span, "dram_write_bytes", write)
    values = {"bf16_tensor": 4e13, "fp32": 1e12, "dram": 2e10} if peaks is None else peaks
    both = {"fp32_flop_per_s": values.get("fp32"), "dram_byte_per_s": values.get("dram")}
    hand.extra["devices"].append({"run_id": 0, "device_id": 0, "name": "Card", **both})
    hand.extra["peaks"] = [
        {"run_id": 0, "device_id": 0, "quantity": name, "value": value, "unit": "1", "source": "its data sheet"}
        for name, value in values.items()
    ]
    return hand
