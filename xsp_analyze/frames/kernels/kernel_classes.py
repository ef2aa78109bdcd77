"""The class of each device activity, worked out once for each pair of a name and the operator that launched it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification import (
    PEER_COPY,
    KernelClass,
    by_name,
    by_operator,
    classify,
    decide,
    label_of,
    learn,
    precision_of,
)
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernels.activities import origins
from xsp_model import Attribution, Kind, Level, Phase
from xsp_model.columns.arrays import nullable_index

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xsp_analyze.classification import Classified
    from xsp_model import Trace
    from xsp_model.columns.arrays import Bools, Ints

__all__ = [
    "CLASSES",
    "IS_COMMUNICATION",
    "classes_by_name",
    "communication_names",
    "functions_of",
    "kernel_classes",
    "kernel_labels",
    "product_names",
]

CLASSES = pl.Enum([str(c) for c in KernelClass])
"""The type of a column `kernel_class`."""
IS_COMMUNICATION = pl.col("kernel_class") == str(KernelClass.COMMUNICATION)
"""Of a frame with the columns of `kernel_classes`: which rows are communication."""
_LEVELS = [str(Level.OPERATOR), str(Level.LIBRARY)]


def kernel_classes(trace: Trace, activities: pl.DataFrame) -> pl.DataFrame:
    """For each of the activities (rows as `device_activities` has them): kernel_class, and collective where it is one.

    `collective` is as NCCL names operations (all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce,
    send_recv, dispatch, combine, barrier); null for what is no communication, or where no name tells.
    """
    if activities.is_empty():
        return pl.DataFrame(schema={"kernel_class": CLASSES, "collective": pl.Categorical})
    replayed = (activities["attribution"] == str(Attribution.GRAPH_REPLAY)).fill_null(value=False)
    layers = activities["layer_type"].set(replayed, None)
    of_layer = (activities["name"] == activities["layer_name"]).fill_null(value=False)  # the profiler knows no kernels
    operators = pl.select(pl.when(of_layer).then(layers).otherwise(_operators(trace, activities))).to_series()
    operator_ids, of_operators = _classes_of_operators(operators)
    layer_ids, of_layers = _classes_of_operators(layers)
    described = activities.select(
        "kind",
        "name",
        pl.Series("operator", operator_ids),
        pl.Series("layer", layer_ids),
        (pl.col("phase") == str(Phase.OPTIMIZER)).fill_null(value=False).alias("in_optimizer"),
    )
    number, first = numbers_by_appearance(*group_ids(described))
    distinct = described[first].with_columns(pl.col("kind", "name").cast(pl.String))
    learn(names=distinct["name"].unique())
    rows = [
        decide(kind, name, of_operators[operator], of_layers[layer], in_optimizer=in_optimizer)
        for kind, name, operator, layer, in_optimizer in distinct.iter_rows()
    ]
    table = pl.DataFrame(
        {"kernel_class": [str(row.kernel_class) for row in rows], "collective": [row.collective for row in rows]},
        schema={"kernel_class": CLASSES, "collective": pl.Categorical},
    )
    return table[number]


def _classes_of_operators(names: pl.Series) -> tuple[Ints, Sequence[Classified | None]]:
    """For each name a number, and what operators of each number do: thousands of names are of a few classes."""
    number, first = numbers_by_appearance(*group_ids([names]))
    texts = names.gather(first).cast(pl.String)
    learn(operators=filter(None, texts))
    by_text = [by_operator(name) if name else None for name in texts]
    distinct = list(dict.fromkeys(by_text))
    table = np.array([distinct.index(c) for c in by_text], dtype=np.int64)
    return table[number], distinct


def kernel_labels(rows: pl.DataFrame) -> pl.Series:
    """The column `kernel_label` for rows with kernel_name and kind; see `classification.label_of`."""
    return _by_distinct(rows, label_of).alias("kernel_label")


def functions_of(rows: pl.DataFrame) -> pl.Series:
    """The column `function` for the same rows: the name; of a template's its name before `<` and what it does.

    So kernels that differ only in arguments of one template are of one function. What a template does is its label's
    first word: launchers of PyTorch, CUTLASS or lambdas are templates of what they run.
    """
    return _by_distinct(rows, _function_of).alias("function")


def _function_of(name: str, kind: str) -> str:
    function, is_template, _ = name.partition("<")
    if not is_template or not function.strip() or "(" in function:
        return name
    label = label_of(name, kind).partition(" ")[0]
    function = function.removeprefix("void ")
    return function if label in function else f"{function} ({label})"


def classes_by_name(rows: pl.DataFrame) -> pl.Series:
    """The column `kernel_class` for rows with kernel_name and kind, by these alone, whoever launched the work."""
    return _by_distinct(rows, lambda name, kind: str(classify(kind, name).kernel_class)).alias("kernel_class")


def _by_distinct(rows: pl.DataFrame, function: Callable[[str, str], str]) -> pl.Series:
    """What the function answers for each row's kernel_name and kind, called once for each pair that occurs."""
    number, first = numbers_by_appearance(*group_ids(rows.select("kernel_name", "kind")))
    distinct = rows.select(pl.col("kernel_name", "kind").cast(pl.String))[first]
    learn(names=distinct["kernel_name"].unique())
    return pl.Series([function(name, kind) for name, kind in distinct.iter_rows()], dtype=pl.String)[number]


