"""Memory: in use (B09), over time (B32), at its peak by owner (B33), by allocation (B34); copies and fills (B07)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.columns import COUNT, DURATION, STEP
from xsp_analyze.core import AMOUNT, Column, FigureSpec, Role, analysis
from xsp_analyze.formulas import quotient, ratio
from xsp_analyze.frames.kernels.kernel_means import step_work
from xsp_analyze.frames.kernels.roofline import agreed_peaks
from xsp_analyze.frames.layers.layer_time import every_layer_call
from xsp_analyze.frames.memory import KIND_COLUMNS, SERIES, alive_at_peak, memory_at, memory_curve, memory_peaks
from xsp_model import Kind
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_analyze.trace.step_view import StepView

__all__ = ["allocations_at_peak", "copies", "memory", "memory_at_peak", "memory_over_time"]

# B09: memory in use over time: its peak, when that was, and in which layer.
_SERIES = ("run_id", "device_id", "counter")
_CALL = ("layer_index", "layer_name", "layer_type", "step")


def _mean_bytes(name: str, doc: str) -> Column:
    return Column(name, pl.Float64(), doc, "byte")


@analysis(
    "B09",
    "memory",
    needs=("counters",),
    read=(
        "The peak decides whether a batch fits; allocated far below reserved is memory that the "
        "framework's allocator holds and nobody uses."
    ),
    columns=(
        Column("run_id", pl.Int64(), "The run it was recorded in.", role=Role.KEY),
        Column("device_id", pl.Int64(), "The device; null: memory of the host.", role=Role.KEY),
        Column("counter", pl.String(), "What was counted: allocated, reserved, or a category of use.", role=Role.KEY),
        Column("sample_count", pl.Int64(), "Times at which it is known."),
        _mean_bytes("first_bytes", "At the first of these."),
        _mean_bytes("mean_bytes", "Mean over time: each value holds until the next one is known."),
        _mean_bytes("last_bytes", "At the last."),
        _mean_bytes("peak_bytes", "The most."),
        Column("peak_time_ns", pl.Int64(), "When it first was that much, from the start of the trace.", "ns"),
        Column("peak_step", pl.Int64(), "Step of the layer call below.", role=Role.LABEL),
        Column(
            "peak_layer_index", pl.Int64(), "The layer whose call ran on the host then; null: none.", role=Role.LABEL
        ),
        Column("peak_layer_name", pl.String(), "Its name.", role=Role.LABEL),
        Column("peak_layer_type", pl.String(), "What kind of layer it is.", role=Role.LABEL),
    ),
    figure=FigureSpec("bars", x="counter", y=("peak_bytes",), title="Most memory in use"),
    by_step=False,
)
def memory(frames: StepView) -> pl.LazyFrame:
    """One row a run, device and counter of bytes, in this order; over the whole trace, whatever the steps."""
    samples = (
        frames.of_trace.own_runs.scan("counters")
        .filter(pl.col("unit") == "byte")
        .with_columns(pl.col("counter").cast(pl.String))
        .sort(TABLES["counters"].order, nulls_last=True)
        .collect()
    )
    held = pl.col("time_ns").shift(-1) - pl.col("time_ns")
    peak = pl.col("value").arg_max()
    series = samples.group_by(_SERIES, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("sample_count"),
        pl.col("value").first().alias("first_bytes"),
        pl.when(held.sum() > 0).then((pl.col("value") * held).sum() / held.sum()).alias("mean_bytes"),
        pl.col("value").last().alias("last_bytes"),
        pl.col("value").max().alias("peak_bytes"),
        pl.col("time_ns").get(peak).alias("peak_time_ns"),
    )
    return series.hstack(_running_at(frames, series)).lazy()


def _running_at(frames: StepView, series: pl.DataFrame) -> pl.DataFrame:
    """For each row the layer call that had begun last, of those that ran on the host at its peak."""
    calls = frames.of_trace.once(every_layer_call)
    running = []
    for run, time in series.select("run_id", "peak_time_ns").iter_rows():
        inside = calls.filter(pl.col("run_id") == run, pl.col("start_ns") <= time, pl.col("end_ns") > time)
        last = inside.sort("start_ns", "span_id").tail(1).select(_CALL).rows()
        running.append(last[0] if last else (None,) * len(_CALL))
    kinds = {"layer_index": pl.Int64, "layer_name": pl.String, "layer_type": pl.String, "step": pl.Int64}
    return pl.DataFrame(running, schema=kinds, orient="row").select(pl.all().name.prefix("peak_"))


# B32: memory in use over time, by what it is used for.
_MAX_MOMENTS = 1000
_DOCS = {
    "before_bytes": "In use when the recording began, and of no known block since.",
    "unknown_bytes": "In use for what cannot be told.",
    "other_bytes": "Outside of the model's own work, as input being loaded.",
}


def _whole_bytes(name: str, doc: str) -> Column:
    return Column(name, pl.Int64(), doc, "byte")


@analysis(
    "B32",
    "memory over time",
    needs=("allocations",),
    read=(
        "The shape tells what the peak is made of: a triangle over forward and backward is activations, a floor that "
        "stays is weights and optimizer state; a curve whose steps rise from one to the next is a leak."
    ),
    columns=(
        Column("run_id", pl.Int64(), "The run it was recorded in.", role=Role.KEY),
        Column("device_id", pl.Int64(), "The device; null: memory of the host.", role=Role.KEY),
        Column("moment", pl.Int64(), "Number of the moment, from 0.", role=Role.KEY),
        Column("time_ns", pl.Int64(), "When, from the start of the trace.", "ns"),
        _whole_bytes("allocated_bytes", "In use then."),
        _whole_bytes("reserved_bytes", "Held by the framework's allocator then, in use or not."),
        *(_whole_bytes(name, _DOCS.get(name, f"Of it {kind}.")) for kind, name in KIND_COLUMNS.items()),
        Column(
            "basis",
            pl.String(),
            "`recorded`: the source counts what is in use; `summed`: from what was given out and taken back alone.",
            role=Role.LABEL,
        ),
    ),
    figure=FigureSpec("scatter", x="time_ns", y=("allocated_bytes",), title="Memory in use over time"),
    by_step=False,
)
def memory_over_time(frames: StepView) -> pl.LazyFrame:
    """One row a moment of a run and device at which what is in use changed, in this order; over the whole trace.

    Of more than a thousand, the moments of equal stretches of time at which most was in use, so the peak is in.
    """
    moments = _moments(frames.of_trace.once(memory_curve))
    numbered = memory_at(frames.of_trace, moments).with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).over(SERIES, order_by="sequence").alias("moment")
    )
    return numbered.drop("sequence", "rest").sort(*SERIES, "moment", nulls_last=True).lazy()


def _moments(curve: pl.DataFrame) -> pl.DataFrame:
    begin, end = pl.col("time_ns").min().over(SERIES), pl.col("time_ns").max().over(SERIES)
    count = pl.len().over(SERIES)
    stretch = ((pl.col("time_ns") - begin) * (_MAX_MOMENTS - 1)) // pl.max_horizontal(end - begin, 1)
    cut = curve.with_columns(pl.when(count > _MAX_MOMENTS).then(stretch).otherwise("sequence").alias("stretch"))
    peak = pl.col("allocated_bytes").arg_max()
    kept = cut.sort("sequence").group_by(*SERIES, "stretch", maintain_order=True)
    return kept.agg(pl.exclude("stretch", *SERIES).get(peak)).drop("stretch")


# B33: who owns the memory that is in use when most is.
_OWNERS = ("phase", "layer_type", "layer_name")
_SCHEMA = {
    "run_id": pl.Int64(),
    "device_id": pl.Int64(),
    "grouping": pl.String(),
    "owner": pl.String(),
    "bytes": pl.Int64(),
    "total_bytes": pl.Int64(),
    "block_count": pl.Int64(),
    "peak_time_ns": pl.Int64(),
}
_ORDER = ("kind", *_OWNERS, "reserved", "device")


@analysis(
    "B33",
    "memory at the peak",
    needs=("allocations",),
    read=(
        "The kind says which remedy can help: activations shrink with the batch or by checkpointing, optimizer state "
        "by sharding or another optimizer, weights by a smaller type; what is reserved and free is fragmentation."
    ),
    columns=(
        Column("run_id", pl.Int64(), "The run it was recorded in.", role=Role.KEY),
        Column("device_id", pl.Int64(), "The device; null: memory of the host.", role=Role.KEY),
        Column(
            "grouping",
            pl.String(),
            "What it is divided by: kind, phase, layer_type, layer_name; or what is reserved then, or the device has.",
            role=Role.KEY,
        ),
        Column("owner", pl.String(), "Whose it is; null: of no layer, or in no phase.", role=Role.KEY),
        Column("bytes", pl.Int64(), "In use then.", "byte"),
        Column("share", pl.Float64(), "Of `total_bytes`."),
        Column(
            "total_bytes", pl.Int64(), "What is divided: all in use at the peak; all reserved; all there is.", "byte"
        ),
        Column("block_count", pl.Int64(), "Blocks that it is; null where they are not known one by one."),
        Column("peak_time_ns", pl.Int64(), "When most was in use, from the start of the trace.", "ns"),
    ),
    figure=FigureSpec("bars", x="owner", y=("bytes",), title="Memory in use at the peak", color="grouping", top=30),
    by_step=False,
)
def memory_at_peak(frames: StepView) -> pl.LazyFrame:
    """One row a run, device, grouping and owner with memory then, in this order of groupings, largest first."""
    peaks = frames.of_trace.once(memory_peaks)
    parts = [*_by_kind(frames, peaks), *_by_owner(frames), *_of_more(frames, peaks)]
    rows = pl.concat([part.select(pl.col(c).cast(t) for c, t in _SCHEMA.items()) for part in parts])
    position = pl.col("grouping").replace_strict({name: i for i, name in enumerate(_ORDER)}, return_dtype=pl.Int64)
    return (
        rows.filter(pl.col("bytes") != 0)
        .with_columns(ratio(pl.col("bytes"), pl.col("total_bytes")).alias("share"), position.alias("position"))
        .sort(*SERIES, "position", "bytes", "owner", descending=[False] * 3 + [True, False], nulls_last=True)
        .lazy()
    )


def _by_kind(frames: StepView, peaks: pl.DataFrame) -> Iterator[pl.DataFrame]:
    wide = memory_at(frames.of_trace, peaks)
    alive = frames.of_trace.once(alive_at_peak)
    counts = alive.group_by(*SERIES, "kind").agg(pl.col("is_block").sum().cast(pl.Int64).alias("block_count"))
    for kind, column in KIND_COLUMNS.items():
        rows = _totals(wide).with_columns(pl.lit("kind").alias("grouping"), pl.lit(kind).alias("owner"))
        counted = rows.join(
            counts.filter(pl.col("kind") == kind, pl.col("block_count") > 0),
            on=SERIES,
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        yield counted.with_columns(pl.Series("bytes", wide[column]))


def _totals(peaks: pl.DataFrame) -> pl.DataFrame:
    return peaks.select(
        *SERIES, pl.col("allocated_bytes").alias("total_bytes"), pl.col("time_ns").alias("peak_time_ns")
    )


def _by_owner(frames: StepView) -> Iterator[pl.DataFrame]:
    """By what allocated the blocks, where that is known of any; what is of no known block is named by its kind."""
    alive = frames.of_trace.once(alive_at_peak)
    for grouping in _OWNERS:
        owned = alive.filter(pl.col(grouping).is_not_null()).select(SERIES).unique()
        owner = pl.when("is_block").then(grouping).otherwise("kind").alias("owner")
        blocks = pl.col("is_block").sum().cast(pl.Int64)
        yield (
            alive.join(owned, on=SERIES, how="semi", nulls_equal=True)
            .group_by(*SERIES, owner, maintain_order=True)
            .agg(
                pl.col("bytes").sum(),
                pl.when(blocks > 0).then(blocks).alias("block_count"),
                pl.col("total_bytes", "peak_time_ns").first(),
            )
            .with_columns(pl.lit(grouping).alias("grouping"))
        )


def _of_more(frames: StepView, peaks: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """What is reserved divided into what is in use and what is not, and the device into what is reserved and not."""
    sizes = frames.of_trace.own_runs.frame("devices").group_by(SERIES).agg(pl.col("memory_bytes").max())
    reserving = peaks.filter(pl.col("reserved_bytes") > 0).join(sizes, on=SERIES, how="left", maintain_order="left")
    held, used = pl.col("reserved_bytes"), pl.col("allocated_bytes")
    has_size = reserving.filter(pl.col("memory_bytes") >= held)
    divided = (
        (reserving, "reserved", "in use", used, held),
        (reserving, "reserved", "reserved and free", held - used, held),
        (has_size, "device", "reserved", held, pl.col("memory_bytes")),
        (has_size, "device", "not reserved", pl.col("memory_bytes") - held, pl.col("memory_bytes")),
    )
    for rows, grouping, owner, size, total in divided:
        yield rows.select(
            *SERIES,
            pl.lit(grouping).alias("grouping"),
            pl.lit(owner).alias("owner"),
            size.alias("bytes"),
            total.alias("total_bytes"),
            pl.lit(None, pl.Int64).alias("block_count"),
            pl.col("time_ns").alias("peak_time_ns"),
        )


# B34: the blocks of memory that are in use when most is.


@analysis(
    "B34",
    "allocations at the peak",
    needs=("allocations",),
    read="The largest blocks, and which operator and line of the model allocated each: what to make smaller first.",
    columns=(
        Column("run_id", pl.Int64(), "The run it was recorded in.", role=Role.KEY),
        Column("device_id", pl.Int64(), "The device; null: memory of the host.", role=Role.KEY),
        Column("block", pl.Int64(), "Number of the row, from 0, largest first.", role=Role.KEY),
        Column("bytes", pl.Int64(), "Its size.", "byte"),
        Column("share", pl.Float64(), "Of all in use at the peak."),
        Column("kind", pl.String(), "What it is used for; docs/analyses.md says how that is known.", role=Role.LABEL),
        Column("operator", pl.String(), "The outermost operator in which it was allocated.", role=Role.LABEL),
        Column("layer_name", pl.String(), "The layer whose call that was part of.", role=Role.LABEL),
        Column("layer_type", pl.String(), "What kind of layer that is.", role=Role.LABEL),
        Column("phase", pl.String(), "In which phase.", role=Role.LABEL),
        Column("step", pl.Int64(), "In which step.", role=Role.LABEL),
        Column(
            "source_lines", pl.String(), "The user's lines of Python that called it, innermost first.", role=Role.LABEL
        ),
        Column("start_ns", pl.Int64(), "When it was given out, from the start of the trace.", "ns"),
        Column("end_ns", pl.Int64(), "When it was taken back; null: not until the recording ended.", "ns"),
    ),
    by_step=False,
)
def allocations_at_peak(frames: StepView) -> pl.LazyFrame:
    """One row a block in use at the peak of its run and device, largest first; what is of no known block last."""
    alive = frames.of_trace.once(alive_at_peak).sort(
        *SERIES, "is_block", "bytes", "first", "kind", descending=[False, False, True, True, False, False],
        nulls_last=True,
    )  # fmt: skip
    return alive.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).over(SERIES).alias("block"),
        ratio(pl.col("bytes"), pl.col("total_bytes")).alias("share"),
    ).lazy()


# Copies between memories, and fills (B07).

# B07: what was copied and filled, between which memories, and how fast for the link it went over.
_KEYS = ("direction", "source_kind", "destination_kind")
_COPIES = [str(Kind.MEMCPY), str(Kind.MEMSET)]
_HOST_LINK = ("Host-to-Device", "Device-to-Host")
_PEER = "Peer-to-Peer"
_NS_PER_S = 1e9


@analysis(
    "B07",
    "copies",
    needs=("copies",),
    about_layers=True,
    additive=("count", "bytes", "known_count", "duration_ns"),
    read=(
        "Pageable host memory is copied through a buffer of the driver's: pin it (pin_memory) where such rows are "
        "large; many small copies never reach the peak of the link."
    ),
    columns=(
        STEP,
        Column("direction", pl.String(), "Host-to-Device, Device-to-Host, ..., or fill for a memset.", role=Role.KEY),
        Column("source_kind", pl.String(), "Memory read from: Pageable, Pinned, Device; null: unknown.", role=Role.KEY),
        Column("destination_kind", pl.String(), "Memory written to; null: unknown.", role=Role.KEY),
        COUNT,
        Column("bytes", AMOUNT, "Bytes copied or filled, where the trace says; null: it says of none.", "byte"),
        Column("known_count", AMOUNT, "Of the count, those whose bytes are known."),
        DURATION,
        Column("byte_per_s", pl.Float64(), "Bytes over the time of those whose bytes are known.", "byte/s"),
        Column(
            "peak_byte_per_s",
            pl.Float64(),
            "Most that PCIe (host), NVLink or else PCIe (peer), or memory (half of it: read and write) allows.",
            "byte/s",
        ),
        Column("peak_share", pl.Float64(), "Rate over that peak; null: either unknown."),
    ),
    figure=FigureSpec(
        "bars", x="direction", y=("duration_ns",), title="Time in copies and memsets", color="source_kind"
    ),
)
def copies(frames: StepView) -> pl.LazyFrame:
    """One row a direction and kinds of memory, longest first, then by these names."""
    has_bytes = pl.col("bytes").is_not_null()
    sums = _with_direction(frames).group_by(*frames.by, *_KEYS, maintain_order=True).agg(
        pl.col("work_count").sum().alias("count"),
        pl.col("work_count").filter(has_bytes).sum().alias("known_count"),
        pl.when(has_bytes.any()).then((pl.col("bytes") * pl.col("work_count")).sum()).alias("bytes"),
        pl.col("work_ns").sum().alias("duration_ns"),
        pl.col("work_ns").filter(has_bytes).sum().alias("known_ns"),
    )  # fmt: skip
    rate = pl.when(pl.col("known_ns") > 0).then(quotient(pl.col("bytes") * _NS_PER_S, pl.col("known_ns")))
    return (
        sums.lazy()
        .with_columns(rate.alias("byte_per_s"), _peak(frames).alias("peak_byte_per_s"))
        .with_columns(quotient(pl.col("byte_per_s"), pl.col("peak_byte_per_s")).alias("peak_share"))
        .sort(*frames.by, -pl.col("duration_ns"), *_KEYS, nulls_last=True)
        .with_columns(pl.col(pl.Categorical).cast(pl.String))
    )


def _with_direction(frames: StepView) -> pl.DataFrame:
    """One row a copy or memset: direction and memories as text, bytes, work_ns and work_count."""
    details = frames.trace.frame("copies")
    direction = pl.when(pl.col("kind") == str(Kind.MEMSET)).then(pl.lit("fill")).otherwise(pl.col("copy_kind"))
    return (
        frames.once(step_work)
        .select("span_id", *frames.by, pl.col("kind").cast(pl.String), "work_ns", "work_count")
        .filter(pl.col("kind").is_in(_COPIES))
        .join(details, on="span_id", how="left", maintain_order="left")
        .with_columns(direction.alias("direction"))
    )


def _peak(frames: StepView) -> pl.Expr:
    """The rate that the link of each direction allows; null where unknown, or where devices differ."""
    peaks = {row["quantity"]: row["peak"] for row in agreed_peaks(frames).iter_rows(named=True)}
    dram, pcie, nvlink = (pl.lit(peaks.get(q), dtype=pl.Float64) for q in ("dram", "pcie", "nvlink"))
    direction = pl.col("direction")
    return (
        pl.when(direction.is_in(_HOST_LINK))
        .then(pcie)
        .when(direction == _PEER)
        .then(pl.coalesce(nvlink, pcie))
        .when(direction == "Device-to-Device")
        .then(dram / 2)
        .when(direction == "fill")
        .then(dram)
    )
