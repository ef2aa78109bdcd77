"""What events say beside their times: collectives, layers of replayed kernels, lines of Python by operator."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from math import prod
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.files.values import characters, int64
from xsp_ingest.formats.torch_profiler.events import ANNOTATION, OPERATOR
from xsp_ingest.link.nest import Moments, nest
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_ingest.staging.raw import frame_of
from xsp_model import AttributionBasis, Kind, Level
from xsp_model.columns.arrays import Growing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from xsp_model.columns.arrays import Ints, Positions

__all__ = [
    "ANNOTATED",
    "SourceLines",
    "annotated_work",
    "collective_facts",
    "lines_of_stack",
    "of_call_stacks",
    "user_line",
    "with_groups_of_job",
    "with_layers",
]

# What events say of collectives: which, in which process group, and how many bytes.
#
# Since torch 2.1 the operator `record_param_comms`, since 2.3 the kernels too say all of it; before, only the
# annotation around the call has the shape and type of what was sent, of a list of tensors that of the flat buffer made
# of them.

_OPERATIONS: Mapping[str, str] = {
    "allreduce": "all_reduce",
    "allreduce_sparse": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_allv": "all_to_all",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
}
_CALLS = r"^(?:nccl|rccl|gloo|ucc|mpi):_?(\w+?)_*$"
_CALL = "record_param_comms"
_WITH_VALUES = r"^c10d::(?:alltoall_base_|send|recv_)$"
_LIST = "TensorList"  # of newer versions with the shapes of its tensors, of older ones with none
_SIZES: Mapping[str, int] = {  # as the collective's `dtype` and as `Input type` spell them
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8", "signed char", "unsigned char", "char", "bool"), 1),
    **dict.fromkeys(("Float8_e5m2", "Float8_e4m3fn", "Float8_e5m2fnuz", "Float8_e4m3fnuz", "Float8_e8m0fnu"), 1),
    **dict.fromkeys(("c10::Float8_e4m3fn", "c10::Float8_e5m2"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16", "UInt16", "short", "short int", "c10::Half", "c10::BFloat16"), 2),
    **dict.fromkeys(("Int", "Float", "UInt32", "ComplexHalf", "int", "float"), 4),
    **dict.fromkeys(
        ("Long", "Double", "UInt64", "ComplexFloat", "long", "long int", "double", "c10::complex<float>"), 8
    ),
    **dict.fromkeys(("ComplexDouble", "c10::complex<double>"), 16),
}


def collective_facts(events: pl.DataFrame, details: pl.DataFrame) -> pl.DataFrame:
    """The staging table `collectives` of sound events; `details` has `row` for the event."""
    recorded = events.filter(pl.col("collective").is_not_null())
    sizes = details.select("row", "group_size", "input_elements", "output_elements", "peer_rank")
    described = recorded.join(sizes, on="row", how="left", maintain_order="left")
    each = _argument("element_type").replace_strict(_SIZES, default=None, return_dtype=pl.Int64)
    rows = described.select(
        "row",
        _operation(_argument("collective")),
        _argument("group_name").alias("group_name"),
        _argument("group_ranks").alias("group_ranks"),
        pl.when(pl.col("group_size") > 0).then("group_size"),
        _bytes("input", each),
        _bytes("output", each),
        _split_bytes("input", described, each),
        _split_bytes("output", described, each),
        "peer_rank",
    )
    return pl.concat([frame_of("collectives", rows), _facts_from_shapes(events), _facts_from_values(events)])


def with_groups_of_job(rows: pl.DataFrame, head: Mapping[str, object]) -> pl.DataFrame:
    """The staging table `collectives` with what the file's head says of process groups.

    A group that is described there (`mesh_tp`) is called by that and its number, and all its ranks are listed, of which
    calls name the first ones. A send or receive that says no group is in the one that is described as a pipeline's, if
    there is one; in no other where the job has several, and its peer, which it numbers within its group, is not known.
    """
    job = head.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    groups = [group for group in map(_group_of, _list_of(job.get("pg_config"))) if group is not None]
    rows = rows.with_columns(pl.col(pl.Categorical).cast(pl.String))
    if job.get("pg_count") != 1:
        rows = _with_sure_peers(rows, [group for group in groups if group[2] and re.search(_OF_STAGES, group[1])])
    own = pl.DataFrame(groups, schema=_GROUP_SCHEMA, orient="row").unique("group_name", keep="first")
    joined = rows.join(own, on="group_name", how="left", suffix="_of_job", maintain_order="left")
    full = pl.when(pl.col("group_ranks").is_null() | pl.col("group_ranks").str.contains("...", literal=True))
    return frame_of(
        "collectives",
        joined.with_columns(
            full.then(pl.coalesce("group_ranks_of_job", "group_ranks")).otherwise("group_ranks").alias("group_ranks"),
            pl.coalesce("called", "group_name").alias("group_name"),
            pl.coalesce("group_size", "group_size_of_job"),
        ).select(rows.columns),
    )


_GROUP_SCHEMA = {"group_name": pl.String, "called": pl.String, "group_ranks": pl.String, "group_size": pl.Int64}
_UNDESCRIBED = frozenset({"", "undefined", "default_pg"})
_OF_STAGES = r"(?i)(?:^|[^a-z])pp(?:$|[^a-z])|pipe"


def _list_of(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


def _group_of(entry: object) -> tuple[str, str, str | None, int | None] | None:
    """The row of _GROUP_SCHEMA for an entry of `pg_config`; None where it names no group."""
    if not isinstance(entry, dict) or not (name := str(entry.get("pg_name", ""))):
        return None
    described = str(entry.get("pg_desc", ""))
    numbers = [int64(rank) for rank in _list_of(entry.get("ranks"))]
    ranks = json.dumps(numbers) if numbers and None not in numbers else None
    called = name if described in _UNDESCRIBED or described == name else f"{described} {name}"
    return name, called, ranks, int64(entry.get("pg_size"))


def _with_sure_peers(rows: pl.DataFrame, of_stages: Sequence[tuple[str, str, str | None, int | None]]) -> pl.DataFrame:
    """Peers of calls that say their group, and of those that say none in the only group of stages."""
    is_unsure = pl.all_horizontal(pl.col("group_name", "group_ranks").is_null())
    peer, name = pl.lit(None, pl.Int64), pl.lit(None, pl.String)
    if len(of_stages) == 1:
        ranks = json.loads(of_stages[0][2] or "[]")
        peer = pl.col("peer_rank").replace_strict(dict(enumerate(ranks)), default=None, return_dtype=pl.Int64)
        name = pl.when(peer.is_not_null()).then(pl.lit(of_stages[0][0]))
    return rows.with_columns(
        pl.when(is_unsure).then(peer).otherwise("peer_rank").alias("peer_rank"),
        pl.when(is_unsure).then(name).otherwise("group_name").alias("group_name"),
    )


def _argument(column: str) -> pl.Expr:
    """The argument's text; null where it is none or empty."""
    text = pl.col(column).cast(pl.String)
    decoded = pl.when(text.str.starts_with('"')).then(text.str.json_decode(pl.String)).otherwise(text)
    return pl.when(~decoded.is_in(["", "null"])).then(decoded)


