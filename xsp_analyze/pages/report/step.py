"""One step of the trace as boxes: what each stream of each device did, and the host above it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.frames.roles import Roles
from xsp_analyze.frames.step_windows import StepBasis
from xsp_analyze.pages import blocks
from xsp_analyze.render.shown import clean
from xsp_analyze.render.units import duration
from xsp_model import Kind, Level

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.frames.step_frames import StepFrames
    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.pages.report.answers import Answers

__all__ = ["Step", "one_step", "step_spans"]

_MAX_DEVICE = 12_000  # boxes
_MAX_HOST = 8_000
_MAX_LANES = 24
_HOST_LEVELS = (Level.MODEL, Level.LAYER, Level.OPERATOR, Level.LIBRARY, Level.RUNTIME)
_HOST_LANE = ("run_id", "process_id", "thread_id")
_DEVICE_LANE = ("run_id", "device_id", "stream_id")
_DRAWN = (
    "span_id",
    "level",
    "kind",
    "name",
    "start_ns",
    "duration_ns",
    "process_id",
    "thread_id",
    "run_id",
    "device_id",
    "stream_id",
    "layer_id",
)
_TITLE = ("timeline", "Timeline", "One step over time")


@dataclass(frozen=True, slots=True)
class Step:
    """What is drawn of a step: its longest spans on the host and on devices, in order of start; times in ns.

    `number` is null where the trace marks no steps: then it is all of the trace. `latency_ns` and `basis` are those of
    the step; what is drawn begins with its range on the host, which runs ahead. `earlier` are the spans of devices that
    were launched before the step and ran in its time. `host_count` and `device_count` are of all spans, drawn or not.
    """

    number: int | None
    latency_ns: int
    basis: str | None
    earlier: frozenset[int]
    start_ns: int
    end_ns: int
    host: pl.DataFrame
    device: pl.DataFrame
    host_count: int
    device_count: int


def one_step(answers: Answers) -> Section:
    """The step whose length is nearest to the median, drawn, with a button that saves it for Perfetto."""
    step = step_spans(answers.per_step)
    if step is None:
        return blocks.section(
            *_TITLE, "When each piece of work ran.", [blocks.missing("The trace holds no timed work.")]
        )
    return blocks.section(*_TITLE, _means(answers, step), [_block(answers, step), *_left_out(step)])


def _means(answers: Answers, step: Step) -> str:
    what = f"Step {step.number}, the one nearest to the median" if step.number is not None else "The whole trace"
    took = f"{duration(step.latency_ns)}" + (f", {StepBasis(step.basis).sentence}" if step.basis else "")
    before = " Work launched before the step is drawn paler." if step.earlier else ""
    return (
        f"{what}: {took}.{before} One track per host thread, with what it called, then one"
        " per stream of each device. Gaps in a stream are time in which it was idle. Drag to pan, use the buttons or"
        " Ctrl and the wheel to zoom, click a box for its details. The step can be saved as a file that"
        " ui.perfetto.dev and chrome://tracing open."
        f"{answers.taken(kernels='all')}"
    )


def step_spans(frames: StepFrames) -> Step | None:
    """The spans of the median step in the runs that kernels are taken from; None where nothing has a time."""
    runs = list(frames.of_trace.roles.kernels)
    spans = frames.trace.scan("spans").filter(pl.col("run_id").is_in(runs), pl.col("duration_ns").is_not_null())
    taken = _median(frames, runs)
    of_step = pl.lit(value=True)
    if taken is not None:
        of_step = pl.col("step").eq_missing(taken["step"])
        in_window = (pl.col("start_ns") < taken["end_ns"]) & (
            pl.col("start_ns") + pl.col("duration_ns") > taken["begin_ns"]
        )
        spans = spans.filter(of_step | (pl.col("attribution").is_not_null() & in_window))
    levels = [str(level) for level in _HOST_LEVELS]
    is_host = pl.col("level").is_in(levels) & pl.col("thread_id").is_not_null() & (pl.col("kind") != str(Kind.SYNC))
    is_device = pl.col("attribution").is_not_null()
    every = (  # of millions of spans some thousands are drawn: the others are not read whole
        spans.filter(is_device | is_host)
        .select(
            "span_id",
            "start_ns",
            "duration_ns",
            is_device.alias("is_device"),
            is_host.alias("is_host"),
            (is_device & ~of_step).alias("is_earlier"),
        )
        .collect()
    )
    if every.is_empty():
        return None
    start, end = every.select(
        pl.col("start_ns").min(), (pl.col("start_ns") + pl.col("duration_ns")).max().alias("end_ns")
    ).row(0)
    device, host = every.filter("is_device"), every.filter("is_host")
    drawn = (
        _described(frames, _longest(device.sort("start_ns", "span_id"), _MAX_DEVICE)),
        _described(frames, _longest(host.sort("start_ns", -pl.col("duration_ns"), "span_id"), _MAX_HOST)),
    )
    earlier = frozenset(device.filter("is_earlier")["span_id"])
    latency, basis = (end - start, None) if taken is None else (taken["duration_ns"], taken["basis"])
    number = None if taken is None else taken["step"]
    return Step(number, latency, basis, earlier, start, end, drawn[1], drawn[0], host.height, device.height)


def _described(frames: StepFrames, chosen: pl.DataFrame) -> pl.DataFrame:
    """All columns that are drawn of these spans, in their order."""
    spans = frames.trace.scan("spans").filter(pl.col("span_id").is_in(chosen["span_id"].implode()))
    frame = spans.select(_DRAWN).with_columns(pl.col(pl.Categorical).cast(pl.String))
    return chosen.lazy().select("span_id").join(frame, on="span_id", how="left", maintain_order="left").collect()


def _median(frames: StepFrames, runs: Sequence[int]) -> dict[str, Any] | None:
    """The step nearest to the median latency, of those that the frames average: step, its latency, basis and time."""
    steps = Roles.of(frames.steps, runs) if frames.averaged else frames.steps.head(0)
    if steps.is_empty():
        return None
    times = steps.group_by("step").agg(
        pl.col("duration_ns").max(), pl.col("begin_ns").min(), pl.col("end_ns").max(), pl.col("basis").last()
    )
    distance = (pl.col("duration_ns") - pl.col("duration_ns").median()).abs()
    return times.sort(distance, "step").row(0, named=True)


def _block(answers: Answers, step: Step) -> Block:
    names: dict[str, int] = {}
    lanes = _host_lanes(step) + _device_lanes(step)
    layers = _layer_names(answers, pl.concat([rows["layer_id"] for _, _, rows in lanes]))
    drawn = [_lane(lane, step, names, layers) for lane in lanes]
    return {
        "type": "step",
        "number": step.number,
        "length": step.end_ns - step.start_ns,
        "names": [clean(name) for name in names],
        "lanes": drawn,
        "model": answers.summary.runs[0]["source_path"] or "trace",
    }


def _layer_names(answers: Answers, span_ids: pl.Series) -> dict[int, str]:
    """Name of the layer by the span that it is a call of, for these of them."""
    layers = answers.trace.scan("layers").filter(pl.col("span_id").is_in(span_ids.unique().implode()))
    rows = layers.select("span_id", pl.col("layer_name").cast(pl.String)).collect()
    return dict(rows.iter_rows())


_Lane = tuple[str, str, pl.DataFrame]  # its name, host or device, its spans


def _host_lanes(step: Step) -> list[_Lane]:
    kept = step.host
    several = kept["run_id"].n_unique() > 1
    lanes = []
    for key, rows in kept.group_by(_HOST_LANE, maintain_order=True):
        run, _, thread = key
        lanes.append((f"{f'run {run}, ' if several else ''}thread {thread}", "host", rows))
    busiest = sorted(lanes, key=lambda lane: -lane[2].height)[: _MAX_LANES // 3]
    return sorted(busiest, key=lambda lane: int(lane[2]["start_ns"].min() or 0))  # type: ignore[arg-type]


def _device_lanes(step: Step) -> list[_Lane]:
    kept = step.device
    several = kept["run_id"].n_unique() > 1
    lanes = []
    for key, rows in kept.sort(*_DEVICE_LANE, "start_ns", nulls_last=True).group_by(_DEVICE_LANE, maintain_order=True):
        run, device, stream = (("-" if k is None else k) for k in key)
        lanes.append((f"{f'run {run}, ' if several else ''}device {device}, stream {stream}", "device", rows))
    busiest = sorted(range(len(lanes)), key=lambda i: -int(lanes[i][2]["duration_ns"].sum()))[:_MAX_LANES]
    return [lanes[i] for i in sorted(busiest)]


def _longest(spans: pl.DataFrame, max_rows: int) -> pl.DataFrame:
    if spans.height <= max_rows:
        return spans
    return (
        spans.with_row_index("at")
        .sort("duration_ns", "at", descending=[True, False])
        .head(max_rows)
        .sort("at")
        .drop("at")
    )


def _lane(lane: _Lane, step: Step, names: dict[str, int], layers: dict[int, str]) -> dict[str, Any]:
    """Boxes in columns; host boxes have depths by nesting, device boxes the row that is free."""
    title, side, rows = lane
    inside = rows["layer_id"].to_list()
    return {
        "title": title,
        "side": side,
        "name": [names.setdefault(n, len(names)) for n in rows["name"].to_list()],
        "kind": [
            kind if level != "layer" else "layer" for kind, level in rows.select("kind", "level").iter_rows()
        ] if side == "device" else rows["level"].to_list(),
        "start": (rows["start_ns"] - step.start_ns).to_list(),
        "time": rows["duration_ns"].to_list(),
        "depth": _depths(rows),
        "earlier": [int(i in step.earlier) for i in rows["span_id"].to_list()] if side == "device" else [],
        "layer": [names.setdefault(layers[i], len(names)) if i in layers else None for i in inside],
    }  # fmt: skip


def _depths(rows: pl.DataFrame) -> list[int]:
    """The first row that is free at each box's start: boxes within others stand below them."""
    ends: list[int] = []
    depths = []
    for start, time in rows.select("start_ns", "duration_ns").iter_rows():
        while ends and ends[-1] <= start:
            ends.pop()
        depths.append(len(ends))
        ends.append(start + time)
    return depths


def _left_out(step: Step) -> list[Block]:
    device, host = step.device_count - step.device.height, step.host_count - step.host.height
    if not device and not host:
        return []
    parts = [f"{device:,} pieces of device work"] if device else []
    parts += [f"{host:,} calls of the host"] if host else []
    return [
        blocks.text(
            f"Too many to draw all: the shortest {' and '.join(parts)} are left out, and are not in the saved file"
            " either; xsp export INPUT --to chrome writes everything."
        )
    ]
