"""Nsight Compute's counters (PerfWorks names, also CUPTI's) and what they are in the model's vocabulary."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.counters.formula import Formula, Unit, base_unit, same
from xsp_model import Finding, LedgerKind
from xsp_model.vocabulary import COUNTERS, TENSOR_PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "CHIPS",
    "NCU",
    "PACKED",
    "PER_CYCLE",
    "TensorCounter",
    "choose_counters",
    "counter_of",
    "doubts",
    "flop_terms",
    "ncu_table",
    "partial",
    "split",
    "stall_formulas",
    "tensor_formulas",
    "unit_of",
]


# Tensor-core operation counts: totals, their parts by instruction, result and sparsity, and no part added twice.


_TENSOR_NAME = re.compile(
    r"sm__ops_path_tensor(?:_op_(?P<op>[a-z]+))?_src_(?P<source>[a-z0-9_]+?)"
    r"(?:_dst_(?P<result>fp16|fp32))?(?:_sparsity_(?P<sparsity>on|off))?\.sum\Z"
)
_TYPES = {"fp16_bf16_tf32": "fp16", "fp4_fp6_fp8": "fp4_fp6_fp8"}  # Turing's name for the one type it has
_RESULTS = ("fp16", "fp32")


@dataclass(frozen=True, slots=True)
class TensorCounter:
    """One such counter; None: it does not tell apart by this."""

    name: str
    source: str  # type of the inputs, as in our names
    op: str | None
    result: str | None
    sparsity: str | None

    @property
    def cuts(self) -> tuple[str | None, ...]:
        """By what it is told apart, the coarsest cut first."""
        return self.op, self.result, self.sparsity

    def is_apart_from(self, other: TensorCounter) -> bool:
        """Whether nothing is counted by both."""
        return any(a != b for a, b in zip(self.cuts, other.cuts, strict=True) if a is not None and b is not None)


def split(name: str) -> TensorCounter | None:
    """The counter's parts, or None where it is no sum of tensor operations (sampled `_realtime` ones are not)."""
    match = _TENSOR_NAME.match(name)
    if match is None or match["source"].endswith("realtime"):
        return None
    source = _TYPES.get(match["source"], match["source"])
    return TensorCounter(name, source, match["op"], match["result"], match["sparsity"])


def choose_counters(names: Iterable[str]) -> dict[str, list[TensorCounter]]:
    """For each input type the counters to add: the coarsest that are there and do not overlap."""
    parts = [part for name in sorted(names) if (part := split(name)) is not None]
    out: dict[str, list[TensorCounter]] = {}
    for part in sorted(parts, key=lambda p: tuple(cut is not None for cut in p.cuts)):
        taken = out.setdefault(part.source, [])
        if all(part.is_apart_from(other) for other in taken):
            taken.append(part)
    return out


def tensor_formulas(names: Iterable[str]) -> Mapping[str, Sequence[Formula]]:
    """One formula for each input type that the counters tell of and the vocabulary knows."""
    parts_of = {f"{TENSOR_PREFIX}{source}": parts for source, parts in choose_counters(names).items()}
    return {name: (Formula({p.name: 1 for p in parts}),) for name, parts in parts_of.items() if name in COUNTERS}


def partial(names: Iterable[str]) -> dict[str, list[str]]:
    """Canonical counters of which the file may hold a part only, each with the names it was added up from."""
    return {
        f"{TENSOR_PREFIX}{source}": [p.name for p in parts]
        for source, parts in choose_counters(names).items()
        if not _is_complete(parts)
    }


def _is_complete(parts: Sequence[TensorCounter]) -> bool:
    """Whether the parts make up all of the type's work; which instructions exist differs by chip, so none is enough."""
    if any(part.op is not None for part in parts):
        return False
    for result in {p.result for p in parts}:
        sparsity = {p.sparsity for p in parts if p.result == result}
        if sparsity not in ({None}, {"on", "off"}):
            return False
    results = {p.result for p in parts}
    source = parts[0].source
    return results == {None} or results == set(_RESULTS) or (source in _ONE_RESULT and len(results) == 1)


_ONE_RESULT = ("bf16", "tf32", "fp4")  # these accumulate in FP32 only


# What warps wait for: each reason a counter, of cycles between two instructions or of samples.

_STALL_NAMES = tuple(
    re.compile(form)
    for form in (
        r"smsp__average_warps_issue_stalled_(?P<why>\w+)_per_issue_active\.ratio\Z",
        r"smsp__average_warp_latency_issue_stalled_(?P<why>\w+)\.ratio\Z",
        r"smsp__pcsamp_warps_issue_stalled_(?P<why>\w+)(?<!_not_issued)\Z",
    )
)
_STALLED_ON: Mapping[str, Sequence[str]] = {
    "memory_dependency_stall_share": ("long_scoreboard",),
    "memory_throttle_stall_share": ("lg_throttle", "mio_throttle", "tex_throttle"),
    "shared_memory_dependency_stall_share": ("short_scoreboard",),
    "constant_memory_stall_share": ("imc_miss",),
    "execution_dependency_stall_share": ("wait",),
    "pipe_busy_stall_share": ("math_pipe_throttle",),
    "tensor_dependency_stall_share": ("gmma",),
    "synchronisation_stall_share": ("barrier", "membar", "warpgroup_arrive"),
    "instruction_fetch_stall_share": ("no_instruction", "no_instructions", "branch_resolving"),
    "not_selected_stall_share": ("not_selected",),
    "issue_share": ("selected",),
}
_REASONS = {why: metric for metric, reasons in _STALLED_ON.items() for why in reasons}
_USUAL_REASONS = (
    "long_scoreboard",
    "wait",
    "math_pipe_throttle",
    "selected",
)  # without these a share is of who knows what


