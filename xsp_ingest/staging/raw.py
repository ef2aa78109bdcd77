"""What a reader hands to the linker: rows as the file has them, in columns, not yet tied together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from xsp_ingest.files.values import characters
from xsp_model.columns import arrays
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from xsp_model import Finding
    from xsp_model.columns.arrays import Bools

__all__ = ["NOTHING", "RAW_TABLES", "RawTrace", "RunFacts", "RunLevel", "RunOverrides", "Stage", "frame_of"]

_I = pl.Int64()
_S = pl.String()
_W = pl.Categorical()
_SPANS: Mapping[str, pl.DataType] = {
    "row": _I,  # unique number of the span within this RawTrace; detail tables refer to it
    "level": _W,
    "kind": _W,
    "name": _W,  # per-call numbers stripped; the raw text of a range stays in `ranges`
    "start_ns": _I,  # the source's own clock
    "duration_ns": _I,
    "process_id": _I,  # for device work: the process that launched it
    "thread_id": _I,
    "device_id": _I,
    "context_id": _I,
    "stream_id": _I,
    "correlation_id": _I,
    # For device work without a recorded launch the row of the span that the file says issued it; for a layer of
    # generated code, which no thread called, that of the layer or region that it lies in.
    "issued_by_row": _I,
}
_OPERATORS: Mapping[str, pl.DataType] = {
    "row": _I,
    "sequence_number": _I,
    "forward_thread_id": _I,  # null or 0: not a backward operator
    "external_id": _I,
    "record_function_id": _I,  # PyTorch's number of the call, which its execution trace has as well
    "called_by_row": _I,  # row of the operator that called it, where a file itself says it
    "input_shapes": _W,
    "input_dtypes": _W,
    "input_strides": _W,
    "concrete_inputs": _W,
    "source_lines": _W,
    "forward_row": _I,  # row of the forward twin, where the file itself says it
}
_RANGES: Mapping[str, pl.DataType] = {
    "row": _I,
    "range_id": _I,
    "text": _S,
    "domain": _W,
    "style": _W,
    "end_thread_id": _I,
}
_KERNELS: Mapping[str, pl.DataType] = {
    "row": _I,
    **{f"{what}_{axis}": _I for what in ("grid", "block") for axis in "xyz"},
    "registers_per_thread": _I,
    "static_shared_bytes": _I,
    "dynamic_shared_bytes": _I,
    "shared_bytes": _I,
    "graph_id": _I,
    "graph_node_id": _I,
    "captured_in_row": _I,  # row of the span the node was captured in, where the file itself says it
}
_LAYERS: Mapping[str, pl.DataType] = {  # what the file itself says of a layer; goes before what is worked out
    "row": _I,
    "sequence_index": _I,  # its position among the layers of the model
    "layer_type": _S,
    "path": _S,
    "shapes": _S,
    "dtypes": _S,
    "allocated_bytes": _I,
}
_COPIES: Mapping[str, pl.DataType] = {
    "row": _I,
    "bytes": _I,
    "copy_kind": _W,
    "source_kind": _W,
    "destination_kind": _W,
    "virtual_address": _I,
}
_COLLECTIVES: Mapping[str, pl.DataType] = {  # what a file says of a message, beside a kernel, a call or a range
    "row": _I,
    "operation": _W,
    "group_name": _W,
    "group_ranks": _W,
    "group_size": _I,
    "input_bytes": _I,
    "output_bytes": _I,
    "input_split": _W,
    "output_split": _W,
    "peer_rank": _I,
}
_MESSAGES: Mapping[str, pl.DataType] = {  # what a file says of a call of MPI
    "row": _I,
    "rank": _I,
    "peer_rank": _I,
    "root_rank": _I,
    "tag": _I,
    "bytes": _I,
    "sent_bytes": _I,
    "received_bytes": _I,
}
_PAGE_FAULTS: Mapping[str, pl.DataType] = {
    "time_ns": _I,
    "duration_ns": _I,
    "process_id": _I,
    "device_id": _I,
    "address": _I,
    "count": _I,
    "instruction": _S,
}
_ATTRIBUTIONS: Mapping[str, pl.DataType] = {  # layers of work that was not simply launched in their calls
    "row": _I,  # a device activity, or an operator: then also of what was launched in it
    "layer_row": _I,
    "weight": pl.Float64(),  # of one row they add up to 1
    "basis": _W,
}
_COMPILED_KERNELS: Mapping[str, pl.DataType] = {  # what a compiler says of a call in its generated code
    "row": _I,
    "region": _W,
    "region_call": _I,
    "direction": _W,
    "kernel_name": _W,
    "operators": _W,
    "sources": _W,
}
_LAUNCHES: Mapping[str, pl.DataType] = {  # of calls whose work was captured into a graph: what they would launch
    "row": _I,
    "kernel_name": _W,
    **{f"{what}_{axis}": _I for what in ("grid", "block") for axis in "xyz"},
}
_FLOWS: Mapping[str, pl.DataType] = {  # a forward operator's start and its backward operator's start
    "forward_process_id": _I,
    "forward_thread_id": _I,
    "forward_start_ns": _I,
    "backward_process_id": _I,
    "backward_thread_id": _I,
    "backward_start_ns": _I,
}
_ALLOCATIONS: Mapping[str, pl.DataType] = {  # one row a change of memory in use
    "process_id": _I,
    "thread_id": _I,
    "time_ns": _I,
    "device_id": _I,  # null: host memory
    "bytes": _I,  # negative: freed
    "allocated_bytes": _I,  # in use afterwards
    "reserved_bytes": _I,
    "address": _I,  # of the block, in the process's own space
    "category": _W,  # see xsp_model.MemoryKind; only where the file itself says it
    "source_lines": _W,  # likewise
}
_COUNTERS: Mapping[str, pl.DataType] = {  # samples over time, named and in units as in the model
    "time_ns": _I,
    "counter": _W,
    "device_id": _I,  # null: the host
    "value": pl.Float64(),
    "unit": _W,
}
_GRAPH_NODES: Mapping[str, pl.DataType] = {  # where a graph's node was captured
    "process_id": _I,
    "thread_id": _I,
    "start_ns": _I,
    "graph_node_id": _I,
    "original_graph_node_id": _I,
}
_DEVICES: Mapping[str, pl.DataType] = {
    "device_id": _I,
    "process_id": _I,
    "name": _S,
    "multiprocessor_count": _I,
    "compute_capability": _S,
    "clock_hz": _I,
    "memory_bytes": _I,
    "dram_byte_per_s": pl.Float64(),
    "fp32_flop_per_s": pl.Float64(),
    "peak_source": _S,
}
_PEAKS: Mapping[str, pl.DataType] = {  # what the file itself says that a device can do at most
    "device_id": _I,
    "process_id": _I,
    "quantity": _W,
    "value": pl.Float64(),
    "unit": _W,
    "source": _S,
    "detail": _S,
}
_METRICS: Mapping[str, pl.DataType] = {  # counters of a span; see xsp_model.schema
    "row": _I,
    "metric": _W,
    "value": pl.Float64(),
    "unit": _W,
    "source": _W,
}
RAW_TABLES: Mapping[str, Mapping[str, pl.DataType]] = {
    "spans": _SPANS,
    "operators": _OPERATORS,
    "ranges": _RANGES,
    "kernels": _KERNELS,
    "copies": _COPIES,
    "collectives": _COLLECTIVES,
    "messages": _MESSAGES,
    "page_faults": _PAGE_FAULTS,
    "attributions": _ATTRIBUTIONS,
    "compiled_kernels": _COMPILED_KERNELS,
    "launches": _LAUNCHES,
    "layers": _LAYERS,
    "flows": _FLOWS,
    "allocations": _ALLOCATIONS,
    "counters": _COUNTERS,
    "graph_nodes": _GRAPH_NODES,
    "devices": _DEVICES,
    "peaks": _PEAKS,
    "metrics": _METRICS,
}
"""The tables of a RawTrace; where a name is also a table of the model, columns mean the same."""


def _from_columns(columns: pl.DataFrame | Mapping[str, object]) -> pl.DataFrame:
    """The columns as a frame; half of a surrogate pair, which JSON may escape and is no character, as question mark."""
    if isinstance(columns, pl.DataFrame):
        return columns
    try:
        return pl.DataFrame(columns)
    except UnicodeEncodeError:
        return pl.DataFrame({name: _of_characters(values) for name, values in columns.items()})


def _of_characters(values: object) -> object:
    if not isinstance(values, list):
        return values
    return [characters(value) if isinstance(value, str) else value for value in values]


def frame_of(table: str, columns: pl.DataFrame | Mapping[str, object] | None = None) -> pl.DataFrame:
    """A frame with exactly the columns of the raw table; those absent are null."""
    types = RAW_TABLES[table]
    frame = pl.DataFrame() if columns is None else _from_columns(columns)
    return (
        frame.select(
            (pl.col(name).cast(kind) if name in frame.columns else pl.lit(None, dtype=kind).alias(name))
            for name, kind in types.items()
        )
        if frame.width
        else pl.DataFrame(schema=dict(types))
    )


@dataclass(frozen=True, slots=True)
class RunLevel:
    """What a run is taken for when it is merged with the others of its file (`role`), and how that is known."""

    role: str
    evidence: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a file says of its run as a whole."""

    profiler: str = ""
    framework: str | None = None
    model: str | None = None
    batch_size: int | None = None
    role: str | None = None  # in a profile that was merged before
    serialised: bool | None = None
    rank: int | None = None
    ranks: Mapping[int, int] = field(default_factory=dict)  # by process, where a file holds several
    world_size: int | None = None
    epoch_ns: int | None = None  # Unix time at the source clock's 0; null where the file does not say
    level: RunLevel | None = None  # where the file holds the same work at several levels, a run each
    source_bytes: int | None = None
    source_sha256: str | None = None
    device_name: str | None = None  # of a file without devices that says what it ran on
    results: Mapping[str, pl.DataFrame] = field(default_factory=dict)  # as of RunOverrides
    layers_begin_early: bool = False  # of a layer that begins in no step the step counts that its middle is in
    rows_nest: bool = (
        True  # of spans alike in time the earlier row is outside; else what the source says of them decides
    )


