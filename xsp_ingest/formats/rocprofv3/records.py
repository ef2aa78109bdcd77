"""From the common columns to the staging tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.counters.formula import Formula, Measured, canonical
from xsp_ingest.link.range_rules import NVTX, classify, module_ranges, plain_name
from xsp_ingest.staging.cuda_names import demangle
from xsp_ingest.staging.intervals import with_times
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, Kind, LedgerKind, Level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_ingest.ingester import Options

__all__ = [
    "AMD",
    "API",
    "COPY",
    "COUNT",
    "DEVICE",
    "DISPATCH",
    "KERNEL",
    "Records",
    "column",
    "empty",
    "plain_kernel_name",
    "shape",
    "unit_of",
    "with_counted",
]

# The columns that all outputs are brought to before they become spans.

_CLONE = " [clone .kd]"


@lru_cache(maxsize=1 << 16)
def plain_kernel_name(name: str) -> str:
    """The kernel's function: without the mark of a kernel descriptor, demangled where it is not."""
    return demangle(name.removesuffix(_CLONE))


_I, _S = pl.Int64(), pl.String()
_TIMES: Mapping[str, pl.DataType] = {"process": _I, "thread": _I, "correlation": _I, "start": _I, "end": _I}
KERNEL: Mapping[str, pl.DataType] = {
    **_TIMES,
    "agent": _I,  # the device, numbered among the GPUs
    "stream": _I,
    "name": _S,
    "dispatch": _I,  # its number within the process
    **{f"{what}_{axis}": _I for what in ("threads", "block") for axis in "xyz"},  # threads of the whole grid
    "registers": _I,
    "accumulation_registers": _I,
    "shared": _I,
}
COPY: Mapping[str, pl.DataType] = {**_TIMES, "agent": _I, "stream": _I, "direction": _S, "bytes": _I}
API: Mapping[str, pl.DataType] = {**_TIMES, "domain": _S, "name": _S}
COUNT: Mapping[str, pl.DataType] = {  # one instance of a counter; a counter's value is their sum
    "process": _I,
    "dispatch": _I,
    "counter": _S,
    "value": pl.Float64(),
}
DEVICE: Mapping[str, pl.DataType] = {
    "device_id": _I,
    "process_id": _I,
    "name": _S,
    "multiprocessor_count": _I,
    "clock_hz": _I,
    "memory_bytes": _I,
}
_INT64 = range(-(1 << 63), 1 << 63)


