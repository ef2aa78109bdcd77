"""The device work of mixtures of experts: the part and the block that each activity is of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.classification import KernelClass, by_name, learn
from xsp_analyze.classification.experts import ExpertPart, expert_matcher, module_matcher
from xsp_analyze.frames.collectives import recorded_facts
from xsp_analyze.frames.kernels.kernel_classes import IS_COMMUNICATION

if TYPE_CHECKING:
    from xsp_analyze.trace.trace_view import TraceView

__all__ = ["PARTS", "expert_parts", "has_experts"]

PARTS = pl.Enum([str(part) for part in ExpertPart])
"""The type of a column `part`."""
_SEQUENCE = ("run_id", "process_id", "device_id", "step")
_ROUTING_CLASSES = (KernelClass.SOFTMAX, KernelClass.SORTING)
_BOUNDARY_CLASSES = [str(KernelClass.MATRIX_PRODUCT), str(KernelClass.ATTENTION)]
_DIRECTED = ("dispatch", "combine")  # kernels whose name says which way they send
_BOUNDARY = "boundary"
_ANCHORS = pl.Enum([*(str(part) for part in ExpertPart), _BOUNDARY])
_DESCRIBED = ["name", "path", "kernel_class", "collective"]
_OF_NAME = {"name": pl.Categorical, "named": pl.String, "between": pl.Boolean, "own_class": pl.String}
_OF_PATH = {"path": pl.Categorical, "module": pl.String, "block": pl.String}


def has_experts(frames: TraceView) -> bool:
    """Whether the products of experts ran: by a kernel's name, or in a module of experts."""
    names = _of_names(frames.device_work["name"].unique())
    if names.filter(pl.col("named") == str(ExpertPart.PRODUCTS)).height:
        return True
    paths = _of_paths(frames.trace.scan("layers").select(pl.col("path").unique()).collect()["path"])
    return bool(paths.filter(pl.col("module") == str(ExpertPart.PRODUCTS)).height)


def expert_parts(frames: TraceView) -> pl.DataFrame:
    """One row an activity of a mixture of experts, in order of start: span_id, `part`, and `block`, its path or null.

    Decided by the first that knows: a module of shared experts around it, its name, the collective that it is, the
    module around it, its class. What depends on what stands before and behind it on its device and in its step: a name
    that is an activation only between two products, and an all-to-all, which dispatches between routing and products
    and combines behind products, before any other product or attention, or between two kernels that combine; else it is
    an exchange.
    """
    work = _work(frames)
    paths = frames.trace.scan("layers").select(pl.col("path").unique()).collect()["path"]
    described = _facts_of_names(work.select(_DESCRIBED).unique(), paths)
    columns = "part", "anchor", "exchanges", "between", "of_class", "block"
    work = work.join(described.select(*_DESCRIBED, *columns), on=_DESCRIBED, how="left", nulls_equal=True)
    work = work.drop(_DESCRIBED).filter(pl.any_horizontal(pl.col("part", "anchor").is_not_null(), *columns[2:5]))
    ordered = work.sort(*_SEQUENCE, "start_ns", "span_id", nulls_last=True).with_columns(
        pl.col("anchor").shift(1).forward_fill().over(_SEQUENCE).alias("before"),
        pl.col("anchor").shift(-1).backward_fill().over(_SEQUENCE).alias("behind"),
    )
    placed = ordered.with_columns(pl.coalesce("part", _by_position().cast(PARTS)).alias("part"))
    return placed.filter(pl.col("part").is_not_null()).sort("start_ns", "span_id").select("span_id", "part", "block")


def _work(frames: TraceView) -> pl.DataFrame:
    """Every activity with its position, and what there is to tell its part by; of these few differ."""
    calls = frames.trace.scan("layers").select(pl.col("span_id").alias("layer_id"), "path").collect()
    kernels = frames.all_activities.filter(IS_COMMUNICATION)["span_id"]
    facts = recorded_facts(frames.trace, kernels.to_numpy())
    recorded = pl.DataFrame([kernels, facts["operation"].cast(pl.Categorical)]).drop_nulls()
    operation = pl.coalesce("operation", "collective")
    return (
        frames.all_activities.select(
            "span_id", *_SEQUENCE, "start_ns", "layer_id", "name", "kernel_class", pl.col("collective")
        )
        .join(calls, on="layer_id", how="left", maintain_order="left")
        .join(recorded, on="span_id", how="left", maintain_order="left")
        .with_columns(pl.col("collective").cast(pl.Categorical))
        .with_columns(
            pl.when(_is("collective", *_DIRECTED)).then("collective").otherwise(operation).alias("collective")
        )
        .drop("layer_id", "operation")
    )


def _facts_of_names(distinct: pl.DataFrame, paths: pl.Series) -> pl.DataFrame:
    """What each tells alone: its part, what it tells of others' positions, and whether its own position tells."""
    described = (
        distinct.join(_of_names(distinct["name"].unique()), on="name", how="left")
        .join(_of_paths(paths), on="path", how="left")
        .with_columns(pl.col("between").fill_null(value=False))
    )
    return described.with_columns(_by_itself().alias("part")).with_columns(
        pl.col("part").cast(PARTS),
        _anchor().cast(_ANCHORS).alias("anchor"),
        pl.col("collective").cast(pl.String).str.starts_with("all_to_all").fill_null(value=False).alias("exchanges"),
        _is("kernel_class", KernelClass.MIXTURE_OF_EXPERTS).alias("of_class"),
    )


