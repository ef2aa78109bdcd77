"""From spans to Perfetto's slices, arrows and counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.export.described import arguments, category, metrics, name, own_layers, twins
from xsp_analyze.export.perfetto.lanes import NEVER
from xsp_analyze.export.perfetto.packets import Packets
from xsp_analyze.export.perfetto.stretches import Stretches
from xsp_analyze.export.perfetto.tracks import OnTracks
from xsp_analyze.export.rows import rows, text
from xsp_analyze.export.target import Exporter
from xsp_analyze.trace.timed_runs import capture_runs, timed_runs, without_captures
from xsp_model import Level
from xsp_model.tree import innermost

if TYPE_CHECKING:
    from xsp_analyze.export.rows import Row
    from xsp_analyze.export.target import Sink
    from xsp_model import Trace

__all__ = ["PERFETTO"]

_LAUNCH, _BACKWARD = 1, 2  # kinds of arrows, told apart by what their numbers leave when divided by two


def _write(trace: Trace, file: Sink) -> None:
    packets = Packets(file, _epoch_ns(trace), max(0, -_first_ns(trace)))
    tracks = OnTracks(trace, packets)
    layers = Stretches(tracks, packets, "layers", ("layer_id", "own_layer"))
    operators = Stretches(tracks, packets, "operators", ("operator_id", "operator_name"))
    of_captures = pl.col("run_id").is_in(list(capture_runs(trace)))
    for row in rows(
        trace,
        ~of_captures,
        own=own_layers(trace),
        counted=metrics(trace),
        work=_work_of(trace),
        forward=twins(trace),
        backward=_twins_of(trace),
        operator=_operators(trace),
    ):
        _slice(row, tracks, packets)
        if row["level"] == Level.KERNEL:
            layers.add(row)
            operators.add(row)
    for stretches in (layers, operators):
        stretches.close()
    tracks.close()
    for row in text(trace.scan("counters")).collect().iter_rows(named=True):
        packets.count(tracks.counter(row), row["time_ns"], row["value"])


def _epoch_ns(trace: Trace) -> int | None:
    epochs: list[int | None] = timed_runs(trace)["epoch_ns"].to_list()
    return epochs[0] if epochs else None


def _first_ns(trace: Trace) -> int:
    """When the first span or sample is: Perfetto has no times before 0."""
    spans = without_captures(trace, trace.scan("spans")).select(pl.col("start_ns").min()).collect().item()
    samples = trace.scan("counters").select(pl.col("time_ns").min()).collect().item()
    return min(spans or 0, samples or 0)


def _slice(row: Row, tracks: OnTracks, packets: Packets) -> None:
    start, duration = row["start_ns"], row["duration_ns"]
    uuid = tracks.of(row).put(start, NEVER if duration is None else start + duration)
    number = row["span_id"]
    starts = [*_arrows(row["work_ids"], _LAUNCH), *_arrows(row["twin_ids"], _BACKWARD)]
    is_launched = row["level"] == Level.KERNEL and row["parent_id"] is not None
    ends = [
        *(_arrows([number], _LAUNCH) if is_launched else ()),
        *(_arrows([number], _BACKWARD) if row["forward_id"] is not None else ()),
    ]
    details = (("span", number), *arguments(row))
    packets.begin(uuid, start, category(row), name(row), arguments=details, flows_from=starts, flows_to=ends)


def _arrows(spans: list[int] | None, kind: int) -> list[int]:
    return [2 * span + kind for span in spans or ()]


def _work_of(trace: Trace) -> pl.DataFrame:
    """For each span the device work that it launched."""
    work = without_captures(trace, trace.scan("spans")).filter(
        pl.col("level").cast(pl.String) == Level.KERNEL, pl.col("parent_id").is_not_null()
    )
    ids = work.group_by(pl.col("parent_id").alias("launch_id")).agg(pl.col("span_id").sort().alias("work_ids"))
    return ids.rename({"launch_id": "span_id"}).collect()


def _twins_of(trace: Trace) -> pl.DataFrame:
    """For each forward operator its backward ones."""
    twins = trace.scan("operators").filter(pl.col("forward_id").is_not_null())
    ids = twins.group_by(pl.col("forward_id").alias("twin_id")).agg(pl.col("span_id").sort().alias("twin_ids"))
    return ids.rename({"twin_id": "span_id"}).collect()


def _operators(trace: Trace) -> pl.DataFrame:
    """For device work the innermost operator that it was launched in."""
    spans = trace.scan("spans").select("span_id", "parent_id", pl.col("level", "name").cast(pl.String)).collect()
    parent = spans["parent_id"].fill_null(-1).to_numpy()
    nearest = innermost(parent, (spans["level"] == Level.OPERATOR).to_numpy())
    work = spans.select("span_id", pl.Series("operator_id", nearest)).filter(
        spans["level"] == Level.KERNEL, pl.col("operator_id") >= 0
    )
    names = spans.select(pl.col("span_id").alias("operator_id"), pl.col("name").alias("operator_name"))
    return work.join(names, on="operator_id", how="left")


PERFETTO = Exporter("perfetto", "Perfetto's protobuf, for ui.perfetto.dev and trace_processor", _write)
"""The format, as the registry lists it."""
