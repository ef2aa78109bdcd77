"""Traces built by hand of kernels whose launch configuration matters."""

from __future__ import annotations

from typing import Any

from tests.helpers.hand import Hand

__all__ = ["Launched"]


class Launched(Hand):
    """Kernels one after the other, each with its grid, block, registers and shared memory, on a V100 with 80 SMs."""

    def __init__(self, **device: Any) -> None:  # noqa: ANN401 (columns of the table, whatever they are)
        super().__init__()
        self.run(0)
        facts = {"name": "Tesla V100-SXM2-16GB", "multiprocessor_count": 80, "compute_capability": "7.0"}
        self.device(0, **(facts | device))
        self.at = 0

    def device(self, number: int, **facts: Any) -> None:  # noqa: ANN401
        self.extra["devices"].append({"run_id": 0, "device_id": number, **facts})

    def kernel(
        self,
        name: str,
        duration: int,
        grid: tuple[int | None, int | None, int | None] | None,
        *,
        block: tuple[int, int, int] = (256, 1, 1),
        registers: int | None = 32,
        shared: int | None = 0,
        **columns: Any,  # noqa: ANN401
    ) -> int:
        """The kernel begins where the one before it ended."""
        span_id = self.work(name, self.at, duration, **columns)
        self.at += duration
        axes = dict(zip(("grid_x", "grid_y", "grid_z"), grid or (None,) * 3, strict=True))
        axes |= dict(zip(("block_x", "block_y", "block_z"), block, strict=True))
        sizes = {"registers_per_thread": registers, "shared_bytes": shared}
        self.rows["kernels"].append({"span_id": span_id, **axes, **sizes})
        return span_id