def _operation(name: pl.Expr) -> pl.Expr:
    return name.replace(_OPERATIONS).alias("operation")


def _bytes(side: str, element_bytes: pl.Expr) -> pl.Expr:
    elements = pl.col(f"{side}_elements")
    return pl.when(elements >= 0).then(elements * element_bytes).alias(f"{side}_bytes")


def _split_bytes(side: str, rows: pl.DataFrame, element_bytes: pl.Expr) -> pl.Series:
    """The parts in bytes; null where no number of them, or no size of an element is known."""
    pairs = rows.select(_argument(f"{side}_split").alias("parts"), element_bytes.alias("each")).iter_rows()
    texts = [
        _parts_in_bytes(parts, each) if parts and each and re.search(r"\d", parts) else None for parts, each in pairs
    ]
    return pl.Series(f"{side}_split", texts, dtype=pl.String)


@lru_cache(1 << 12)
def _parts_in_bytes(parts: str, element_bytes: int) -> str:
    """Numbers of elements, of which PyTorch cuts long lists short by an ellipsis, as bytes."""
    pieces = re.findall(r"\d+|\.\.\.", parts)
    return f"[{', '.join(part if part == '...' else str(int(part) * element_bytes) for part in pieces)}]"


def _facts_from_values(events: pl.DataFrame) -> pl.DataFrame:
    """Calls whose scalar arguments say of how many rows the parts of an all-to-all are, or who the other rank is."""
    name = pl.col("name").cast(pl.String)
    is_call = pl.col("category").is_in(OPERATOR) & name.str.contains(_WITH_VALUES)
    calls = events.filter(is_call, pl.col("concrete_inputs").is_not_null())
    described = calls.select(pl.col("name", "concrete_inputs", "input_dims", "input_types").cast(pl.String))
    columns = ("operation", "input_bytes", "output_bytes", "input_split", "output_split", "peer_rank")
    rows = [_facts_of_call(*row) for row in described.iter_rows()]
    return frame_of(
        "collectives", calls.select("row").with_columns(pl.Series(c, [r.get(c) for r in rows]) for c in columns)
    )


