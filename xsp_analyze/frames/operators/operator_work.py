"""Operators with their modelled work, the least time of it on the devices, and the device work they launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification import KernelClass, by_name, learn, precision_of
from xsp_analyze.formulas import known_sum, quotient
from xsp_analyze.frames.group_ids import group_ids, numbers_by_appearance
from xsp_analyze.frames.kernels.activities import column_at, origins
from xsp_analyze.frames.kernels.kernel_means import counted_work, layer_executions
from xsp_analyze.frames.kernels.roofline import BANDWIDTH, DEVICE, cache_bytes, peaks_of
from xsp_analyze.frames.layers.layer_time import LAYER_KEY
from xsp_analyze.frames.operators.modelled_calls import is_view
from xsp_analyze.frames.operators.operator_calls import call_of_work, operator_calls
from xsp_analyze.frames.steps import step_counts
from xsp_analyze.work_models.call import Tensor, call_of
from xsp_model import Attribution, Phase
from xsp_model.columns.arrays import lookup, nullable_index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.trace.trace_view import TraceView
    from xsp_analyze.work_models.call import Call
    from xsp_model import Trace
    from xsp_model.columns.arrays import Ints

__all__ = [
    "BY_NAME",
    "BY_SHAPE",
    "EXCUSES",
    "FLOPS",
    "PRODUCTS",
    "RATES",
    "RoofedCalls",
    "calls_made",
    "case_labels",
    "flops_by_layer",
    "operator_work",
    "place_labels",
    "rates_and_roof",
    "roofed_calls",
    "tensor_labels",
    "time_of_no_operator",
]

# What people are told about calls of one kind: their tensors, layers and lines in short texts.

_MAX_TENSORS = 6
_MAX_LAYERS = 3


def tensor_labels(kinds: pl.DataFrame) -> pl.DataFrame:
    """The kinds with `shapes` and `dtypes`: `8x128x512, 2048x512` and `bf16` (or one type a tensor); null: unknown."""
    texts = [_texts(*row) for row in kinds.select("input_shapes", "input_dtypes", "kernel_precision").iter_rows()]
    return kinds.hstack(pl.DataFrame(texts, schema={"shapes": pl.String, "dtypes": pl.String}, orient="row"))


def _texts(shapes: str | None, dtypes: str | None, listed: str | None) -> tuple[str | None, str | None]:
    call = call_of("", shapes, dtypes, kernel_precision=listed)
    if call is None:
        return None, None
    parts = _parts(call)
    shown = [shape for shape, _ in parts[:_MAX_TENSORS]]
    more = [f"and {len(parts) - _MAX_TENSORS} more"] if len(parts) > _MAX_TENSORS else []
    types = [kind for _, kind in parts]
    short = types[:1] if len(set(types)) == 1 else [*types[:_MAX_TENSORS], *more]
    return ", ".join([*shown, *more]), ", ".join(short)


def _parts(call: Call) -> list[tuple[str, str]]:
    """Shape and type of each input that is a tensor or a list of them."""
    parts = []
    for each in call.inputs:
        if isinstance(each, Tensor):
            parts.append(("x".join(map(str, each.shape)) or "scalar", each.element_type))
        elif each:
            elements = sum(t.elements for t in each)
            parts.append((f"{len(each)} tensors of {elements} elements", call.kernel_precision or each[0].element_type))
    return parts


def case_labels(cases: pl.DataFrame, group: Ints, count: Ints) -> pl.DataFrame:
    """One row a group of cases, of so many calls each: operator_class, precision, bound (by most time at the roof)."""
    rows = cases.select("operator_class", "precision", "bound", "roof_ns").with_columns(
        pl.Series("group", group), pl.Series("count", count)
    )
    bounds = (
        rows.drop_nulls("bound")
        .group_by("group", "bound")
        .agg((pl.col("roof_ns") * pl.col("count")).sum().alias("time"))
        .sort("group", "time", "bound", descending=[False, True, False])
        .unique("group", keep="first", maintain_order=True)
        .select("group", "bound")
    )
    first = rows.group_by("group", maintain_order=True).agg(pl.col("operator_class", "precision").drop_nulls().first())
    return first.join(bounds, on="group", how="left", maintain_order="left")


def place_labels(trace: Trace, calls: pl.DataFrame, group: Ints) -> pl.DataFrame:
    """One row a group of calls (span_id): `layers` and `source_lines` that most of them ran in and came from."""
    lines = _text_counts(trace.scan("operators").select("span_id", "source_lines").drop_nulls(), calls, group)
    lines = lines.unique("group", keep="first", maintain_order=True).select("group", "source_lines")
    return _layers(trace, calls, group).join(lines, on="group", how="full", coalesce=True)


def _text_counts(texts: pl.LazyFrame, calls: pl.DataFrame, group: Ints) -> pl.DataFrame:
    """Each group's texts with how many of its calls have them, most first."""
    rows = texts.collect()
    column = rows.columns[1]
    at = lookup(calls["span_id"].to_numpy(), rows["span_id"].to_numpy())
    inside = np.flatnonzero(at >= 0)
    named = pl.DataFrame({"group": group[at[inside]], column: rows[column].gather(inside)})
    counts = named.group_by("group", column).len().with_columns(pl.col(column).cast(pl.String))
    return counts.sort("group", "len", column, descending=[False, True, False])