def empty(columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """No rows."""
    return pl.DataFrame(schema=dict(columns))


def column(name: str, values: Sequence[int | None]) -> pl.Series:
    """Whole numbers; those beyond 64 bits are unknown."""
    try:
        return pl.Series(name, values, dtype=pl.Int64)
    except (OverflowError, pl.exceptions.PolarsError, TypeError):
        fit = [value if value is not None and value in _INT64 else None for value in values]
        return pl.Series(name, fit, dtype=pl.Int64)


@dataclass
class Records:
    """All records of a run, in the columns above."""

    kernels: pl.DataFrame = field(default_factory=lambda: empty(KERNEL))
    copies: pl.DataFrame = field(default_factory=lambda: empty(COPY))
    calls: pl.DataFrame = field(default_factory=lambda: empty(API))
    devices: pl.DataFrame = field(default_factory=lambda: empty(DEVICE))
    counts: pl.DataFrame = field(default_factory=lambda: empty(COUNT))
    findings: tuple[Finding, ...] = ()


DISPATCH = ["process", "dispatch"]
"""What tells one dispatch from another."""


def with_counted(kernels: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """The kernels, with dispatches that were counted and not traced: `--pmc` alone records their times as well."""
    unseen = counted.unique(DISPATCH, keep="first", maintain_order=True).join(
        kernels, on=DISPATCH, how="anti", nulls_equal=True
    )
    return pl.concat([kernels, unseen.select(kernels.columns)])


# AMD's counters as rocprofv3 names them, of CDNA chips, and what they are in the model's vocabulary.
#
# Sources: `counter_defs.yaml` of ROCprofiler-SDK (expressions of FETCH_SIZE, WRITE_SIZE and L2CacheHit), the chapters
# "MI300 and MI200 performance counters" and "FLOP counting conventions" of the ROCm documentation.

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


_TOOL = "rocprofv3"
_COMMON = ("row", "start_ns", "duration_ns")
_MARKER_RANGE = r"(?i)^MARKER_(?:CORE_RANGE_|CORE_|)API"
_MARKER_CALL = r"^roctx[A-Z]\w*$"  # the library's own functions, where the text of the range is not there
_LIBRARY = r"(?i)^(RCCL|ROCDECODE|ROCJPEG|OMPT)"


def shape(records: Records, options: Options) -> RawTrace:
    """The staging tables of one run."""
    findings = [_missing_dispatches(records.kernels)]
    first, parts = 0, []
    for rows, what, device in (
        (records.kernels, "kernels", True),
        (records.copies, "copies", True),
        (records.calls, "calls and markers", False),
    ):
        sound, odd = with_times(rows, what, device=device)
        parts.append(sound.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int64) + first))
        first += sound.height
        findings += odd
    kernels, copies, calls = parts
    marks = pl.col("domain").str.contains(_MARKER_RANGE)
    named = calls.with_columns(pl.col("name").fill_null("[unnamed call]"))
    marked, layers, unread = _markers(named.filter(marks & ~pl.col("name").str.contains(_MARKER_CALL)), options)
    counted, uncounted = _metrics(kernels, records.counts)
    findings += uncounted
    tables = {name: frame_of(name) for name in RAW_TABLES} | {
        "spans": pl.concat([_kernels(kernels), _copies(copies), _calls(named.filter(~marks)), marked]),
        "kernels": _launches(kernels),
        "copies": _copy_facts(copies),
        "ranges": _range_facts(named.filter(marks & ~pl.col("name").str.contains(_MARKER_CALL))),
        "layers": frame_of("layers", layers),
        "devices": frame_of("devices", records.devices),
        "metrics": counted,
    }
    return RawTrace(
        tables, RunFacts(profiler="rocprofv3"), (*(f for f in (*records.findings, *findings) if f.count), *unread)
    )


def _missing_dispatches(kernels: pl.DataFrame) -> Finding:
    """How many numbers of dispatches lack between each process's first and last; the tool counts them one by one."""
    numbered = (
        kernels.drop_nulls("dispatch")
        .group_by("process")
        .agg((pl.col("dispatch").max() - pl.col("dispatch").min() + 1 - pl.col("dispatch").n_unique()).alias("missing"))
    )
    return Finding(LedgerKind.MISSING_DISPATCHES, count=int(numbered["missing"].sum()))


def _device_columns() -> list[pl.Expr]:
    return [
        pl.col("process").alias("process_id"),
        pl.col("agent").alias("device_id"),
        pl.col("stream").alias("stream_id"),
        pl.when(pl.col("correlation") != 0).then(pl.col("correlation")).alias("correlation_id"),
    ]


def _as(level: Level, kind: Kind) -> list[pl.Expr]:
    return [pl.lit(str(level)).alias("level"), pl.lit(str(kind)).alias("kind")]


def _kernels(rows: pl.DataFrame) -> pl.DataFrame:
    name = pl.col("name").fill_null("[unnamed kernel]")
    return frame_of("spans", rows.select(*_COMMON, name, *_as(Level.KERNEL, Kind.KERNEL), *_device_columns()))