def _of_names(names: pl.Series) -> pl.DataFrame:
    """What each kernel's name tells: `named`, whether only `between` products, and the class by the name alone."""
    texts = names.drop_nulls().cast(pl.String)
    learn(names=texts)
    expert_matcher().learn(texts)
    rows = []
    for text in texts:
        entry, own = expert_matcher().first(text), by_name(text)
        part = str(entry.part) if entry and entry.part else None
        rows.append((text, part, bool(entry and entry.between), str(own.kernel_class) if own else None))
    return pl.DataFrame(rows, schema={**_OF_NAME, "name": pl.String}, orient="row").cast({"name": names.dtype})


def _of_paths(paths: pl.Series) -> pl.DataFrame:
    """What each layer's path tells: the part of its `module`, and its `block`; of blocks that have experts."""
    texts = paths.drop_nulls().cast(pl.String)
    module_matcher().learn(texts)
    taken = [(text, entry) for text in texts if (entry := module_matcher().first(text))]
    rows = [(text, str(entry.part) if entry.part else None, entry.block(text)) for text, entry in taken]
    blocks = {block for _, part, block in rows if part != str(ExpertPart.ROUTING)}
    rows = [row for row in rows if row[2] in blocks]
    return pl.DataFrame(rows, schema={**_OF_PATH, "path": pl.String}, orient="row").cast({"path": paths.dtype})


def _is(column: str, *values: str) -> pl.Expr:
    return pl.col(column).is_in([str(value) for value in values]).fill_null(value=False)


def _by_itself() -> pl.Expr:
    """The part as far as the activity alone tells it."""
    own_product = _is("own_class", KernelClass.MATRIX_PRODUCT, KernelClass.MIXTURE_OF_EXPERTS)
    of_experts = _is("module", ExpertPart.PRODUCTS)
    communicates = _is("kernel_class", KernelClass.COMMUNICATION)
    of_class = _is("kernel_class", KernelClass.MIXTURE_OF_EXPERTS) | (pl.col("block").is_not_null() & ~communicates)
    return (
        pl.when(_is("module", ExpertPart.SHARED) & ~communicates)
        .then(pl.lit(str(ExpertPart.SHARED)))
        .when(pl.col("named").is_not_null() & ~pl.col("between"))
        .then("named")
        .when(_is("collective", "dispatch"))
        .then(pl.lit(str(ExpertPart.DISPATCH)))
        .when(_is("collective", "combine"))
        .then(pl.lit(str(ExpertPart.COMBINE)))
        .when((_is("module", ExpertPart.ROUTING) & ~communicates) | (of_class & _is("own_class", *_ROUTING_CLASSES)))
        .then(pl.lit(str(ExpertPart.ROUTING)))
        .when(of_experts & own_product)
        .then(pl.lit(str(ExpertPart.PRODUCTS)))
        .when(of_experts & pl.col("between"))
        .then(pl.lit(str(ExpertPart.ACTIVATION)))
        .when(of_class & ~pl.col("between"))
        .then(pl.lit(str(ExpertPart.OTHER)))
    )


def _anchor() -> pl.Expr:
    """What tells the position of others: routing with dispatch, products, combine; other products and attention."""
    return (
        pl.when(_is("part", ExpertPart.ROUTING, ExpertPart.DISPATCH))
        .then(pl.lit(str(ExpertPart.ROUTING)))
        .when(_is("part", ExpertPart.PRODUCTS, ExpertPart.COMBINE))
        .then("part")
        .when(pl.col("part").is_null() & pl.col("kernel_class").is_in(_BOUNDARY_CLASSES))
        .then(pl.lit(_BOUNDARY))
    )


def _by_position() -> pl.Expr:
    """The part of what is told by the anchors before and behind it; null where it is none of the experts'."""
    behind_products = _is("before", ExpertPart.PRODUCTS)
    before_products = _is("behind", ExpertPart.PRODUCTS)
    within_combine = _is("before", ExpertPart.COMBINE) & _is("behind", ExpertPart.COMBINE)
    exchanges = pl.col("exchanges")
    return (
        pl.when(pl.col("between") & behind_products & before_products)
        .then(pl.lit(str(ExpertPart.ACTIVATION)))
        .when(exchanges & _is("before", ExpertPart.ROUTING) & before_products)
        .then(pl.lit(str(ExpertPart.DISPATCH)))
        .when(exchanges & ((behind_products & ~before_products) | within_combine))
        .then(pl.lit(str(ExpertPart.COMBINE)))
        .when(exchanges)
        .then(pl.lit(str(ExpertPart.EXCHANGE)))
        .when("of_class")
        .then(pl.lit(str(ExpertPart.OTHER)))
    )