def _layers(trace: Trace, calls: pl.DataFrame, group: Ints) -> pl.DataFrame:
    schema = {"group": pl.Int64, "layers": pl.String}
    layers = trace.scan("layers").select("span_id", "layer_name").collect()
    if layers.is_empty():
        return pl.DataFrame(schema=schema)
    ids = column_at(trace, "layer_id", calls["span_id"]).fill_null(-1).to_numpy()
    names = layers["layer_name"].gather(nullable_index(lookup(layers["span_id"].to_numpy(), ids)))
    named = pl.DataFrame({"group": group, "layer_name": names}).drop_nulls().group_by("group", "layer_name").len()
    ordered = named.with_columns(pl.col("layer_name").cast(pl.String)).sort(
        "group", "len", "layer_name", descending=[False, True, False]
    )
    more = pl.len().cast(pl.Int64) - _MAX_LAYERS
    shown = pl.col("layer_name").head(_MAX_LAYERS).str.join(", ")
    text = pl.when(more > 0).then(pl.format("{} and {} more", shown, more)).otherwise(shown)
    return ordered.group_by("group", maintain_order=True).agg(text.alias("layers")).cast({"group": pl.Int64})


# What the devices would take at best for the calls that work is counted by.
#
# A call's least time is that of the nearest of its roofs: its products at the peak of the precision that they run in,
# its
# other arithmetic at the vector peak, its bytes at the bandwidth of memory, what it sends at that of the link.
# Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009.

RATES: Mapping[str, Sequence[str]] = {
    "fp64": ("fp64_tensor", "fp64"),
    "fp32": ("fp32",),
    "tf32": ("tf32",),
    "fp16": ("fp16_tensor", "fp16"),
    "bf16": ("bf16_tensor",),
    "fp8": ("fp8_tensor",),
    "int8": ("int8_tensor",),
}
"""The peaks that bound products of each precision: the first that is known of the device."""
PRODUCTS = ("matrix product", "convolution", "attention", "mixture of experts")
"""The classes of kernels that do products."""
_VECTOR = "fp32"  # what arithmetic outside of products is done in, whatever the type of the operands
_LINK, _HOST_LINK = "nvlink", "pcie"
_HOST_COPIES = ("Host-to-Device", "Device-to-Host")
_ROOFS = ("compute", "memory", "link")
_AMOUNTS = ("flop", "vector_flop", "read_bytes", "written_bytes")
_NS_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class RoofedCalls:
    """`case_of`: for each of the calls of `OperatorCalls` a row of `cases`.

    `cases`: calls of one kind on one device, whose kernels tell the same: name, shapes and dtypes for people, the
    columns of `modelled_calls.WORK` with `precision` filled; `launched`: whether device work was; and at best
    product_ns of the products alone, roof_ns and bound (compute, memory or link) of all. Null where the work is not
    told, a peak that it takes is not known, or the call launched no device work.

    A call may take less than its roof: `excuse` says by what (one of EXCUSES), `least_ns` how long it takes even then.
    A model of calls that took less is refused (`is_refused`): none of its amounts stand. `is_above`: whether the
    calls of a case took less than their roof all in all.
    """

    case_of: Ints
    cases: pl.DataFrame


FEWER_FLOP, CACHES, SWITCHES, CLOCK, RATES_DIFFER = "fewer flop", "caches", "switches", "clock", "rates"
EXCUSES = {
    FEWER_FLOP: "its kernels, by name, compute with fewer operations (Winograd, FFT)",
    CACHES: "the device's caches held operands, so that not all bytes went to memory",
    SWITCHES: "switches between devices added up, so that a rank sent its message once, not nearly twice",
    CLOCK: "a GeForce card runs above the clock that is listed, as far as it stays cool",
    RATES_DIFFER: "by no more than peaks and clocks differ from what is listed",
}
"""How a call can take less than its least time."""
_MARGIN = 1.05  # as far as RATES_DIFFER goes
_BOOST = 1.3  # as far as CLOCK does: an RTX 2080 Ti, listed with 1545 MHz, reaches 2 GHz
_LARGEST_RATIO = (
    8  # as far as all else does: caches have up to five times the bandwidth of memory, Winograd a fifth of flop
)
_SPARING = r"(?i)winograd|fft\d|_fft|fft_|sp3asmconv|all_?reduce"  # sp3AsmConv is MIOpen's Winograd


