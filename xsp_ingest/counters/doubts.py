"""What a file's choice of counters leaves open: flops half collected, tensor work not counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.counters.ncu_names import flop_terms
from xsp_ingest.counters.tensor import partial
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

__all__ = ["doubts"]

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