def communication_names(names: pl.Series) -> pl.Series:
    """The names of communication kernels, whoever launches them."""
    return _names(names, lambda _, c: c.kernel_class == KernelClass.COMMUNICATION)


def product_names(names: pl.Series, precision: str, *, transforms: bool = False) -> pl.Series:
    """The names of kernels that do products of tiles (of matrices, or as a convolution) in this precision.

    With `transforms` also those that only transform tiles, as Winograd's convolution by products of matrices needs.
    """

    def is_one(name: str, classified: Classified) -> bool:
        does_part = classified.products or (transforms and "winograd" in name.lower())
        return does_part and precision_of(name) == precision

    return _names(names, is_one)


def _names(names: pl.Series, holds: Callable[[str, Classified], bool]) -> pl.Series:
    """The names, each once, of whose class this holds."""
    distinct = names.unique().cast(pl.String).drop_nulls()
    learn(names=distinct)
    classified = [(name, by_name(name)) for name in distinct]
    return distinct.filter(pl.Series([c is not None and holds(name, c) for name, c in classified], dtype=pl.Boolean))


def _operators(trace: Trace, activities: pl.DataFrame) -> pl.Series:
    """The name of the innermost operator (or library call) around each launch that says what it launches.

    For a graph's replay that is where the kernel was captured: around the replay stands only what replays it all. A
    copy between devices is of the operator around it that communicates, though it calls `aten::copy_` for it.
    """
    spans = trace.scan("spans").select("parent_id", "level", "name").collect()
    parents, launchers = spans["parent_id"].fill_null(-1).to_numpy(), _launchers(trace, activities)
    at = _nearest(parents, launchers, _saying(spans))
    names = activities["name"].unique()
    of_peers = names.filter(names.cast(pl.String).str.contains(PEER_COPY))
    peers = activities["name"].is_in(of_peers.implode()) & (activities["kind"] == str(Kind.MEMCPY))
    if peers.any():
        is_peer = peers.to_numpy()
        around = _nearest(parents, launchers[is_peer], _saying(spans, KernelClass.COMMUNICATION))
        at[is_peer] = np.where(around >= 0, around, at[is_peer])
    return spans["name"].gather(nullable_index(at)).alias("operator")


def _saying(spans: pl.DataFrame, only: KernelClass | None = None) -> Bools:
    """Which spans are operators, or calls of libraries, whose name tells a class (or this one)."""
    is_operator = spans["level"].cast(pl.String).is_in(_LEVELS)
    names = spans["name"].filter(is_operator).unique()
    learn(operators=names.cast(pl.String))
    classes = [by_operator(name) for name in names.cast(pl.String)]
    says = [c is not None and (only is None or c.kernel_class == only) for c in classes]
    saying = names.filter(pl.Series(says, dtype=pl.Boolean))
    return (is_operator & spans["name"].is_in(saying.implode())).to_numpy()


def _launchers(trace: Trace, activities: pl.DataFrame) -> Ints:
    """The span that launched each activity, of a replayed one that captured it; -1 where there is none."""
    replayed = (activities["attribution"] == str(Attribution.GRAPH_REPLAY)).to_numpy()
    parents = np.where(replayed, -1, activities["parent_id"].fill_null(-1).to_numpy())
    origin = origins(trace, activities["span_id"])
    return np.where(origin != activities["span_id"].to_numpy(), origin, parents)


def _nearest(parent: Ints, start: Ints, mask: Bools) -> Ints:
    """The nearest span of the mask among each start and its ancestors, or -1; only these are walked."""
    starts, inverse = np.unique(start, return_inverse=True)
    waiting = np.flatnonzero(starts >= 0)
    while len(waiting):
        waiting = waiting[~mask[starts[waiting]]]
        starts[waiting] = parent[starts[waiting]]
        waiting = waiting[starts[waiting] >= 0]
    nearest: Ints = starts[inverse]
    return nearest