def roofed_calls(frames: TraceView) -> RoofedCalls:
    """The calls held against the peaks of their devices.

    A copy between host and device is bound by the bytes that the copies recorded, at the bandwidth of PCIe.
    """
    counted = frames.once(operator_calls)
    launched, devices = _work_of_calls(frames)
    calls = counted.calls.select(pl.int_range(pl.len()).alias("row"), "kind")
    calls = calls.join(launched, on="row", how="left", maintain_order="left")
    case_of, first = numbers_by_appearance(*group_ids(calls.drop("row", "spent_ns", "times")))
    distinct = calls[first]
    sums = calls.group_by(pl.Series("case", case_of)).agg(pl.col("spent_ns", "times").sum()).sort("case")
    cases = tensor_labels(counted.kinds)[distinct["kind"].to_numpy()].hstack(
        distinct.drop("row", "kind", "spent_ns", "times")
    )
    cases = cases.with_columns(pl.when(~_unknown_view(cases)).then(c).alias(c) for c in _AMOUNTS)
    held = _with_roofs(cases, _wide(peaks_of(frames.trace, devices), cache_bytes(frames.trace, devices)))
    return RoofedCalls(case_of, _without_impossible(held.hstack(sums.drop("case"))))


def _without_impossible(cases: pl.DataFrame) -> pl.DataFrame:
    """Without the work of cases whose calls took less time than is possible, whatever helped them."""
    spent, calls = pl.col("spent_ns"), pl.col("times")
    is_refused = (pl.col("least_ns") * calls > spent * _MARGIN).fill_null(value=False) & (spent > 0)
    is_above = (pl.col("roof_ns") * calls > spent).fill_null(value=False)
    marked = cases.with_columns(is_refused.alias("is_refused"), is_above.alias("is_above"))
    gone = [*_AMOUNTS, "bus_bytes", "product_ns", "roof_ns", "least_ns", "bound"]
    return marked.with_columns(pl.when(~pl.col("is_refused")).then(c).alias(c) for c in gone)


def _unknown_view(cases: pl.DataFrame) -> pl.Series:
    """Views that launched device work themselves: what it did the operators inside would tell, and there are none."""
    views = pl.Series([is_view(name) for name in cases["name"]], dtype=pl.Boolean)
    return views & ~cases["is_given"] & cases["device"].is_not_null()


def _with_roofs(cases: pl.DataFrame, peaks: pl.DataFrame) -> pl.DataFrame:
    held = (
        cases.with_columns(_precision())
        .join(peaks, on="device", how="left", maintain_order="left")
        .with_columns(_products_ns().alias("product_ns"))
        .with_columns(_computing_ns().alias("compute"), _moving_ns().alias("memory"), _sending_ns().alias("link"))
        .with_columns(
            pl.when("is_sparing")
            .then(0.0)
            .when("boosts")
            .then(pl.col("compute") / _BOOST)
            .otherwise("compute")
            .alias("fewest"),
            _uncached_ns().alias("uncached"),
            pl.when("is_sparing").then(pl.col("link") / 2).otherwise("link").alias("sent"),
        )
    )
    longest = pl.max_horizontal(_ROOFS)
    has_roofs = pl.all_horizontal(pl.col(_ROOFS).is_not_null()) & pl.col("device").is_not_null()
    bound = pl.coalesce(pl.when(pl.col(roof) == longest).then(pl.lit(roof)) for roof in reversed(_ROOFS))
    return held.select(
        *(c for c in cases.columns if c not in {"device", "told", "host_bytes", "is_sparing"}),
        pl.col("device").is_not_null().alias("launched"),
        "product_ns",
        pl.when(has_roofs).then(longest).alias("roof_ns"),
        pl.when(has_roofs, longest > 0).then(bound).alias("bound"),
        pl.when(has_roofs)
        .then(pl.max_horizontal("fewest", "uncached", "sent", longest / _LARGEST_RATIO))
        .alias("least_ns"),
        pl.when(pl.col("is_sparing") & (bound == "compute"))
        .then(pl.lit(FEWER_FLOP))
        .when(bound == "link")
        .then(pl.lit(SWITCHES))
        .when(pl.col("boosts") & (bound == "compute"))
        .then(pl.lit(CLOCK))
        .otherwise(pl.lit(CACHES))
        .alias("excuse"),
    )


def _precision() -> pl.Expr:
    """What the model says; else a narrow operand's type; else what kernels' names tell, as TF32 of FP32 operands."""
    operand = pl.col("element_type")
    return pl.coalesce("precision", pl.when(operand != _VECTOR).then(operand), "told", operand).alias("precision")


