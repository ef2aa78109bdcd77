"""The least work of calls of operators, by the models that hold for their names and by what else it follows from."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification import precision_of
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernels.activities import column_at, origins
from xsp_analyze.work_models.call import ServingLengths, Tensor, call_of
from xsp_analyze.work_models.formulas import FORMULAS
from xsp_analyze.work_models.registry import all_models
from xsp_model import Level
from xsp_model.columns.tree import innermost
from xsp_model.step_annotations import is_serving_step, parse_step_annotation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from xsp_analyze.work_models.call import Call, ModelledWork
    from xsp_analyze.work_models.registry import Models
    from xsp_model import Trace
    from xsp_model.columns.arrays import Ints

__all__ = [
    "DETAILS",
    "INPUTS",
    "LENGTHS",
    "LIST",
    "WORK",
    "inner_calls",
    "inner_names",
    "inner_operators",
    "is_modelled",
    "is_view",
    "lengths_of",
    "list_elements",
    "modelled_kinds",
    "takes_following",
    "takes_inner",
    "takes_lengths",
    "with_details",
]

# The least work of calls of operators, by the models that hold for their names.

INPUTS = ("input_shapes", "input_dtypes", "input_strides", "concrete_inputs")
LENGTHS = ("queries", "keys", "queries_squared", "queries_keys")
DETAILS = {
    "next_shapes": pl.String(),
    "next_dtypes": pl.String(),
    "kernel_precision": pl.String(),
    "inner_operators": pl.String(),
    "inner_calls": pl.String(),
    **dict.fromkeys(LENGTHS, pl.Int64()),
}
"""What the work of some calls follows from beside their name and INPUTS; see `with_details`."""
WORK = {
    "flop": pl.Float64(),
    "vector_flop": pl.Float64(),
    "read_bytes": pl.Float64(),
    "written_bytes": pl.Float64(),
    "bus_bytes": pl.Float64(),
    "precision": pl.String(),
    "element_type": pl.String(),
    "operator_class": pl.String(),
}
"""What `modelled_kinds` adds: a `ModelledWork`, the first operand's type and the class; null: not modelled."""

