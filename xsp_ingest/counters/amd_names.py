"""AMD's counters as rocprofv3 names them, of CDNA chips, and what they are in the model's vocabulary.

Sources: `counter_defs.yaml` of ROCprofiler-SDK (expressions of FETCH_SIZE, WRITE_SIZE and L2CacheHit), the chapters
"MI300 and MI200 performance counters" and "FLOP counting conventions" of the ROCm documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.counters.formula import Formula

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["AMD", "unit_of"]

_LANES = 64  # of a wavefront; the counters are of instructions of wavefronts
_MATRIX_FLOP = 512  # that one count of a MFMA_MOPS counter stands for
_KIB = 1024
_VALU = "SQ_INSTS_VALU_"
_UNITS = {"FETCH_SIZE": "KiB", "WRITE_SIZE": "KiB", "FetchSize": "KiB", "WriteSize": "KiB", "L2CacheHit": "%"}


def _vector(bits: int) -> dict[str, float]:
    """Adds, multiplies and multiply-adds of all lanes, the last twice."""
    return {f"{_VALU}{kind}_F{bits}": _LANES * n for kind, n in (("ADD", 1), ("MUL", 1), ("FMA", 2))}


def _matrix(types: str) -> tuple[Formula, ...]:
    return (Formula({f"{_VALU}MFMA_MOPS_{types}": _MATRIX_FLOP}),)


def _read() -> tuple[Formula, ...]:
    """Requests of L2 are of 64 bytes but for those counted as of 32, and on MI300 as of 128."""
    mi300 = {"TCC_EA0_RDREQ_sum": 64, "TCC_BUBBLE_sum": 64, "TCC_EA0_RDREQ_32B_sum": -32}
    mi200 = {"TCC_EA_RDREQ_sum": 64, "TCC_EA_RDREQ_32B_sum": -32}
    return (Formula({"FETCH_SIZE": _KIB}), Formula({"FetchSize": _KIB}), Formula(mi300), Formula(mi200))


def _write() -> tuple[Formula, ...]:
    """Requests of L2 are of 32 bytes but for those counted as of 64."""
    requests = tuple(Formula({f"{bus}_WRREQ_sum": 32, f"{bus}_WRREQ_64B_sum": 32}) for bus in ("TCC_EA0", "TCC_EA"))
    return (Formula({"WRITE_SIZE": _KIB}), Formula({"WriteSize": _KIB}), *requests)


AMD: Mapping[str, Sequence[Formula]] = {
    # The vocabulary has no matrix work on FP32 inputs of its own: it is FP32 work, at the rate of FP32 work.
    "flop_count_sp": (Formula(_vector(32), extra={f"{_VALU}MFMA_MOPS_F32": _MATRIX_FLOP}),),
    "flop_count_hp": (Formula(_vector(16)),),
    "flop_count_dp": (Formula(_vector(64)),),
    "flop_count_tensor_fp64": _matrix("F64"),
    "flop_count_tensor_tf32": _matrix("XF32"),
    "flop_count_tensor_fp16": _matrix("F16"),
    "flop_count_tensor_bf16": _matrix("BF16"),
    "flop_count_tensor_fp8": _matrix("F8"),
    "flop_count_tensor_fp4_fp6": _matrix("F6F4"),
    "flop_count_tensor_int8": _matrix("I8"),
    "dram_read_bytes": _read(),
    "dram_write_bytes": _write(),
    "l2_hit_rate": (Formula({"L2CacheHit": 1}, per=100),),
}
"""Each canonical counter's formulas, the best first."""


def unit_of(name: str) -> str:
    """The unit of a counter under its own name, which rocprofv3 does not write: most are plain counts."""
    return _UNITS.get(name, "1")