@dataclass(frozen=True, slots=True)
class RawTrace:
    """One run as its file has it: `tables` as in RAW_TABLES (all present), facts, and what the reader could not use."""

    tables: Mapping[str, pl.DataFrame]
    facts: RunFacts
    findings: tuple[Finding, ...] = field(default=())


# What is known of a run besides its files: from its description, or from the user.


@dataclass(frozen=True, slots=True)
class RunOverrides:
    """Facts that override what a file says of its run; None and empty: no override. Times in ns."""

    level: str | None = None
    role: str | None = None
    model: str | None = None
    framework: str | None = None
    batch_size: int | None = None
    serialised: bool | None = None
    counters: Sequence[str] = ()
    deepest_level: str | None = None  # that the files should hold
    warmup_steps: int | None = None
    rank: int | None = None
    world_size: int | None = None
    device_name: str | None = None
    peaks: Mapping[str, float] = field(default_factory=dict)
    step_durations_ns: Sequence[int] = ()
    results: Mapping[str, pl.DataFrame] = field(default_factory=dict)  # accuracies, tensors, output_distances
    folder: str | None = None  # of the run within its run set: tells files of one name apart

    def shown_name(self, file: str) -> str:
        """The file's name as messages and provenance show it."""
        return f"{self.folder}/{file}" if self.folder else file


