"""Nsight Compute's counters (PerfWorks names, also CUPTI's) and what they are in the model's vocabulary."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xsp_ingest.counters.formula import Formula, same
from xsp_ingest.counters.tensor import tensor_formulas
from xsp_ingest.counters.units import Unit, base_unit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["CHIPS", "NCU", "PACKED", "PER_CYCLE", "flop_terms", "ncu_table", "unit_of"]

_VOLTA = ("GV100",)
_TURING = ("TU102", "TU104", "TU106", "TU116", "TU117")
_AMPERE = ("GA100", "GA102", "GA103", "GA104", "GA106", "GA107")
_ADA = ("AD102", "AD103", "AD104", "AD106", "AD107")
_HOPPER = ("GH100",)
_BLACKWELL = ("GB100", "GB102", "GB110", "GB112")  # data centre: B200, B300
_BLACKWELL_RTX = ("GB202", "GB203", "GB205", "GB206", "GB207")
CHIPS: tuple[str, ...] = (*_VOLTA, *_TURING, *_AMPERE, *_ADA, *_HOPPER, *_BLACKWELL, *_BLACKWELL_RTX)
"""The chips that the table serves; the integrated ones have no counters of device memory."""

_NVLINK = (*_VOLTA, *_TURING[:3], *_AMPERE, *_HOPPER, *_BLACKWELL)
_BEFORE_RTX_50 = tuple(c for c in CHIPS if c not in _BLACKWELL_RTX)
PACKED = _BLACKWELL
"""Chips with packed FP32 instructions: each is two operations of its kind, in counters of its own."""

_TIME = "gpu__time_duration.sum"
_NS_PER_S = 1e9
_SCHEDULERS = 4  # of a multiprocessor, on every chip since Volta


def flop_terms(precision: str, *, packed: bool = False) -> dict[str, float]:
    """Add, multiply and multiply-add of threads (precision f, h or d), a multiply-add twice; `packed` ones in pairs."""
    suffix, pair = ("2", 2.0) if packed else ("", 1.0)
    name = "smsp__sass_thread_inst_executed_op_{}{}{}_pred_on.sum"
    return {name.format(precision, kind, suffix): pair * n for kind, n in (("add", 1), ("mul", 1), ("fma", 2))}


_PREFIX = "smsp__sass_thread_inst_executed_op_"
_DERIVED = f"derived__{_PREFIX}"
PER_CYCLE: Mapping[str, Mapping[str, float]] = {
    # The roofline sections collect rates per cycle, and the multiply-adds already doubled (FP16 ones again, as pairs).
    "flop_count_sp": {
        f"{_PREFIX}fadd_pred_on.sum.per_cycle_elapsed": 1,
        f"{_PREFIX}fmul_pred_on.sum.per_cycle_elapsed": 1,
        f"{_DERIVED}ffma_pred_on_x2": 1,
    },
    "flop_count_dp": {
        f"{_PREFIX}dadd_pred_on.sum.per_cycle_elapsed": 1,
        f"{_PREFIX}dmul_pred_on.sum.per_cycle_elapsed": 1,
        f"{_DERIVED}dfma_pred_on_x2": 1,
    },
    "flop_count_hp": {
        f"{_DERIVED}hadd_pred_on_x2": 0.5,
        f"{_DERIVED}hmul_pred_on_x2": 0.5,
        f"{_DERIVED}hfma_pred_on_x4": 0.5,
    },
}


def _flops(metric: str, precision: str) -> tuple[Formula, ...]:
    packed = flop_terms("f", packed=True) if precision == "f" else {}
    clock = "smsp__cycles_elapsed.avg.per_second"
    return (
        Formula(flop_terms(precision), extra=packed),
        Formula(PER_CYCLE[metric], times=(clock, _TIME), per=_NS_PER_S),
    )


def _bytes(name: str, chips: Sequence[str] = ()) -> tuple[Formula, ...]:
    """The sum, or the rate times the duration."""
    rate = Formula({f"{name}.sum.per_second": 1}, times=(_TIME,), per=_NS_PER_S, chips=chips)
    return same(f"{name}.sum", chips=chips), rate


def _dram(way: str) -> tuple[Formula, ...]:
    sectors = Formula({f"dram__sectors_{way}.sum": 32}, chips=_BEFORE_RTX_50)
    return (*_bytes(f"dram__bytes_{way}", _BEFORE_RTX_50), *_bytes(f"dram__bytes_op_{way}", _BLACKWELL_RTX), sectors)


def _share(unit: str) -> tuple[Formula, ...]:
    return (same(f"{unit}.avg.pct_of_peak_sustained_elapsed"),)


NCU: Mapping[str, Sequence[Formula]] = {
    "flop_count_sp": _flops("flop_count_sp", "f"),
    "flop_count_hp": _flops("flop_count_hp", "h"),
    "flop_count_dp": _flops("flop_count_dp", "d"),
    "dram_read_bytes": _dram("read"),
    "dram_write_bytes": _dram("write"),
    "l2_bytes": (*_bytes("lts__t_bytes"), Formula({"lts__t_sectors.sum": 32})),
    "l1_bytes": (*_bytes("l1tex__t_bytes"), Formula({"l1tex__t_sectors.sum": 32})),
    "l2_hit_rate": (same("lts__t_sector_hit_rate.pct"),),
    "l1_hit_rate": (same("l1tex__t_sector_hit_rate.pct"),),
    "nvlink_receive_bytes": _bytes("nvlrx__bytes", _NVLINK),
    "nvlink_transmit_bytes": _bytes("nvltx__bytes", _NVLINK),
    "pcie_read_bytes": _bytes("pcie__read_bytes"),
    "pcie_write_bytes": _bytes("pcie__write_bytes"),
    "achieved_occupancy": (same("sm__warps_active.avg.pct_of_peak_sustained_active"),),
    "theoretical_occupancy": (same("sm__maximum_warps_per_active_cycle_pct"),),
    "sm_efficiency": (*_share("smsp__cycles_active"), *_share("sm__cycles_active")),
    "ipc": (
        same("sm__inst_executed.avg.per_cycle_active"),
        Formula({"smsp__inst_executed.avg.per_cycle_active": _SCHEDULERS}),
    ),
    "warp_instruction_count": (same("smsp__inst_executed.sum"), same("sm__inst_executed.sum")),
    "tensor_instruction_count": (same("sm__inst_executed_pipe_tensor.sum"),),
    "dram_utilization": (*_share("dram__throughput"), *_share("gpu__dram_throughput")),
    "l2_utilization": _share("lts__throughput"),
    "l1_utilization": (*_share("l1tex__throughput"), same("l1tex__throughput.avg.pct_of_peak_sustained_active")),
    "compute_utilization": _share("sm__throughput"),
    "memory_utilization": (
        *_share("gpu__compute_memory_throughput"),
        *_share("gpu__compute_memory_access_throughput"),
    ),
    "flop_sp_efficiency": _share("smsp__sass_thread_inst_executed_ops_fadd_fmul_ffma_pred_on"),
    "flop_hp_efficiency": _share("smsp__sass_thread_inst_executed_ops_hadd_hmul_hfma_pred_on"),
    "flop_dp_efficiency": _share("smsp__sass_thread_inst_executed_ops_dadd_dmul_dfma_pred_on"),
    "replayed_duration_ns": (same(_TIME), same("gpu__time_duration.max"), same("gpu__time_duration.avg")),
    "elapsed_cycles": (same("gpc__cycles_elapsed.max"), same("sm__cycles_elapsed.max")),
    "sm_clock_hz": (
        same("sm__cycles_elapsed.avg.per_second"),
        same("smsp__cycles_elapsed.avg.per_second"),
        same("gpc__cycles_elapsed.avg.per_second"),
    ),
    "dram_clock_hz": (same("dram__cycles_elapsed.avg.per_second"),),
    "invocations": (same("invocations"),),
}
"""Each canonical counter's formulas, the best first."""