def _launches(rows: pl.DataFrame) -> pl.DataFrame:
    """rocprofv3 counts a grid in threads; here, as everywhere, it is in blocks.

    Registers of a thread are those of both kinds, which share one file since CDNA 2.
    """
    grid = [
        pl.when(pl.col(f"block_{axis}") > 0)
        .then((pl.col(f"threads_{axis}") - 1) // pl.col(f"block_{axis}") + 1)
        .alias(f"grid_{axis}")
        for axis in "xyz"
    ]
    blocks = [pl.col(f"block_{axis}") for axis in "xyz"]
    registers = pl.col("registers") + pl.col("accumulation_registers").fill_null(0)
    sizes = [registers.alias("registers_per_thread"), pl.col("shared").alias("shared_bytes")]
    return frame_of("kernels", rows.select("row", *grid, *blocks, *sizes))


def _direction() -> pl.Expr:
    """`MEMORY_COPY_HOST_TO_DEVICE`, `HOST_TO_DEVICE`: as `Host-to-Device`."""
    ends = pl.col("direction").str.extract_groups(r"(?i)(HOST|DEVICE)_TO_(HOST|DEVICE)$")
    first, second = (ends.struct[n].str.to_titlecase() for n in range(2))
    return pl.format("{}-to-{}", first, second).fill_null("Unknown")


def _copies(rows: pl.DataFrame) -> pl.DataFrame:
    name = pl.format("[HIP memcpy {}]", _direction()).alias("name")
    return frame_of("spans", rows.select(*_COMMON, name, *_as(Level.KERNEL, Kind.MEMCPY), *_device_columns()))


def _copy_facts(rows: pl.DataFrame) -> pl.DataFrame:
    return frame_of("copies", rows.select("row", "bytes", _direction().alias("copy_kind")))


def _calls(rows: pl.DataFrame) -> pl.DataFrame:
    library = pl.col("domain").str.contains(_LIBRARY)
    level = pl.when(library).then(pl.lit(str(Level.LIBRARY))).otherwise(pl.lit(str(Level.RUNTIME))).alias("level")
    where = [pl.col("process").alias("process_id"), pl.col("thread").alias("thread_id")]
    correlation = pl.when(~library & (pl.col("correlation") != 0)).then(pl.col("correlation")).alias("correlation_id")
    kind = pl.lit(str(Kind.CALL)).alias("kind")
    return frame_of("spans", rows.select(*_COMMON, "name", level, kind, *where, correlation))


def _markers(rows: pl.DataFrame, options: Options) -> tuple[pl.DataFrame, pl.DataFrame, tuple[Finding, ...]]:
    """Spans of ranges, what those of modules say of layers, and what could not be read of it."""
    where = pl.col("process").alias("process_id"), pl.col("thread").alias("thread_id")
    named = rows.select(*_COMMON, plain_name(pl.col("name")), pl.col("name").alias("text"), *where)
    named = named.with_columns((pl.col("name") != pl.col("text")).alias("numbered"))
    named, layers, unread = module_ranges(named)
    levels = classify(named, NVTX, model_ranges=options.model_ranges, layer_ranges=options.layer_ranges)
    return frame_of("spans", named.hstack(levels)), layers, unread


def _range_facts(rows: pl.DataFrame) -> pl.DataFrame:
    facts = rows.select("row", pl.col("correlation").alias("range_id"), pl.col("name").alias("text"))
    return frame_of("ranges", facts)


def _metrics(kernels: pl.DataFrame, counts: pl.DataFrame) -> tuple[pl.DataFrame, list[Finding]]:
    """The staging table `metrics`, and what is of no kernel; a counter's instances are added up, as the tool does."""
    if counts.is_empty():
        return frame_of("metrics"), []
    sums = counts.group_by(*DISPATCH, "counter", maintain_order=True).agg(pl.col("value").sum())
    of_kernels = kernels.select("row", *DISPATCH).drop_nulls("dispatch").unique(DISPATCH, keep="first")
    placed = sums.drop_nulls("counter").join(of_kernels, on=DISPATCH, how="inner", nulls_equal=True)
    lost = Finding(LedgerKind.COUNTERS_OF_NO_KERNEL, count=sums.height - placed.height)
    if placed.is_empty():
        return frame_of("metrics"), [lost]
    wide = placed.sort("row", "counter").pivot("counter", index="row", values="value", maintain_order=True)
    names = sorted(name for name in wide.columns if name != "row")
    measured = Measured(wide.select("row", *names), {name: unit_of(name) for name in names}, _TOOL)
    return frame_of("metrics", canonical(measured, AMD)), [lost]