NOTHING = RunOverrides()
"""Nothing is known besides the files."""


# Collects the rows of a table piece by piece in compact columns, large ones on disk, and makes one frame of them.

_PIECE = 1 << 20
_NO_ID = (1 << 32) - 1


class _Column(Protocol):
    def add(self, piece: pl.Series) -> None: ...

    def series(self, name: str) -> pl.Series: ...


class Stage:
    """The rows of one table so far; a frame added may be forgotten, or its memory used again, at once."""

    def __init__(self, types: Mapping[str, pl.DataType]) -> None:
        self._columns: dict[str, _Column] = {name: _column_of(kind) for name, kind in types.items()}

    def add(self, rows: pl.DataFrame) -> None:
        """Adds rows, with all columns of the table."""
        for name, column in self._columns.items():
            column.add(rows[name])

    def frame(self) -> pl.DataFrame:
        """All rows. Categories of a large table are an Enum, one or two bytes a row where a Categorical takes four."""
        return pl.DataFrame([column.series(name) for name, column in self._columns.items()])


def _column_of(kind: pl.DataType) -> _Column:
    if kind == pl.Int64:
        return _Numbers()
    return _Categories() if kind == pl.Categorical else _Others(kind)


class _Numbers:
    """Integers, null as 0 in one column and False in another, which is there once there is a null."""

    def __init__(self) -> None:
        self._values = arrays.Growing(np.int64)
        self._valid: arrays.Growing | None = None

    def add(self, piece: pl.Series) -> None:
        absent = piece.null_count()
        if absent and self._valid is None:
            self._valid = arrays.Growing(np.bool_)
            for first in range(0, self._values.count, _PIECE):
                self._valid.add(np.ones(min(_PIECE, self._values.count - first), dtype=np.bool_))
        self._values.add((piece.fill_null(0) if absent else piece).to_numpy())
        if self._valid is not None:
            self._valid.add(piece.is_not_null().to_numpy())

    def series(self, name: str) -> pl.Series:
        valid: Bools | None = None if self._valid is None else self._valid.column()
        return arrays.series(name, self._values.column(), valid)