def _work_of_calls(frames: TraceView) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Of each row of calls with device work: its device's number, what its kernels tell, bytes to or from the host.

    And the devices (columns of DEVICE) by that number.
    """
    work = frames.device_work
    number, first = numbers_by_appearance(*group_ids(work.select(DEVICE)))
    copies = frames.trace.scan("copies").filter(pl.col("copy_kind").cast(pl.String).is_in(_HOST_COPIES))
    copied = copies.select("span_id", pl.col("bytes").cast(pl.Float64).alias("host_bytes")).collect()
    rows = work.select(
        pl.Series("row", frames.once(call_of_work)),
        pl.Series("device", number),
        *_facts_by_kernel(work),
        "span_id",
        "duration_ns",
        # Of a graph each replay is a call of its own.
        pl.when(pl.Series(origins(frames.trace, work["span_id"])) != pl.col("span_id"))
        .then(column_at(frames.trace, "parent_id", work["span_id"]))
        .alias("replay"),
    )
    rows = rows.join(copied, on="span_id", how="left", maintain_order="left") if copied.height else rows.with_columns(
        host_bytes=pl.lit(0.0)
    )  # fmt: skip
    is_timed, precision = (pl.col("duration_ns") > 0).all(), pl.col("told").cast(pl.String)
    launched = (
        rows.filter(pl.col("row") >= 0)
        .group_by("row", maintain_order=True)
        .agg(
            pl.col("device").first(),
            # Kernels that tell FP32 beside others may only lay operands out, or add up parts of products.
            pl.coalesce(precision.filter(precision != _VECTOR).first(), precision.drop_nulls().first()).alias("told"),
            pl.col("is_sparing").any(),
            pl.col("host_bytes").sum(),
            # Of what took no time the clock was too coarse, or there was none: it says nothing of models.
            pl.when(is_timed).then(pl.col("duration_ns").sum()).alias("spent_ns"),
            pl.when(is_timed).then(pl.col("replay").n_unique()).alias("times"),
        )
    )
    return launched, work.select(DEVICE)[first].with_row_index("device").with_columns(pl.col("device").cast(pl.Int64))


def _facts_by_kernel(work: pl.DataFrame) -> list[pl.Series]:
    """What the name of each kernel tells: `told`, the precision of its products (null: none that has a peak).

    And `is_sparing`, whether it computes them with fewer operations, or sums of ranks, which switches may add up.
    """
    number, first = numbers_by_appearance(*group_ids([work["name"]]))
    names = work["name"].gather(first).cast(pl.String)
    learn(names=names)
    precisions = pl.Series([_product_precision(name) for name in names], dtype=pl.Categorical)
    return [
        precisions.gather(number).alias("told"),
        names.str.contains(_SPARING).fill_null(value=False).gather(number).alias("is_sparing"),
    ]


def _product_precision(name: str) -> str | None:
    classified, precision = by_name(name), precision_of(name)
    return precision if precision in RATES and classified and classified.kernel_class in PRODUCTS else None


def _wide(peaks: pl.DataFrame, caches: pl.DataFrame) -> pl.DataFrame:
    """One row a device with a column a quantity, null where its peak is not known, and those of `cache_bytes`."""
    quantities = {*(q for rates in RATES.values() for q in rates), BANDWIDTH, _LINK, _HOST_LINK}
    rates = peaks.group_by("device", maintain_order=True).agg(
        pl.col("peak").filter(pl.col("quantity") == q).first().alias(q) for q in sorted(quantities)
    )
    return rates.join(caches.select("device", "cache_bytes", "boosts"), on="device", how="left", maintain_order="left")


def _products_ns() -> pl.Expr:
    """Products at the peak of their precision."""
    rates = [pl.when(pl.col("precision") == p).then(pl.coalesce(quantities)) for p, quantities in RATES.items()]
    return _over(pl.col("flop"), pl.coalesce(rates))


def _computing_ns() -> pl.Expr:
    """Products and, beside them, other arithmetic at the vector peak, as far as it is known."""
    return _longer(pl.col("product_ns"), _over(pl.col("vector_flop").fill_null(0), pl.col(_VECTOR)))


def _moving_ns() -> pl.Expr:
    """Of collectives only what they send is known, which memory holds too and is quicker with."""
    is_copy = pl.col("host_bytes") > 0
    moved = pl.when(is_copy).then("host_bytes").otherwise(pl.col("read_bytes") + pl.col("written_bytes"))
    return pl.coalesce(_over(moved, pl.col(BANDWIDTH)), pl.when(pl.col("bus_bytes").is_not_null()).then(0.0))


def _uncached_ns() -> pl.Expr:
    """For `memory`, without what caches can have held: of what is read and of what is written as much as they hold."""
    amounts = [pl.col(c).fill_null(0) for c in ("read_bytes", "written_bytes")]
    missed = [(amount - pl.col("cache_bytes")).clip(lower_bound=0) for amount in amounts]
    is_copy = pl.col("host_bytes") > 0
    return pl.when(is_copy).then("memory").otherwise(_over(missed[0] + missed[1], pl.col(BANDWIDTH)).fill_null(0.0))


def _sending_ns() -> pl.Expr:
    """Nothing is sent but by collectives and copies between host and device."""
    sent = pl.col("bus_bytes").fill_null(0)
    return _longer(_over(sent, pl.col(_LINK)), _over(pl.col("host_bytes").fill_null(0), pl.col(_HOST_LINK)))


def _longer(one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Null where either is."""
    return pl.when(one.is_not_null() & other.is_not_null()).then(pl.max_horizontal(one, other))