_UNITS = (
    # what a counter's name tells of its unit, where a tool gives none: CUPTI's own, which are base units
    (re.compile(r"\.pct|pct_of_peak|_pct\b"), "%"),
    (re.compile(r"time_(?:duration|active)(?:_\w+)?\.(?:sum|avg|max|min)\Z"), "ns"),
    (re.compile(r"bytes(?:_\w+)?\.(?:sum|avg|max|min)\Z"), "byte"),
    (re.compile(r"bytes(?:_\w+)?\.\w+\.per_second\Z"), "byte/s"),
    (re.compile(r"cycles_\w+\.\w+\.per_second\Z"), "Hz"),
    (re.compile(r"inst_executed(?:_\w+)?\.(?:sum|avg|max|min)\Z"), "inst"),
    (re.compile(r"cycles_\w+\.(?:sum|avg|max|min)\Z"), "cycle"),
)


def unit_of(name: str) -> Unit:
    """The unit of a counter that comes without one, by CUPTI's rules for names."""
    return base_unit(next((unit for pattern, unit in _UNITS if pattern.search(name)), ""))


_DRAM_TOTAL = _bytes("dram__bytes")


def ncu_table(names: Iterable[str]) -> dict[str, Sequence[Formula]]:
    """The table for a file with these counters: also its tensor counts, and DRAM bytes known only together."""
    present = set(names)
    table: dict[str, Sequence[Formula]] = {**NCU, **tensor_formulas(present)}
    if not all(any(f.value(present) is not None for f in NCU[f"dram_{way}_bytes"]) for way in ("read", "write")):
        table["dram_bytes"] = _DRAM_TOTAL
    return table
