"""What Nsight Compute's details page calls its counters, where label and counter are the same quantity."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["counter_of"]

_PCT = "avg.pct_of_peak_sustained_elapsed"
_MEMORY = f"gpu__compute_memory_throughput.{_PCT}"
_DRAM = f"gpu__dram_throughput.{_PCT}"
_SM = f"sm__throughput.{_PCT}"
_L2 = f"lts__throughput.{_PCT}"
_L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
_DRAM_RATE = "dram__bytes.sum.per_second"
_SM_CLOCK = "gpc__cycles_elapsed.avg.per_second"
_DRAM_CLOCK = "dram__cycles_elapsed.avg.per_second"
_DYNAMIC, _STATIC = "launch__shared_mem_per_block_dynamic", "launch__shared_mem_per_block_static"

_ANY = ""
_LABELS: Mapping[tuple[str, str], str] = {
    # (label, base unit or any): the counter. One label may stand for two quantities, told apart by their units.
    ("Duration", "ns"): "gpu__time_duration.sum",
    ("Elapsed Cycles", _ANY): "gpc__cycles_elapsed.max",
    ("SM Active Cycles", _ANY): "sm__cycles_active.avg",
    ("SM Frequency", "Hz"): _SM_CLOCK,
    ("DRAM Frequency", "Hz"): _DRAM_CLOCK,
    ("Memory Frequency", "Hz"): _DRAM_CLOCK,  # until 2020
    ("Memory Throughput", "1"): _MEMORY,
    ("Memory Throughput", "byte/s"): _DRAM_RATE,
    ("Memory [%]", "1"): _MEMORY,
    ("SOL Memory", "1"): _MEMORY,
    ("DRAM Throughput", "1"): _DRAM,
    ("DRAM Throughput", "byte/s"): _DRAM_RATE,
    ("SOL DRAM", "1"): _DRAM,
    ("SOL FB", "1"): _DRAM,
    ("Compute (SM) Throughput", "1"): _SM,
    ("Compute (SM) [%]", "1"): _SM,
    ("SM [%]", "1"): _SM,
    ("SOL SM", "1"): _SM,
    ("L1/TEX Cache Throughput", "1"): _L1,
    ("SOL L1/TEX Cache", "1"): _L1,
    ("L2 Cache Throughput", "1"): _L2,
    ("SOL L2 Cache", "1"): _L2,
    ("L1/TEX Hit Rate", "1"): "l1tex__t_sector_hit_rate.pct",
    ("L2 Hit Rate", "1"): "lts__t_sector_hit_rate.pct",
    ("Achieved Occupancy", "1"): "sm__warps_active.avg.pct_of_peak_sustained_active",
    ("Theoretical Occupancy", "1"): "sm__maximum_warps_per_active_cycle_pct",
    ("Achieved Active Warps Per SM", _ANY): "sm__warps_active.avg.per_cycle_active",
    ("Theoretical Active Warps per SM", _ANY): "sm__maximum_warps_avg_per_active_cycle",
    ("Executed Ipc Active", _ANY): "sm__inst_executed.avg.per_cycle_active",
    ("Executed Ipc Elapsed", _ANY): "sm__inst_executed.avg.per_cycle_elapsed",
    ("Issued Ipc Active", _ANY): "sm__inst_issued.avg.per_cycle_active",
    ("Executed Instructions", _ANY): "smsp__inst_executed.sum",
    ("Issued Instructions", _ANY): "smsp__inst_issued.sum",
    ("Registers Per Thread", _ANY): "launch__registers_per_thread",
    ("Dynamic Shared Memory Per Block", _ANY): _DYNAMIC,
    ("Static Shared Memory Per Block", _ANY): _STATIC,
    ("Waves Per SM", _ANY): "launch__waves_per_multiprocessor",
    ("Block Size", _ANY): "launch__block_size",
    ("Grid Size", _ANY): "launch__grid_size",
    ("Threads", _ANY): "launch__thread_count",
    ("Driver Shared Memory Per Block", _ANY): "launch__shared_mem_per_block_driver",
    ("Shared Memory Configuration Size", _ANY): "launch__shared_mem_config_size",
    ("Block Limit SM", _ANY): "launch__occupancy_limit_blocks",
    ("Block Limit Registers", _ANY): "launch__occupancy_limit_registers",
    ("Block Limit Shared Mem", _ANY): "launch__occupancy_limit_shared_mem",
    ("Block Limit Warps", _ANY): "launch__occupancy_limit_warps",
    # what the summary table of the user interface exports
    ("Compute Throughput", "1"): _SM,
    ("# Registers", _ANY): "launch__registers_per_thread",
}

_NAME = re.compile(r"(?:^|\s)\(?([a-z][a-z0-9]*__[A-Za-z0-9_.]+)\)?$")


def counter_of(label: str, base_unit: str) -> str:
    """The counter's own name; a label that stands for no one counter stays as it is.

    With `--print-metric-name label-name` the page prints the label and the name; then the name counts.
    """
    if match := _NAME.search(label):
        return match[1]
    return _LABELS.get((label, base_unit)) or _LABELS.get((label, _ANY)) or label