def _over(amount: pl.Expr, rate: pl.Expr) -> pl.Expr:
    """The time in ns; none for no amount, whatever the rate; null where either is not known."""
    return pl.when(amount == 0).then(0.0).otherwise(quotient(amount * _NS_PER_S, rate))


# The operators that work is counted by: modelled work, its least time, and the device work that they launched.

BY_NAME = ("name",)
BY_SHAPE = ("name", "shapes", "dtypes")
"""What calls may be told apart by: the name, or also the sizes and types of the tensors that they take."""
_SUMMED_AMOUNTS = (
    "modelled_flop",
    "modelled_bytes",
    "vector_flop",
    "bus_bytes",
    "roof_ns",
    "device_flop",
    "device_bytes",
    "least_ns",
)
_HOST = ("count", "modelled_count", *_SUMMED_AMOUNTS)
_TIMES = ("device_sum_ns", "modelled_device_ns", "roofed_device_ns")
_DEVICE_WORK = (*_TIMES, "measured_flop", "dram_bytes")


def operator_work(frames: StepView, keys: Sequence[str] = BY_NAME, *, on_device: bool = False) -> pl.DataFrame:
    """One row a value of the keys (and step, where each is answered): its calls, modelled and measured work.

    See `operator_calls` for which operators count, `roofed_calls` for `roof_ns`; `roofed_device_ns` is the device time
    of the calls that have one. All amounts of a row are of the same calls: of a mean step those of all its steps, over
    their number. Beside them the columns of `case_labels`. `on_device`: only calls that launched device work count, and
    the columns of `place_labels` say where they were.

    Of a row that took less than its roof `above_roof` says by what (one of EXCUSES). Of rows of several shapes those
    whose calls do, all in all, are left out of `roof_ns` and `roofed_device_ns`, unless all do.
    """
    roofed = frames.of_trace.once(roofed_calls)
    group_of, first = numbers_by_appearance(*group_ids(roofed.cases.select(keys)))
    shape_of, shape_first = numbers_by_appearance(*group_ids(roofed.cases.select(BY_SHAPE)))
    cases = roofed.cases.select(*_amounts(), "excuse", "times", "spent_ns", pl.Series("shape", shape_of))
    rows = _work_by_shape(frames, cases, on_device=on_device)
    rows = rows.with_columns(pl.Series("group", group_of[shape_first[rows["shape"]]]))
    omitted = _shapes_above_roof(cases.with_columns(pl.Series("group", group_of)))
    both = _with_excuse(_sums_over_shapes(rows.join(omitted, on="shape", how="left", maintain_order="left"), frames.by))
    labels = roofed.cases.select(keys)[first].with_row_index("group").with_columns(pl.col("group").cast(pl.Int64))
    count = np.bincount(roofed.case_of, minlength=roofed.cases.height)
    parts = [labels, case_labels(roofed.cases, group_of, count)]
    parts += [_launched_positions(frames, group_of)] if on_device else []
    for part in parts:
        both = both.join(part, on="group", how="left", maintain_order="left")
    return both.drop("group").rename({"name": "operator"})


def _work_by_shape(frames: StepView, cases: pl.DataFrame, *, on_device: bool) -> pl.DataFrame:
    """One row a shape of operators: its calls and their work on the host and the devices, of the steps chosen."""
    keys = ["run_id", "step", "shape"]
    host, device = _per_step(frames, cases, on_device=on_device), _device_work(frames, cases)
    rows = frames.of_chosen_steps(
        host.join(device, on=keys, how="full", coalesce=True, nulls_equal=True, maintain_order="left_right")
    )
    amounts = [*_HOST, *_DEVICE_WORK]
    if frames.is_mean:
        rows = rows.join(step_counts(frames.steps), on="run_id", how="inner", maintain_order="left")
        rows = rows.with_columns(pl.col(amounts) / pl.col("step_count"))
    names = rows.group_by("shape").agg(pl.col("excuse").drop_nulls().first())
    sums = rows.group_by(*frames.by, "shape", maintain_order=True).agg(known_sum(pl.col(c)).alias(c) for c in amounts)
    return sums.with_columns(pl.col(_TIMES).fill_null(0)).join(names, on="shape", how="left", maintain_order="left")


