"""nvprof's metrics and what they are in the model's vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.counters.formula import Formula, same

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DESCRIPTIONS", "NVPROF"]

_SECTOR_BYTES = 32  # of one transaction with device memory or L2


def _transactions(*names: str) -> Formula:
    return Formula(dict.fromkeys(names, _SECTOR_BYTES))


NVPROF: Mapping[str, Sequence[Formula]] = {
    **{
        name: (same(name),)
        for name in (
            "flop_count_sp",
            "flop_count_hp",
            "flop_count_dp",
            "achieved_occupancy",
            "sm_efficiency",
            "ipc",
            "dram_utilization",
            "l2_utilization",
            "flop_sp_efficiency",
            "flop_hp_efficiency",
            "flop_dp_efficiency",
            "invocations",
        )
    },
    "dram_read_bytes": (same("dram_read_bytes"), _transactions("dram_read_transactions")),
    "dram_write_bytes": (same("dram_write_bytes"), _transactions("dram_write_transactions")),
    "l2_bytes": (_transactions("l2_read_transactions", "l2_write_transactions"),),
    "l2_hit_rate": (same("l2_tex_hit_rate"),),
    "l1_hit_rate": (same("tex_cache_hit_rate"),),
    "l1_utilization": (same("tex_utilization"),),
    "warp_instruction_count": (same("inst_executed"),),
    "nvlink_receive_bytes": (same("nvlink_total_data_received"),),
    "nvlink_transmit_bytes": (same("nvlink_total_data_transmitted"),),
}
"""Each canonical counter's formulas, the best first."""

DESCRIPTIONS: Mapping[str, str] = {
    # what tables of single launches may have as headings: the metric's name
    "Multiprocessor Activity": "sm_efficiency",
    "Achieved Occupancy": "achieved_occupancy",
    "Executed IPC": "ipc",
    "Device Memory Read Transactions": "dram_read_transactions",
    "Device Memory Write Transactions": "dram_write_transactions",
    "Device Memory Utilization": "dram_utilization",
    "L2 Cache Utilization": "l2_utilization",
    "Unified Cache Utilization": "tex_utilization",
    "Unified Cache Hit Rate": "tex_cache_hit_rate",
    "L2 Read Transactions": "l2_read_transactions",
    "L2 Write Transactions": "l2_write_transactions",
    "Floating Point Operations(Single Precision)": "flop_count_sp",
    "Floating Point Operations(Half Precision)": "flop_count_hp",
    "Floating Point Operations(Double Precision)": "flop_count_dp",
    "FLOP Efficiency(Peak Single)": "flop_sp_efficiency",
    "FLOP Efficiency(Peak Half)": "flop_hp_efficiency",
    "FLOP Efficiency(Peak Double)": "flop_dp_efficiency",
    "Instructions Executed": "inst_executed",
}
