"""What rocprofv3 says of processors, in JSON and in its database: the GPUs, numbered as HIP numbers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.formats.rocprofv3.columns import DEVICE, column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from xsp_ingest.formats.rocprofv3.document import Agent

__all__ = ["devices", "gpus"]

_GPU = 2
_DEVICE_HEAPS = {1, 2}  # frame buffer, public and private
_HZ_PER_MHZ = 1_000_000


def gpus(agents: Iterable[Agent]) -> list[Agent]:
    """The GPUs in the order of their nodes, as HIP numbers them from 0."""
    return sorted((agent for agent in agents if agent.type == _GPU), key=lambda a: (a.node_id, a.id.handle))


def devices(numbered: Mapping[int, Agent], process: int | None) -> pl.DataFrame:
    """One row a GPU, by its number."""
    agents = list(numbered.values())
    memory = [sum(b.size_in_bytes for b in a.mem_banks if b.heap_type in _DEVICE_HEAPS) or None for a in agents]
    clocks = [a.max_engine_clk_fcompute and a.max_engine_clk_fcompute * _HZ_PER_MHZ for a in agents]
    return pl.DataFrame(
        {
            "device_id": column("device_id", list(numbered)),
            "process_id": column("process_id", [process] * len(agents)),
            "name": pl.Series("name", [a.product_name or a.name or None for a in agents], dtype=pl.String),
            "multiprocessor_count": column("multiprocessor_count", [a.cu_count for a in agents]),
            "clock_hz": column("clock_hz", [clock or None for clock in clocks]),
            "memory_bytes": column("memory_bytes", memory),
        },
        schema=dict(DEVICE),
    )