_DAMAGES = (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
_ENDLESS = 1e30  # flop or bytes of a call


def is_modelled(name: str) -> bool:
    """Whether there is a model for operators of this name."""
    return all_models().of(name) is not None


def is_view(name: str) -> bool:
    """Whether operators of this name do nothing by themselves: what they launch, operators inside them do."""
    model = all_models().of(name)
    return model is not None and model.formula is FORMULAS["view"]


def takes_lengths(name: str) -> bool:
    """Whether what operators of this name do follows from the lengths of the requests of a serving step."""
    model = all_models().of(name)
    return model is not None and bool(model.settings.get("lengths"))


def takes_following(name: str) -> bool:
    """Whether the output of operators of this name may have to be told by what runs next: of convolutions."""
    model = all_models().of(name)
    return model is not None and model.formula is FORMULAS["convolution"]


def takes_inner(name: str) -> bool:
    """Whether what operators of this name did may have to be told by the operators inside."""
    model = all_models().of(name)
    return model is not None and model.settings.get("inside") is True


def inner_names(name: str) -> tuple[str, ...]:
    """The operators directly inside whose inputs tell what operators of this name did."""
    model = all_models().of(name)
    names = model.settings.get("inside") if model else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


def modelled_kinds(kinds: pl.DataFrame, models: Models | None = None) -> pl.DataFrame:
    """The kinds of calls (name, INPUTS, DETAILS) with the columns of WORK.

    `models`: by which; None: by those of this package and of installed distributions.
    """
    by = all_models() if models is None else models
    works = [_row(row, by) for row in kinds.iter_rows(named=True)]
    return kinds.hstack(pl.DataFrame(works, schema=WORK, orient="row"))


def _row(call: Mapping[str, object], models: Models) -> tuple[object, ...]:
    name = str(call["name"])
    model = models.of(name)
    try:
        recorded = _call_of_row(name, call)
        work = model.work(recorded) if model and recorded else None
        return (*_fields(work), _element_type(recorded), str(model.operator_class) if model else None)
    except _DAMAGES:  # sizes and scalars that no operator takes: what it did is not known
        return (*_fields(None), None, str(model.operator_class) if model else None)


def _call_of_row(name: str, call: Mapping[str, object]) -> Call | None:
    return call_of(
        name,
        *(_text(call[column]) for column in INPUTS),
        following=_first_tensor(_text(call.get("next_shapes")), _text(call.get("next_dtypes"))),
        kernel_precision=_text(call.get("kernel_precision")),
        lengths=_lengths(call),
        inner=tuple((_text(call.get("inner_operators")) or "").split()),
        inner_calls=tuple(_inner_calls(_text(call.get("inner_calls")))),
    )


def _inner_calls(text: str | None) -> Iterator[Call]:
    """The calls that `inner_calls` wrote."""
    for line in (text or "").split("\n"):
        name, *texts = line.split("\t")
        call = call_of(name, *texts) if len(texts) == len(INPUTS) else None
        if call is not None:
            yield call


def _fields(work: ModelledWork | None) -> tuple[object, ...]:
    if work is None:
        return (None,) * (len(WORK) - 2)
    amounts = (work.flop, work.vector_flop, work.read_bytes, work.written_bytes, work.bus_bytes)
    if any(each is not None and not 0 <= each < _ENDLESS for each in amounts):
        return (None,) * (len(WORK) - 2)  # sizes that no memory has: the file is damaged
    return (*(None if each is None else float(each) for each in amounts), work.precision)


def _element_type(call: Call | None) -> str | None:
    tensors = (each for each in (call.inputs if call else ()) if isinstance(each, Tensor))
    return next((each.element_type for each in tensors), None)


def _lengths(call: Mapping[str, object]) -> ServingLengths | None:
    sums = [call.get(column) for column in LENGTHS]
    if all(each is None for each in sums):
        return None
    return ServingLengths(*(each if isinstance(each, int) else None for each in sums))


@cache
def _first_tensor(shapes: str | None, dtypes: str | None) -> Tensor | None:
    call = call_of("", shapes, dtypes, kernel_precision="fp32")  # where types are missing: only the shape is asked for
    first = call.inputs[0] if call else None
    return first if isinstance(first, Tensor) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# The operators inside a call: what it did that its inputs do not tell.


def inner_operators(trace: Trace, ids: pl.Series) -> pl.DataFrame:
    """span_id, inner_operators: the names of those directly inside each, a line each; no row where there is none."""
    if ids.is_empty():
        return pl.DataFrame(schema={"span_id": pl.Int64, "inner_operators": pl.String})
    inside = pl.col("parent_id").is_in(ids.implode()) & (pl.col("level") == str(Level.OPERATOR))
    names = pl.col("name").cast(pl.String).unique().sort().str.join("\n").alias("inner_operators")
    operators = trace.scan("spans").filter(inside)
    return operators.group_by(pl.col("parent_id").alias("span_id")).agg(names).collect()


def inner_calls(trace: Trace, ids: pl.Series, names: Collection[str]) -> pl.DataFrame:
    """span_id, inner_calls: those of these names directly inside each, in order of start, alike ones once.

    A line each: name and INPUTS, apart by tabs, which JSON does not have as they are.
    """
    if ids.is_empty():
        return pl.DataFrame(schema={"span_id": pl.Int64, "inner_calls": pl.String})
    name = pl.col("name").cast(pl.String)
    inside = pl.col("parent_id").is_in(ids.implode()) & (pl.col("level") == str(Level.OPERATOR)) & name.is_in(names)
    texts = [pl.col(each).cast(pl.String).fill_null("") for each in INPUTS]
    return (
        trace.scan("spans")
        .filter(inside)
        .select("span_id", "parent_id", name)
        .join(trace.scan("operators").select("span_id", *INPUTS), on="span_id")
        .sort("span_id")
        .select(
            pl.col("parent_id").alias("span_id"), pl.concat_str("name", *texts, separator="\t").alias("inner_calls")
        )
        .group_by("span_id", maintain_order=True)
        .agg(pl.col("inner_calls").unique(maintain_order=True).str.join("\n"))
        .collect()
    )


# The lengths of the requests in the serving step that a call ran in, which attention's work follows from.

_Sums = tuple[int | None, ...]
_MARKED = (str(Level.APPLICATION), str(Level.MODEL))


def lengths_of(trace: Trace, ids: pl.Series) -> pl.DataFrame:
    """span_id and the columns of LENGTHS: of the innermost range around each span that a serving engine named.

    Null where there is none, or its name does not say.
    """
    taking = ids.alias("span_id").to_frame()
    lengths = (
        taking.with_columns(_ranges(trace, ids)) if len(ids) else taking.with_columns(range=pl.lit(None, pl.String))
    )
    sums = {text: _sums(text) for text in lengths["range"].unique().drop_nulls()}
    columns = [
        pl.col("range").replace_strict({t: s[i] for t, s in sums.items()}, default=None, return_dtype=pl.Int64).alias(c)
        for i, c in enumerate(LENGTHS)
    ]
    return lengths.select("span_id", *columns)


def _ranges(trace: Trace, ids: pl.Series) -> pl.Series:
    """For each span the name of the innermost serving step around it; null: there is none."""
    spans = trace.scan("spans")
    marked = spans.filter(pl.col("level").cast(pl.String).is_in(_MARKED))
    ranges = marked.select("span_id", pl.col("name").cast(pl.String).alias("range")).collect()
    engines = [name for name in ranges["range"].unique() if is_serving_step(name)]
    steps = ranges.filter(pl.col("range").is_in(engines))
    if steps.is_empty():
        return pl.Series("range", [None] * len(ids), dtype=pl.String)
    parents = spans.select(pl.col("parent_id").fill_null(-1)).collect().to_series().to_numpy()
    is_step = np.zeros(len(parents), dtype=bool)
    is_step[steps["span_id"].to_numpy()] = True
    around = pl.DataFrame({"span_id": innermost(parents, is_step)[ids.to_numpy()]}, schema={"span_id": pl.Int64})
    return around.join(steps, on="span_id", how="left", maintain_order="left")["range"]


def _sums(text: str) -> _Sums:
    """The values of LENGTHS; where every request has one token, as in decoding, the products need no saying."""
    step = parse_step_annotation(text)
    if step is None:
        return (None,) * len(LENGTHS)
    if step.tokens is not None and step.tokens == step.requests:
        return (step.tokens, step.kv_tokens, step.tokens, step.kv_tokens)
    return (step.tokens, step.kv_tokens, step.tokens_squared, step.tokens_by_kv_tokens)


# The type of the elements of tensors in lists, which profilers do not write, by the kernels that work on them.

LIST = "TensorList"
"""How profilers write the type of a list of tensors."""
# `CatArrayBatchedCopy<OpaqueType<4u>, ...>`, `...<c10::Half, ...>`; mangled `CatArrayBatchedCopyINS1_10OpaqueTypeILj4E`
_COPIED = re.compile(r"CatArray\w*(?:<(?:[^<>]*::)?|INS\d*_\d+)(?:OpaqueType(?:<|ILj)(?P<bytes>\d+)|(?P<type>[\w ]+),)")
_OF_SIZE = {"1": "8 bit", "2": "16 bit", "4": "32 bit", "8": "64 bit", "16": "128 bit"}
_OF_NAME = {"long": "int64", "int": "int32", "short": "int16", "signed char": "int8", "unsigned char": "uint8"}


def list_elements(trace: Trace, operators: Ints) -> pl.DataFrame:
    """span_id, kernel_precision: of those operators whose kernels' names all tell one type, or tell none."""
    if not len(operators):
        return pl.DataFrame(schema={"span_id": pl.Int64, "kernel_precision": pl.String})
    spans = trace.scan("spans").select("span_id", "parent_id", "level", "name").collect()
    parents = spans["parent_id"].fill_null(-1).to_numpy()
    mask = np.zeros(len(parents), dtype=bool)
    mask[operators] = True
    nearest = innermost(parents, mask)
    kernels = spans.filter(pl.col("level") == str(Level.KERNEL)).select("span_id", "name")
    below = kernels.select(pl.Series("span_id", nearest[origins(trace, kernels["span_id"])]), "name")
    below = below.filter(pl.col("span_id") >= 0)
    current = below.select("span_id", _element_types(below["name"].cast(pl.String)))
    pairs = []
    while len(current := current.drop_nulls().filter(pl.col("span_id") >= 0).unique()):
        pairs.append(current)
        above = parents[current["span_id"].to_numpy()]
        current = current.with_columns(pl.Series("span_id", np.where(above >= 0, nearest[above], -1)))
    return _agreeing_pairs(pl.concat(pairs) if pairs else current)


def _agreeing_pairs(pairs: pl.DataFrame) -> pl.DataFrame:
    """Of each span the type that all its kernels tell."""
    one = pl.col("kernel_precision").n_unique() == 1
    types = pairs.group_by("span_id").agg(pl.when(one).then(pl.col("kernel_precision").first()))
    return types.with_columns(pl.col("span_id").cast(pl.Int64))


def _element_types(names: pl.Series) -> pl.Series:
    distinct = names.unique().drop_nulls().to_list()
    types = {name: _element_type_of_kernel(name) for name in distinct}
    return names.replace_strict(types, default=None, return_dtype=pl.String).alias("kernel_precision")


def _element_type_of_kernel(name: str) -> str | None:
    """Of a kernel that lays tensors end to end, the size that it moves, or its type; of others as its name tells."""
    copied = _COPIED.search(name)
    if copied is None:
        return precision_of(name)
    return _OF_SIZE.get(copied["bytes"]) or _OF_NAME.get(copied["type"] or "") or precision_of(name)


# What else the work of some calls follows from, beside their inputs: kernels, requests, what runs next.

_THREAD = ("run_id", "process_id", "thread_id")
_NO_TYPES = "[]"  # as torch 1.8 wrote them
_NO_TENSOR = r"^\s*\[\s*(\[\s*\]|\])"  # the first input is a scalar, or there is none


def with_details(trace: Trace, ids: Ints, kind_of: Ints, kinds: pl.DataFrame) -> tuple[Ints, pl.DataFrame]:
    """The kinds with the columns of DETAILS, and those split whose calls differ in them; see `CallKinds`.

    `kernel_precision`: of calls that take lists of tensors, whose types profilers do not write, and of those of files
    without any type, what kernels' names tell. The lengths of requests: of models that take them. `next_shapes`,
    `next_dtypes`: of calls whose output nothing else tells, those of the operator that the thread runs next.
    `inner_operators`: of calls that settings do not tell enough of, the names of those directly inside. `inner_calls`:
    of calls whose own inputs leave out what they work on, inputs of those inside.
    """
    inside = {name: inner_names(name) for name in kinds["name"].unique()}
    names = {
        name: (takes_lengths(name), takes_following(name), takes_inner(name), bool(inside[name])) for name in inside
    }
    takes = np.array([names[name] for name in kinds["name"]], dtype=bool).reshape(-1, 4)
    types = kinds["input_dtypes"]
    lists = (types.str.contains(LIST, literal=True) | (types == _NO_TYPES)).fill_null(value=False).to_numpy()
    lengths, follows, inner, details = takes.T
    unset = (kinds["concrete_inputs"].is_null() & kinds["input_shapes"].is_not_null()).to_numpy()
    follows, inner = follows & unset, inner & unset
    rows = np.flatnonzero((lists | lengths | follows | inner | details)[kind_of])
    plain = kinds.with_columns(pl.lit(None, kind).alias(name) for name, kind in DETAILS.items())
    if not len(rows):
        return kind_of, plain
    calls = pl.DataFrame({"span_id": ids[rows], "kind": kind_of[rows]})
    parts = [
        list_elements(trace, calls["span_id"].filter(pl.Series(lists[kind_of[rows]])).to_numpy()),
        lengths_of(trace, calls["span_id"].filter(pl.Series(lengths[kind_of[rows]]))),
        _following(trace, calls["span_id"].filter(pl.Series(follows[kind_of[rows]]))),
        inner_operators(trace, calls["span_id"].filter(pl.Series(inner[kind_of[rows]]))),
        inner_calls(trace, calls["span_id"].filter(pl.Series(details[kind_of[rows]])), {*chain(*inside.values())}),
    ]
    for part in parts:
        calls = calls.join(part, on="span_id", how="left", maintain_order="left")
    number, first = numbers_by_appearance(*group_ids(calls.drop("span_id")))
    distinct = calls[first]
    detailed = plain[distinct["kind"].to_numpy()].with_columns(distinct.select(*DETAILS).get_columns())
    out = kind_of.copy()
    out[rows] = kinds.height + number
    return out, pl.concat([plain, detailed])


def _following(trace: Trace, ids: pl.Series) -> pl.DataFrame:
    """span_id, next_shapes, next_dtypes: of the first operator of the thread, after each ended, that takes a tensor.

    Batch normalisation counts its batches before it starts: that call takes none.
    """
    schema = {"span_id": pl.Int64, "next_shapes": pl.String, "next_dtypes": pl.String}
    if ids.is_empty():
        return pl.DataFrame(schema=schema)
    columns = [column_at(trace, c, ids) for c in (*_THREAD, "start_ns", "duration_ns")]
    calls = pl.DataFrame([ids, *columns]).with_columns((pl.col("start_ns") + pl.col("duration_ns")).alias("time_ns"))
    texts = trace.scan("operators").select(
        "span_id",
        pl.col("input_shapes").cast(pl.String).alias("next_shapes"),
        pl.col("input_dtypes").cast(pl.String).alias("next_dtypes"),
    )
    takes_tensor = pl.col("next_dtypes").is_not_null() & ~pl.col("next_shapes").str.contains(_NO_TENSOR)
    spans = trace.scan("spans").filter(pl.col("level") == str(Level.OPERATOR)).select("span_id", *_THREAD, "start_ns")
    operators = texts.filter(takes_tensor).join(spans, on="span_id").rename({"start_ns": "time_ns"}).collect()
    ordered = calls.drop_nulls("time_ns").sort("time_ns", "span_id").drop("start_ns", "duration_ns")
    pairs = ordered.join_asof(
        operators.sort("time_ns", "span_id").drop("span_id"),
        on="time_ns",
        by=_THREAD,
        strategy="forward",
        check_sortedness=False,  # polars cannot where threads are told apart; they are sorted above
    )
    return pairs.select(*schema)