def _with_excuse(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with `above_roof`; without a roof those that nothing excuses."""
    roof, spent = pl.col("roof_ns"), pl.col("roofed_device_ns")
    is_above = (roof > spent) & (spent > 0)
    excuse = (
        pl.when(is_above & (pl.col("least_ns") <= spent * _MARGIN) & (roof > spent * _MARGIN))
        .then("excuse")
        .when(is_above & (roof <= spent * _MARGIN))
        .then(pl.lit(RATES_DIFFER))
    )
    marked = rows.with_columns(excuse.alias("above_roof"))
    is_unknown = is_above & pl.col("above_roof").is_null()
    return marked.with_columns(
        pl.when(~is_unknown.fill_null(value=False)).then("roof_ns").alias("roof_ns"),
        pl.when(is_unknown.fill_null(value=False)).then(0).otherwise("roofed_device_ns").alias("roofed_device_ns"),
    ).drop("excuse", "least_ns")


def _shapes_above_roof(cases: pl.DataFrame) -> pl.DataFrame:
    """Whether each `shape` is_omitted: its calls took less than their roof, and those of others of its group more."""
    is_roofed = pl.col("roof_ns").is_not_null()
    shapes = cases.group_by("shape", "group").agg(
        ((pl.col("roof_ns") * pl.col("times")).sum() > pl.col("spent_ns").filter(is_roofed).sum()).alias("is_above"),
        is_roofed.any().alias("is_roofed"),
    )
    others = (pl.col("is_roofed") & ~pl.col("is_above")).any().over("group")
    return shapes.select("shape", (pl.col("is_above") & others).alias("is_omitted"))


def _sums_over_shapes(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The rows of each group added up, but for the roofs, and the time under them, of shapes that are omitted."""
    held = rows.with_columns(
        *(pl.when(~pl.col("is_omitted")).then(c).alias(c) for c in ("roof_ns", "least_ns")),
        pl.when("is_omitted").then(0).otherwise("roofed_device_ns").alias("roofed_device_ns"),
    )
    return held.group_by(*by, "group", maintain_order=True).agg(
        *(known_sum(pl.col(c)).alias(c) for c in (*_HOST, *_DEVICE_WORK)),
        pl.col("excuse").filter(~pl.col("is_omitted")).drop_nulls().first(),
    )


def _launched_positions(frames: StepView, group_of: Ints) -> pl.DataFrame:
    """`place_labels` of the calls that launched device work."""
    roofed, calls = frames.of_trace.once(roofed_calls), frames.of_trace.once(operator_calls).calls
    launched = roofed.cases["launched"].to_numpy()[roofed.case_of]
    return place_labels(frames.trace, calls.filter(pl.Series(launched)), group_of[roofed.case_of[launched]])


def calls_made(frames: StepView) -> pl.DataFrame:
    """The calls that ran: row (of `OperatorCalls.calls`), run_id, step; those replayed by graphs once a replay.

    What was captured in the run itself did nothing then: its replays are what ran.
    """
    calls = frames.of_trace.once(operator_calls).calls.select(pl.int_range(pl.len()).alias("row"), "run_id", "step")
    replayed = _replays_of_calls(frames)
    made = frames.of_trace.kernel_runs.of(calls)
    if replayed.is_empty():
        return made
    captured = pl.col("row").is_in(replayed["row"].unique().implode())
    return pl.concat([made.filter(~captured), replayed.select(made.columns)])


def time_of_no_operator(frames: StepView) -> tuple[float, float]:
    """Device time, of the steps chosen, of what no operator launched; of that replays of graphs without their capture.

    Of a mean step what all its steps hold, over their number: as the rows of `operator_work`.
    """
    row = pl.Series("row", frames.of_trace.once(call_of_work))
    rows = frames.of_chosen_steps(frames.of_trace.device_work.with_columns(row).filter(pl.col("row") < 0))
    is_replay = pl.col("attribution").cast(pl.String) == str(Attribution.GRAPH_REPLAY)
    time = pl.col("duration_ns").cast(pl.Float64)
    if frames.is_mean:
        rows = rows.join(step_counts(frames.steps), on="run_id", how="inner", maintain_order="left")
        time = time / pl.col("step_count")
    return rows.select(time.sum().alias("all"), time.filter(is_replay).sum().alias("replays")).row(0)


def rates_and_roof() -> list[pl.Expr]:
    """Of rows of `operator_work` intensity, rates, roof_share and gain_ns; null where nothing tells them.

    Nothing is to gain above the roof, and by no faster kernel where a collective waits for other ranks.
    """
    is_waiting = (pl.col("operator_class") == str(KernelClass.COMMUNICATION)).fill_null(value=False)
    roof, spent = pl.col("roof_ns"), pl.col("roofed_device_ns")
    moved, busy = pl.col("modelled_bytes"), pl.col("modelled_device_ns")
    return [
        pl.when(moved > 0).then(quotient(pl.col("modelled_flop"), moved)).alias("modelled_intensity"),
        pl.when(busy > 0).then(quotient(pl.col("device_flop") * _NS_PER_S, busy)).alias("modelled_flop_per_s"),
        pl.when(busy > 0).then(quotient(pl.col("device_bytes") * _NS_PER_S, busy)).alias("modelled_byte_per_s"),
        pl.when(spent > 0).then(quotient(roof, spent)).alias("roof_share"),
        pl.when(roof.is_not_null(), pl.col("above_roof").is_null(), ~is_waiting)
        .then((spent - roof).clip(lower_bound=0.0))
        .alias("gain_ns"),
    ]


def _amounts() -> list[pl.Expr]:
    """Work of a call of each case; flop and bytes null where it is not modelled, or one of its bytes is not known.

    `device_flop` and `device_bytes` are of calls that launched device work: what rates are of.
    """
    flop, moved = pl.col("flop"), pl.col("read_bytes") + pl.col("written_bytes")
    on_device = pl.when("launched")
    return [
        flop.alias("modelled_flop"),
        moved.alias("modelled_bytes"),
        *map(pl.col, (*_SUMMED_AMOUNTS[2:5], "least_ns")),
        on_device.then(flop).alias("device_flop"),
        on_device.then(moved).alias("device_bytes"),
        (flop.is_not_null() | moved.is_not_null() | pl.col("bus_bytes").is_not_null()).alias("modelled"),
        pl.col("launched"),
    ]


def _per_step(frames: StepView, cases: pl.DataFrame, *, on_device: bool) -> pl.DataFrame:
    """Calls and work of each shape in each step of each run."""
    made = calls_made(frames)
    rows = made.select(
        "run_id", "step", pl.Series("case", frames.of_trace.once(roofed_calls).case_of[made["row"].to_numpy()])
    )
    number, first = numbers_by_appearance(*group_ids(rows))
    count = pl.Series("count", np.bincount(number, minlength=len(first)), dtype=pl.Int64)
    distinct = rows[first].with_columns(count)
    held = distinct.hstack(cases[distinct["case"].to_numpy()])
    held = held.filter("launched") if on_device else held
    return held.group_by("run_id", "step", "shape", maintain_order=True).agg(
        pl.col("count").sum(),
        pl.col("count").filter("modelled").sum().alias("modelled_count"),
        *(known_sum(pl.col(amount) * pl.col("count")).alias(amount) for amount in _SUMMED_AMOUNTS),
        pl.col("excuse").drop_nulls().first(),
    )


def _replays_of_calls(frames: StepView) -> pl.DataFrame:
    """Calls whose work graphs replayed: one each replay, of the run and step of the replay."""
    work = frames.of_trace.device_work
    is_replay = pl.Series(origins(frames.trace, work["span_id"]) != work["span_id"].to_numpy())
    rows = pl.Series("row", frames.of_trace.once(call_of_work)).filter(is_replay)
    replayed = work.filter(is_replay).select("run_id", "step", "span_id").with_columns(rows)
    launched_by = column_at(frames.trace, "parent_id", replayed["span_id"])
    return replayed.with_columns(launched_by).drop("span_id").filter(pl.col("row") >= 0).unique(maintain_order=True)


def _device_work(frames: StepView, cases: pl.DataFrame) -> pl.DataFrame:
    """One row a run, step and shape of operators that launched device work: its time, and what counters measured."""
    work = frames.of_trace.once(counted_work)
    row = frames.of_trace.once(call_of_work)
    at = pl.Series(frames.of_trace.once(roofed_calls).case_of).gather(nullable_index(row)).fill_null(-1).to_numpy()
    cased = cases.select("shape", "modelled", pl.col("roof_ns").is_not_null().alias("roofed"))
    rows = work.filter(pl.Series(at >= 0)).hstack(cased[at[at >= 0]])
    time = pl.col("duration_ns")
    return rows.group_by("run_id", "step", "shape", maintain_order=True).agg(
        time.sum().alias("device_sum_ns"),
        time.filter("modelled").sum().alias("modelled_device_ns"),
        time.filter("roofed").sum().alias("roofed_device_ns"),
        known_sum(pl.col("flop_count")).alias("measured_flop"),
        known_sum(pl.col("dram_read_bytes") + pl.col("dram_write_bytes")).alias("dram_bytes"),
    )


# Flop of products over what the devices could have done meanwhile: model and hardware flop utilisation.
#
# Model flop are those that the model's equations ask for; hardware flop are all that ran, with what activation
# checkpointing computes again. Each product counts at the peak of the precision that it runs in.
# Source: Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways", 2022, appendix B; Korthikanti et al.,
# "Reducing Activation Recomputation in Large Transformer Models", 2022.

FLOPS = ("model_flop", "hardware_flop", "model_peak_ns", "hardware_peak_ns", "product_ns", "counted_ns", "device_ns")
"""Flop, what they take at the peak; device time of product kernels, of those whose flop are known, of all work."""


def flops_by_layer(frames: StepView) -> pl.DataFrame:
    """One row a layer (and step, where each is answered), work of none in a row of nulls: precision, FLOPS."""
    keys = [*frames.by, *LAYER_KEY]
    both = _flops(frames).join(_times(frames), on=keys, how="full", coalesce=True, nulls_equal=True)
    return both.sort(keys, nulls_last=True)


def _flops(frames: StepView) -> pl.DataFrame:
    calls = _products(frames)
    is_model = pl.col("phase").ne_missing(str(Phase.RECOMPUTE))
    per_step = calls.group_by("run_id", "step", *LAYER_KEY, maintain_order=True).agg(
        pl.col("flop").filter(is_model).sum().alias("model_flop"),
        pl.col("flop").sum().alias("hardware_flop"),
        _all_known("product_ns", is_model).alias("model_peak_ns"),
        _all_known("product_ns", pl.lit(value=True)).alias("hardware_peak_ns"),
    )
    sums = frames.combine(per_step, LAYER_KEY, FLOPS[:4])
    precision = calls.group_by(LAYER_KEY, maintain_order=True).agg(
        pl.col("precision").drop_nulls().unique(maintain_order=True).str.join(", ")
    )
    return sums.join(precision, on=LAYER_KEY, how="left", nulls_equal=True, maintain_order="left")


def _products(frames: StepView) -> pl.DataFrame:
    """The calls of products that ran on devices: run_id, step, phase, the layer, flop, product_ns and precision.

    Those that took less than their roof say nothing of the peak that was used, and count none of it.
    """
    roofed, calls = frames.of_trace.once(roofed_calls), frames.of_trace.once(operator_calls).calls
    made = calls_made(frames)
    at_peak = pl.when("is_above").then(0.0).otherwise("product_ns").alias("product_ns")
    cases = roofed.cases.select("flop", at_peak, "precision", "launched")[roofed.case_of[made["row"].to_numpy()]]
    products = made.hstack(cases).filter(pl.col("flop") > 0, pl.col("launched"))
    spans = calls["span_id"].gather(products["row"])
    layers = frames.trace.scan("layers").select(pl.col("span_id").alias("layer_id"), *LAYER_KEY).collect()
    return (
        products.with_columns(column_at(frames.trace, c, spans) for c in ("phase", "layer_id"))
        .join(layers, on="layer_id", how="left", maintain_order="left")
        .with_columns(pl.col("phase", "layer_name", "layer_type").cast(pl.String))
    )


def _all_known(column: str, rows: pl.Expr) -> pl.Expr:
    """The sum over the rows; null where one of them is not known: a peak is missing."""
    values = pl.col(column).filter(rows)
    return pl.when(values.null_count() == 0).then(values.sum())


def _times(frames: StepView) -> pl.DataFrame:
    """Device time of each layer, of the product kernels in it, and of those of operators whose flop are known."""
    rows = frames.once(layer_executions)
    roofed = frames.of_trace.once(roofed_calls)
    below_peak = roofed.cases.select((pl.col("flop") > 0).fill_null(value=False) & ~pl.col("is_above")).to_series()
    has_flop = below_peak.to_numpy()[roofed.case_of]
    work = frames.of_trace.all_activities.select("span_id")
    counts = work.with_columns(
        pl.Series(has_flop)
        .gather(nullable_index(frames.of_trace.once(call_of_work)))
        .fill_null(value=False)
        .alias("told")
    )
    is_product = pl.col("kernel_class").cast(pl.String).is_in(PRODUCTS)
    time = pl.col("duration_ns")
    return (
        rows.join(counts, on="span_id", how="left", maintain_order="left")
        .with_columns(pl.col("layer_name", "layer_type").cast(pl.String))
        .group_by(*frames.by, *LAYER_KEY, maintain_order=True)
        .agg(
            time.filter(is_product).sum().alias("product_ns"),
            time.filter(is_product & pl.col("told")).sum().alias("counted_ns"),
            time.sum().alias("device_ns"),
        )
    )