@lru_cache(1 << 12)
def _facts_of_call(name: str, values: str, dims: str | None, types: str | None) -> Mapping[str, object]:
    try:
        scalars = [str(value) for value in json.loads(values)]
        shapes, kinds = (json.loads(text) if text else [] for text in (dims, types))
        if not name.startswith("c10d::alltoall"):
            number = int64(int(scalars[2])) if scalars[2].isdecimal() else None
            return {"operation": "send" if "send" in name else "recv", "peer_rank": number}
        row_bytes = [_size([1, *shape[1:]], kind) for shape, kind in zip(shapes[:2], kinds[:2], strict=True)]
        sizes = [_size(shape, kind) for shape, kind in zip(shapes[:2], kinds[:2], strict=True)]
    except (ValueError, IndexError, TypeError):
        return {}
    split = [
        _parts_in_bytes(s, b) if b and re.search(r"\d", s) else None
        for s, b in zip(scalars[3:5], row_bytes, strict=True)
    ]
    facts = dict(zip(("output_split", "input_split", "output_bytes", "input_bytes"), (*split, *sizes), strict=True))
    return {"operation": "all_to_all", **facts}


def _facts_from_shapes(events: pl.DataFrame) -> pl.DataFrame:
    """Calls that have only the shapes of what was handed over."""
    name = pl.col("name").cast(pl.String)
    is_annotation = pl.col("category").is_in(ANNOTATION) & name.str.contains(_CALLS)
    is_call = pl.col("category").is_in(OPERATOR) & (name == _CALL) & pl.col("collective").is_null()
    calls = events.filter(pl.col("input_dims").is_not_null(), is_annotation | is_call)
    described = calls.select(pl.col("input_dims", "input_types").cast(pl.String)).rows()
    sizes = {pair: _argument_bytes(*pair) for pair in dict.fromkeys(described)}
    rows = calls.select("row", _operation(name.str.extract(_CALLS)))
    sent = pl.Series("input_bytes", [sizes[pair] for pair in described], dtype=pl.Int64)
    return frame_of("collectives", rows.with_columns(sent))


def _argument_bytes(dims: str | None, types: str | None) -> int | None:
    """The bytes of all tensors together; None where the size of one is not known, or there is none."""
    shapes, kinds = (json.loads(text) if text else None for text in (dims, types))
    if not isinstance(shapes, list) or not isinstance(kinds, list) or len(shapes) != len(kinds):
        return None
    pairs = zip(shapes, kinds, strict=True)
    sizes = [_size(shape, kind) for shape, kind in pairs if shape or kind == _LIST or _element_bytes(kind)]
    sized = [size for size in sizes if size is not None]
    return int64(sum(sized)) if sized and len(sized) == len(sizes) else None


def _element_bytes(kind: object) -> int | None:
    return _SIZES.get(kind) if isinstance(kind, str) else None


def _size(shape: object, kind: object) -> int | None:
    """The bytes of a tensor, or of a list of tensors of one type."""
    element_bytes = _element_bytes(kind)
    if element_bytes is None or not isinstance(shape, list):
        return None
    tensors = shape if shape and isinstance(shape[0], list) else [shape]
    if any(not isinstance(each, list) or any(type(d) is not int or d < 0 for d in each) for each in tensors):
        return None
    return sum(prod(each) for each in tensors) * element_bytes


# Layers of replayed kernels, as PyTorch's annotations of a graph's nodes name them.
#
# `torch.cuda._annotate_cuda_graph_trace` (2.12 and later) writes into the arguments of replayed work what
# `mark_kernels` said when its node was captured: a text as `str` or under keys of the program's own, of which
# `module_fqn` is the path of a module. A replay calls no layers, so each has a call without a length in the graph
# launch that replayed it.

ANNOTATED = {"row": pl.Int64(), "annotation": pl.Categorical()}
"""Columns of replayed work that is annotated."""
_LAUNCH = ("process_id", "correlation_id")
_ENOUGH = 0.5  # of device time: less does not make annotations the layers of a trace without modules