def stall_formulas(names: Iterable[str]) -> dict[str, list[Formula]]:
    """Each reason's share of all of them, of every set of counters that holds the usual reasons."""
    present = sorted(set(names))
    formulas: dict[str, list[Formula]] = {}
    for form in _STALL_NAMES:
        name_of = {match["why"]: name for name in present if (match := form.match(name))}
        if not all(why in name_of for why in _USUAL_REASONS):
            continue
        groups: dict[str, dict[str, float]] = {}
        for why, name in name_of.items():
            groups.setdefault(_REASONS.get(why, "other_stall_share"), {})[name] = 1
        for metric, terms in groups.items():
            formulas.setdefault(metric, []).append(Formula(terms, over=list(name_of.values())))
    return formulas


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
    "tensor_utilization": (
        *_share("sm__pipe_tensor_cycles_active"),
        same("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"),
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
    table: dict[str, Sequence[Formula]] = {**NCU, **tensor_formulas(present), **stall_formulas(present)}
    if not all(any(f.value(present) is not None for f in NCU[f"dram_{way}_bytes"]) for way in ("read", "write")):
        table["dram_bytes"] = _DRAM_TOTAL
    return table


# What Nsight Compute's details page calls its counters, where label and counter are the same quantity.

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


# What a file's choice of counters leaves open: flops half collected, tensor work not counted.

_PACKED_CAPABILITIES = ("10.0", "10.3")  # data-centre Blackwell
_TENSOR_WORK = {
    # counter: above which value it tells of tensor work (the pipe's activity shows traces of other FP64 work)
    "sm__inst_executed_pipe_tensor.sum": 0,
    "sm__inst_executed_pipe_tensor_op_hmma.sum": 0,
    "sm__inst_executed_pipe_tensor_op_gmma.sum": 0,
    "sm__inst_executed_pipe_tensor_subpipe_hmma.sum": 0,
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": 0.001,
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": 0.001,
}
_METRIC_OF_PRECISION = {"f": "flop_count_sp", "h": "flop_count_hp", "d": "flop_count_dp"}


def doubts(kernels: pl.DataFrame, counters: Collection[str]) -> Iterator[Finding]:
    """Findings on kernels (counters as columns, and `compute_capability`) whose flops are not, or not all, known."""
    yield from _half_collected(kernels, counters)
    yield from _uncollected_packed_terms(kernels, counters)
    for metric, names in partial(counters).items():
        detail = f"{metric} may miss work: it was added up from {', '.join(names)} alone"
        yield Finding(LedgerKind.TENSOR_COUNTS_PARTIAL, detail, kernels.height)
    yield from _tensor_work(kernels, counters)


def _half_collected(kernels: pl.DataFrame, counters: Collection[str]) -> Iterator[Finding]:
    for precision, metric in _METRIC_OF_PRECISION.items():
        names = list(flop_terms(precision))
        missing = [name for name in names if name not in counters]
        if missing and len(missing) < len(names):
            detail = f"{metric} is unknown, as {' and '.join(missing)} was not collected beside the others"
            advice = f"Collect {', '.join(names)}"
            yield Finding(LedgerKind.FLOPS_HALF_COLLECTED, detail, kernels.height, advice=advice)


def _uncollected_packed_terms(kernels: pl.DataFrame, counters: Collection[str]) -> Iterator[Finding]:
    names = list(flop_terms("f", packed=True))
    if all(name in counters for name in names) or any(name not in counters for name in flop_terms("f")):
        return
    detail = "flop_count_sp misses packed FP32 instructions, which this chip has and which were not collected"
    hit = kernels.filter(pl.col("compute_capability").is_in(_PACKED_CAPABILITIES)).height
    yield Finding(LedgerKind.PACKED_FP32_NOT_COUNTED, detail, hit, advice=f"Collect {', '.join(names)} too")


def _tensor_work(kernels: pl.DataFrame, counters: Collection[str]) -> Iterator[Finding]:
    seen = [name for name in _TENSOR_WORK if name in counters]
    if not seen or any(name.startswith("sm__ops_path_tensor") for name in counters):
        return
    busy = kernels.filter(pl.any_horizontal(pl.col(name) > _TENSOR_WORK[name] for name in seen)).height
    detail = "kernels used tensor cores, but their operations were not collected: the flops shown are of other pipes"
    yield Finding(LedgerKind.TENSOR_WORK_NOT_COUNTED, detail, busy)
