"""The columns that all outputs are brought to before they become spans."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.link.demangle import demangle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_model import Finding

__all__ = [
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
    "with_counted",
]

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