def annotated_work(work: pl.DataFrame) -> pl.DataFrame:
    """The rows of ANNOTATED: device work that a graph replayed and that is annotated."""
    return work.filter(pl.col("graph_node_id") > 0, pl.col("annotation").is_not_null()).select(list(ANNOTATED))


def with_layers(tables: Mapping[str, pl.DataFrame], noted: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The staging tables `spans`, `layers` and `attributions` that follow from `noted`, of ANNOTATED; none of nothing.

    Annotations are modules where the trace has modules or they hold half of its device time, and ranges otherwise.
    """
    spans = tables["spans"]
    work = _with_launch_and_text(spans, noted)
    if work.is_empty():
        return {}
    calls = _calls(work, spans)
    kind = Kind.MODULE if _are_layers(spans, work) else Kind.RANGE
    layers = calls.select(
        pl.col("layer_row").alias("row"), "process_id", "start_ns",
        duration_ns=pl.lit(0, pl.Int64), name="annotation", level=pl.lit(str(Level.LAYER)), kind=pl.lit(str(kind)),
    )  # fmt: skip
    shares = work.join(calls, on=[*_LAUNCH, "annotation"], how="inner", nulls_equal=True, maintain_order="left").select(
        "row", "layer_row", weight=pl.lit(1.0), basis=pl.lit(str(AttributionBasis.ANNOTATION))
    )
    first = work.group_by("annotation").agg(pl.col("start_ns").min()).sort("start_ns", "annotation")
    positions = first.select("annotation", sequence_index=pl.int_range(pl.len(), dtype=pl.Int64))
    facts = calls.join(positions, on="annotation", how="left", maintain_order="left").select(
        pl.col("layer_row").alias("row"), "sequence_index", layer_type=_layer_type(), path=pl.col("annotation")
    )
    return {
        "spans": _with(spans, frame_of("spans", layers)),
        "layers": frame_of("layers", facts),
        "attributions": frame_of("attributions", shares),
    }


def _with_launch_and_text(spans: pl.DataFrame, noted: pl.DataFrame) -> pl.DataFrame:
    """The annotated work with its launch, times and annotation as text; an empty annotation is none."""
    texts = {text: _annotation_text(text) for text in noted["annotation"].cast(pl.String).unique()}
    named = noted.with_columns(pl.col("annotation").cast(pl.String).replace_strict(texts, return_dtype=pl.String))
    columns = spans.select("row", *_LAUNCH, "start_ns", "duration_ns")
    return named.filter(pl.col("annotation") != "").join(columns, on="row", how="inner", maintain_order="left")


def _annotation_text(annotation: str) -> str:
    """What stands in JSON: a text, nothing for null, or anything else as JSON writes it."""
    value = json.loads(annotation)
    return "" if value is None else characters(value.strip()) if isinstance(value, str) else annotation


def _calls(work: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """One row a graph launch and annotation, from its start; where the launch is not in the file, its first work's."""
    launches = (
        spans.filter(pl.col("level") == str(Level.RUNTIME), pl.col("kind") == str(Kind.CALL))
        .select(*_LAUNCH, pl.col("start_ns").alias("launched_ns"))
        .drop_nulls()
        .group_by(_LAUNCH)
        .agg(pl.col("launched_ns").min())
    )
    calls = work.group_by(*_LAUNCH, "annotation").agg(pl.col("start_ns").min()).sort("start_ns", "annotation", *_LAUNCH)
    first_row = int(spans["row"].to_numpy().max(initial=0)) + 1
    return (
        calls.join(launches, on=list(_LAUNCH), how="left", maintain_order="left")
        .with_columns(pl.coalesce("launched_ns", "start_ns").alias("start_ns"))
        .with_columns(layer_row=pl.int_range(pl.len(), dtype=pl.Int64) + first_row)
    )


def _are_layers(spans: pl.DataFrame, work: pl.DataFrame) -> bool:
    if (spans["kind"] == str(Kind.MODULE)).any():
        return True
    every = spans.filter(pl.col("level") == str(Level.KERNEL))
    total, part = (float(rows["duration_ns"].fill_null(0).sum()) for rows in (every, work))
    return part >= _ENOUGH * total


def _layer_type() -> pl.Expr:
    """The last part of a path that is no number: `layers.3.mlp` is an `mlp`, `layers.3` one of `layers`."""
    last = pl.col("annotation").str.replace(r"(?:\.\d+)+$", "").str.extract(r"([^.]+)$")
    return pl.coalesce(last, "annotation")


def _with(rows: pl.DataFrame, added: pl.DataFrame) -> pl.DataFrame:
    """Both; large tables have other types of texts than small ones."""
    texts = [name for name, kind in rows.schema.items() if kind != added.schema[name]]
    return pl.concat([rows.with_columns(pl.col(texts).cast(pl.String).cast(pl.Categorical)), added])


# The lines of Python that called each operator: of the frames on its thread the innermost of the user's.

DEPTH = 3
"""So many of the user's innermost lines are kept of an operator."""
SEPARATOR = "; "
_NAME = re.compile(r"(.+)\((\d+)\): (.+)", re.DOTALL)
_INSTALLED = re.compile(r".*(?:site|dist)-packages/")
_STANDARD = re.compile(r"/[Ll]ib/python[\d.]*/")
_GENERATED = re.compile(r"/torchinductor_[^/]*/|/\.triton/")
_OUTSIDE = re.compile(r"/|[A-Za-z]:/|(?:.*/)?\.\./|~")
_CELL = "<ipython-input"
# What calls the user's code for the user: the framework, the compiler of kernels, wrappers of the standard library.
_FRAMEWORK = frozenset({"torch", "functorch", "torchgen", "triton"})
_WRAPPERS = frozenset(
    (
        *(
            "_collections_abc",
            "_weakrefset",
            "abc",
            "asyncio",
            "collections",
            "concurrent",
            "contextlib",
            "contextvars",
        ),
        *("copy", "copyreg", "dataclasses", "enum", "functools", "importlib", "inspect", "json", "logging", "os", "re"),
        *("multiprocessing", "pickle", "pkgutil", "runpy", "selectors", "socketserver", "subprocess", "tempfile"),
        *("threading", "traceback", "typing", "typing_extensions", "unittest", "warnings", "weakref"),
    )
)


@lru_cache(1 << 12)
def user_line(name: str, *, keep_private: bool) -> str | None:
    """A frame named `file(line): function` as `file:line function`; None where it is not the user's.

    Of a file outside the folders that Python finds modules in only its own name stays, unless private ones are kept.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    path, line, function = match.groups()
    path = path.replace("\\", "/")
    module = _INSTALLED.sub("", path)
    if not _is_users(path, module):
        return None
    if not keep_private:
        path = PurePosixPath(module).name if _OUTSIDE.match(module) else module
    return f"{path}:{line} {function}"


def _is_users(path: str, module: str) -> bool:
    """`module`: the path from the folder of installed packages on."""
    if path.startswith("<"):
        return path.startswith(_CELL)
    if _GENERATED.search(path) or (module == path and _STANDARD.search(path)):
        return False
    package = module.partition("/")[0].removesuffix(".py")
    return package not in _FRAMEWORK and package not in _WRAPPERS


@lru_cache(1 << 12)
def lines_of_stack(stack: str, *, keep_private: bool) -> str | None:
    """The user's innermost lines of frames joined by `;` or line ends, innermost first; None where there are none."""
    frames = (each.strip() for each in re.split(r"[;\n]", stack))
    lines = [line for each in frames if (line := user_line(each, keep_private=keep_private))]
    return SEPARATOR.join(lines[:DEPTH]) or None


_NOT_USERS = -1
_THREAD = ("process_id", "thread_id")
_COLUMNS = ("start", "end", "line", "thread")


class SourceLines:
    """The user's frames so far: 24 bytes each, on disk where they are many, and each distinct line once."""

    def __init__(self, *, keep_private: bool) -> None:
        self._keep_private = keep_private
        self._lines: dict[str, int] = {}
        self._threads: dict[tuple[int | None, int | None], int] = {}
        self._columns = {name: Growing(np.int64 if name in ("start", "end") else np.int32) for name in _COLUMNS}

    def add(self, frames: pl.DataFrame) -> None:
        """Adds frames (FRAME_COLUMNS), of the framework or of the user; such without a length hold no operator."""
        lines = self._line_numbers(frames["name"])
        is_kept = (lines != _NOT_USERS) & frames["dur_ns"].is_between(1, MAX_DURATION_NS).fill_null(
            value=False
        ).to_numpy()
        if not is_kept.any():
            return
        some = frames.filter(pl.Series(is_kept))
        start = some["ts_ns"].to_numpy()
        values = {"start": start, "end": start + some["dur_ns"].to_numpy(), "line": lines[is_kept]}
        values["thread"] = self._threads_of(some.select("pid", "tid"))
        for name, column in values.items():
            self._columns[name].add(column)

    def _line_numbers(self, names: pl.Series) -> NDArray[np.int32]:
        """The number of each frame's line, or -1."""
        distinct = names.unique().cast(pl.String)
        lines = [user_line(name, keep_private=self._keep_private) for name in distinct]
        numbers = [_NOT_USERS if line is None else self._lines.setdefault(line, len(self._lines)) for line in lines]
        number_of = dict(zip(distinct, numbers, strict=True))
        return names.replace_strict(number_of, return_dtype=pl.Int32).to_numpy()

    def _threads_of(self, rows: pl.DataFrame) -> NDArray[np.int32]:
        """The number of each row's process and thread."""
        first, second = rows.columns
        distinct = rows.unique()
        numbers = [self._threads.setdefault(each, len(self._threads)) for each in distinct.iter_rows()]
        numbered = distinct.with_columns(pl.Series("number", numbers, dtype=pl.Int32))
        joined = rows.join(numbered, on=[first, second], how="left", nulls_equal=True, maintain_order="left")
        return joined["number"].to_numpy()

    def with_lines(self, operators: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
        """The facts of operators with the lines that called them; where no frame did, what they were recorded with."""
        if not self._columns["line"].count or operators.is_empty():
            return operators
        where = spans.select("row", "start_ns", "duration_ns", *_THREAD)
        lines = self._of(operators.select("row").join(where, on="row", how="left", maintain_order="left"))
        if operators["source_lines"].null_count() < operators.height:
            lines = lines.cast(pl.String).fill_null(operators["source_lines"].cast(pl.String)).cast(pl.Categorical)
        return operators.with_columns(lines.alias("source_lines"))

    def _of(self, operators: pl.DataFrame) -> pl.Series:
        """The lines that called each operator (start_ns, duration_ns, process_id, thread_id), null where unknown."""
        moments = Moments(self._threads_of(operators.select(_THREAD)), operators["start_ns"].to_numpy())
        start, end, line, thread = (column.column() for column in self._columns.values())
        if len(start) > 1 and (np.diff(start) < 0).any():
            order = np.argsort(start, kind="stable")
            start, end, line, thread = (each[order] for each in (start, end, line, thread))
        nested = nest(thread, start, end, np.zeros(len(start), np.int8), threads=len(self._threads), moments=moments)
        ends = moments.time + operators["duration_ns"].to_numpy()
        held = _callers(nested.owner, nested.parent, (start, end), (moments.time, ends))
        return _stack_texts(held, nested.parent, line, list(self._lines))


def _callers(held: Positions, parent: Positions, frames: tuple[Ints, Ints], operators: tuple[Ints, Ints]) -> Positions:
    """The frame that called each operator: not one that starts with it and is shorter, which the operator called."""
    (start, end), (begins, ends) = frames, operators
    while True:
        called = (held >= 0) & (start[held] == begins) & (end[held] < ends)
        if not called.any():
            return held
        held = np.where(called, parent[held], held)


def _stack_texts(held: Positions, parent: Positions, line: NDArray[np.int32], lines: Sequence[str]) -> pl.Series:
    """The lines of these frames and of those around them as one text, each distinct one made once."""
    columns = []
    for _ in range(DEPTH):
        columns.append(np.where(held >= 0, line[held], _NOT_USERS))
        held = np.where(held >= 0, parent[held], held)
    stacks = pl.DataFrame({str(depth): column for depth, column in enumerate(columns)})
    distinct = stacks.unique(maintain_order=True)
    texts = [SEPARATOR.join(lines[each] for each in stack if each >= 0) or None for stack in distinct.iter_rows()]
    joined = distinct.with_columns(pl.Series("lines", texts, dtype=pl.Categorical))
    return stacks.join(joined, on=list(stacks.columns), how="left", maintain_order="left")["lines"]


def of_call_stacks(stacks: pl.Series, *, keep_private: bool) -> pl.Series:
    """The user's innermost lines of stacks that operators were recorded with, which are JSON texts."""
    distinct = stacks.unique().drop_nulls().cast(pl.String)
    lines = {each: _of_call_stack(each, keep_private=keep_private) for each in distinct}
    return stacks.replace_strict(lines, default=None, return_dtype=pl.Categorical)


def _of_call_stack(text: str, *, keep_private: bool) -> str | None:
    stack = json.loads(text)
    return lines_of_stack(characters(stack), keep_private=keep_private) if isinstance(stack, str) else None