class _Categories:
    """Distinct texts by the numbers that polars gives them, which hold while any categorical column is there."""

    def __init__(self) -> None:
        self._any = pl.Series([], dtype=pl.Categorical)  # else a number would be another text's between two pieces
        self._ids = arrays.Growing(np.uint32)
        self._texts: dict[int, str] = {}

    def add(self, piece: pl.Series) -> None:
        distinct = piece.unique().drop_nulls()
        self._texts.update(zip(distinct.to_physical().to_list(), distinct.cast(pl.String).to_list(), strict=True))
        ids = piece.to_physical().cast(pl.UInt32)
        self._ids.add((ids.fill_null(_NO_ID) if ids.null_count() else ids).to_numpy())

    def series(self, name: str) -> pl.Series:
        ids = self._ids.column()
        index_of = np.zeros(max(self._texts, default=-1) + 2, dtype=np.uint32)
        index_of[-1] = len(self._texts)  # null
        index_of[list(self._texts)] = np.arange(len(self._texts))
        texts = list(self._texts.values())
        if texts and ids.nbytes >= limits().mapped_column_min_bytes:
            return self._enum(name, ids, index_of, pl.Enum(texts))
        categories = pl.Series([*texts, None], dtype=pl.Categorical)
        return categories.gather(index_of[np.minimum(ids, len(index_of) - 1)]).alias(name)

    def _enum(self, name: str, ids: NDArray[np.uint32], index_of: NDArray[np.uint32], kind: pl.Enum) -> pl.Series:
        smallest = pl.Series([], dtype=kind).to_physical().to_numpy().dtype
        indices: NDArray[np.uint32] = arrays.empty(len(ids), smallest)
        valid = np.empty(len(ids), dtype=np.bool_)
        for piece in arrays.pieces(len(ids)):
            indices[piece] = index_of[np.minimum(ids[piece], len(index_of) - 1)]
            valid[piece] = ids[piece] != _NO_ID
            indices[piece][~valid[piece]] = 0  # what is null must have some category as well
        return arrays.series(name, indices, valid).cat.to(kind)


class _Others:
    """Texts that differ from row to row, and fractions: as polars holds them."""

    def __init__(self, kind: pl.DataType) -> None:
        self._pieces = [pl.Series([], dtype=kind)]

    def add(self, piece: pl.Series) -> None:
        self._pieces.append(piece.clone())

    def series(self, name: str) -> pl.Series:
        return pl.concat(self._pieces, rechunk=True).alias(name)
