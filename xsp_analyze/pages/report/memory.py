"""The part of a report on memory: in use over time, whose it is when most is, and the blocks it is then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.core import Column
from xsp_analyze.frames.memory import KIND_COLUMNS, SERIES, SUMMED, of_series, samples_in_use
from xsp_analyze.frames.steps import step_at, steps_of
from xsp_analyze.pages import blocks
from xsp_analyze.pages.blocks import scale_entries
from xsp_analyze.pages.report.figures import cut_rows
from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count_of, duration, share, size
from xsp_model import MemoryKind
from xsp_model.vocabulary import RECORDERS, Recorder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.pages.blocks import Block, Section
    from xsp_analyze.service import Answers
    from xsp_model import Trace

__all__ = ["BYTES", "curve", "memory", "tone_of"]

# The block that draws memory over time: what was in use and reserved, what for, and the steps.

BYTES = Column("bytes", pl.Int64(), "Memory in use.", "byte")
_STACKED = (  # from below
    MemoryKind.BEFORE,
    MemoryKind.WEIGHTS,
    MemoryKind.OPTIMIZER_STATE,
    MemoryKind.INPUTS,
    MemoryKind.OTHER,
    MemoryKind.ACTIVATIONS,
    MemoryKind.GRADIENTS,
    MemoryKind.WORKSPACE,
    MemoryKind.UNKNOWN,
)
_MAX_MOMENTS = 1_000
_MAX_STEPS = 400
_MARK = ("step", "start_ns", "duration_ns")


def curve(answers: Answers, name: str, rows: pl.DataFrame, peak: Mapping[str, Any]) -> Block:
    """Of moments (time_ns, allocated_bytes, reserved_bytes, perhaps a column a kind) of one run and device."""
    reserved = rows["reserved_bytes"] if (rows["reserved_bytes"].max() or 0) else None
    highest = [rows["allocated_bytes"].max(), None if reserved is None else reserved.max()]
    return {
        "type": "memory",
        "title": clean(f"{name}: memory in use over time"),
        "time": rows["time_ns"].to_list(),
        "allocated": rows["allocated_bytes"].to_list(),
        "reserved": None if reserved is None else reserved.to_list(),
        "kinds": _kinds(rows),
        "steps": _steps(answers, peak["run_id"]),
        "peak": rows["allocated_bytes"].arg_max(),
        "limit": _limit(answers.trace, peak["run_id"], peak["device_id"]),
        "scale": scale_entries(BYTES, highest),
    }


def _kinds(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Kinds that anything was ever used for, from below; less than nothing is drawn as nothing. Or none is known."""
    columns = [(str(kind), KIND_COLUMNS[str(kind)]) for kind in _STACKED if KIND_COLUMNS[str(kind)] in rows.columns]
    drawn = [
        {"name": kind, "tone": tone_of(kind), "values": rows[column].clip(0).to_list()}
        for kind, column in columns
        if (rows[column].max() or 0) > 0  # type: ignore[operator]
    ]
    return [] if [kind["name"] for kind in drawn] == [str(MemoryKind.UNKNOWN)] else drawn


def tone_of(kind: str) -> str:
    """The tone of a kind of memory, as `report.css` has it."""
    return f"memory-{kind.split(maxsplit=1)[0]}"


def _steps(answers: Answers, run: int) -> list[tuple[int, int, int]]:
    """Number, begin and end of each step as the host's range marks it; of too many none."""
    steps = steps_of(answers.trace).filter(pl.col("run_id") == run)
    if steps.height > _MAX_STEPS:
        return []
    return [(step, start, start + length) for step, start, length in steps.select(_MARK).iter_rows()]


def _limit(trace: Trace, run: int, device: int | None) -> int | None:
    largest = of_series(trace.frame("devices"), run, device)["memory_bytes"].max()
    return largest if isinstance(largest, int) else None


_MAX_CURVES = 4
_MAX_OWNERS = 40
_MEANS = (
    "Memory in use over the whole trace, whatever the steps, by what it is used for; and whose it is when most is in"
    " use, which is what decides whether a batch fits. Of more than a thousand moments those are drawn at which most is"
    " in use, one for each of equal stretches of time."
)
_GROUPINGS = {"layer_type": "by type of layer", "layer_name": "by layer", "phase": "by phase"}
_NO_OWNERS = pl.DataFrame(schema={"grouping": pl.String, "owner": pl.String, "bytes": pl.Int64, "share": pl.Float64})
_NOBODY = {"layer_type": "in no layer", "layer_name": "in no layer", "phase": "in no phase"}


def memory(answers: Answers) -> Section | None:
    """A curve, bars and a table for each device; None where nothing is known of memory in use."""
    over_time, owners, alive = (answers.of(identity) for identity in ("B32", "B33", "B34"))
    if isinstance(over_time, str) or isinstance(owners, str) or isinstance(alive, str) or over_time.table.is_empty():
        return _of_counters(answers)
    series = over_time.table.select(SERIES).unique().sort(*SERIES, nulls_last=True)
    shown, rest = _curves_to_draw(series)
    parts: list[Block] = []
    for run, device in shown.iter_rows():
        rows = of_series(over_time.table, run, device)
        parts += _one(answers, rows, of_series(owners.table, run, device), (run, device), several=series.height > 1)
    parts += [_sentence_on_undrawn_curves(over_time.table, rest)] if rest.height else []
    kept, left_out = cut_rows(alive, "bytes")
    table = [blocks.table(kept, sorted_by="bytes", bar="bytes", left_out=left_out, name="allocations")]
    if kept.table["start_ns"].is_null().all():  # no block is known
        table = []
    return blocks.section("memory", "Memory", "Memory", _MEANS, [*parts, *table])


def _curves_to_draw(series: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Devices before hosts, which are drawn where there is no device; and the others."""
    of_devices = series.filter(pl.col("device_id").is_not_null())
    first = (of_devices if of_devices.height else series).head(_MAX_CURVES)
    return first, series.join(first, on=SERIES, how="anti", nulls_equal=True)


def _one(
    answers: Answers, rows: pl.DataFrame, owners: pl.DataFrame, series: tuple[int, int | None], *, several: bool
) -> list[Block]:
    peak = rows.row(int(rows["allocated_bytes"].arg_max() or 0), named=True)
    name = name_of(answers, *series, several=several)
    sentences = _at_most(answers, name, peak, owners) + _doubts(peak, on_host=_is_host(answers, *series))
    return [blocks.text(sentences), curve(answers, name, rows, peak), *_bars(owners)]


def name_of(answers: Answers, run: int, device: int | None, *, several: bool) -> str:
    """What the memory is of: a device, or the host, and of which run where there are several."""
    what = "Host" if _is_host(answers, run, device) else "The device" if device is None else f"Device {device}"
    runs = answers.trace.frame("runs").filter(pl.col("run_id") == run)
    label, rank = answers.per_step.of_trace.run_labels[run], runs["rank"].item()
    of_run = f", run of {label}" if label else f", rank {rank}" if rank is not None else f", run {run}"
    return f"{what}{of_run if several and answers.trace.height('runs') > 1 else ''}"


def _is_host(answers: Answers, run: int, device: int | None) -> bool:
    """An exported timeline is of a device that it does not name."""
    runs = answers.trace.frame("runs").filter(pl.col("run_id") == run)
    return device is None and RECORDERS.get(runs["format"].item()) is not Recorder.MEMORY_SNAPSHOT


def _at_most(answers: Answers, name: str, peak: Mapping[str, Any], owners: pl.DataFrame) -> str:
    divided = owners.filter(pl.col("grouping").is_in(["reserved", "device"]))
    parts = {owner: (amount, part) for owner, amount, part in divided.select("owner", "bytes", "share").iter_rows()}
    step = _in_step(answers, peak)
    text = f"{name}: at most {size(peak['allocated_bytes'])} in use, {duration(peak['time_ns'])} after the start{step}."
    if "in use" in parts:
        free, part = parts.get("reserved and free", (0, 0.0))
        text += f" {size(peak['reserved_bytes'])} were reserved then, of which {size(free)} ({share(part)}) were free"
        reserved = parts.get("reserved")
        text += f"; that is {share(reserved[1])} of the device's memory." if reserved else "."
    return text


def _in_step(answers: Answers, peak: Mapping[str, Any]) -> str:
    step = step_at(answers.per_step.of_trace.all_steps, peak["run_id"], peak["time_ns"])
    return "" if step is None else f", in step {step}"


def _doubts(peak: Mapping[str, Any], *, on_host: bool) -> str:
    """What the number does not cover; empty: nothing."""
    if peak["basis"] == SUMMED:
        nameless = ", nor of which blocks" if peak["unknown_bytes"] else ""
        return (
            f" The source does not say how much is in use in all{nameless}: this is what was given out less what was"
            " taken back since the recording began, and more may have been in use before."
        )
    if on_host and not peak["before_bytes"]:
        return " Of the host's memory only what was allocated since the recording began is counted."
    if peak["before_bytes"] > 0:
        part = share(peak["before_bytes"] / peak["allocated_bytes"])
        return f" {part} of it is from before the recording, and what that is cannot be told: as a rule weights."
    return ""


def _bars(owners: pl.DataFrame) -> list[Block]:
    """Whose memory it is at the peak, one drawing a grouping that tells more than one owner apart."""
    drawn = _by_kind(owners)
    for grouping, title in _GROUPINGS.items():
        rows = owners.filter(pl.col("grouping") == grouping, pl.col("bytes") > 0).sort("bytes", descending=True)
        if rows.height < 2:  # noqa: PLR2004 (one owner of all is no division)
            continue
        names = [_NOBODY[grouping] if owner is None else owner for owner in rows["owner"].head(_MAX_OWNERS)]
        values = rows["bytes"].head(_MAX_OWNERS).to_list()
        one = {"name": "in use at the peak", "tone": "layer", "values": values, **scale_entries(BYTES, values)}
        shares = rows["share"].head(_MAX_OWNERS).to_list()
        drawn.append(blocks.bars("bars", names, [one], title=f"Memory at the peak {title}", shares=shares))
    return drawn


def _by_kind(owners: pl.DataFrame) -> list[Block]:
    """One bar divided, in the colours of the curve."""
    rows = owners.filter(pl.col("grouping") == "kind", pl.col("bytes") > 0)
    if rows.height < 2:  # noqa: PLR2004
        return []
    scale = scale_entries(BYTES, rows["bytes"].to_list())
    series = [
        {"name": kind, "tone": tone_of(kind), "values": [amount], **scale}
        for kind, amount in rows.select("owner", "bytes").iter_rows()
    ]
    return [blocks.bars("stack", ["at the peak"], series, title="Memory at the peak by what it is used for")]


def _sentence_on_undrawn_curves(table: pl.DataFrame, rest: pl.DataFrame) -> Block:
    peaks = table.join(rest, on=SERIES, how="semi", nulls_equal=True)["allocated_bytes"]
    curves = count_of(rest.height, "more curve", "more curves")
    return blocks.text(f"Not drawn: {curves}, of at most {size(float(peaks.max() or 0))} in use.")  # type: ignore[arg-type]


def _of_counters(answers: Answers) -> Section | None:
    """What samples of memory in use tell, where no allocations do."""
    samples = samples_in_use(answers.trace, _MAX_MOMENTS)
    if samples.is_empty():
        return None
    shown, rest = _curves_to_draw(samples.select(SERIES).unique().sort(*SERIES, nulls_last=True))
    parts: list[Block] = []
    for run, device in shown.iter_rows():
        rows = of_series(samples, run, device)
        peak = rows.row(int(rows["allocated_bytes"].arg_max() or 0), named=True)
        name = name_of(answers, run, device, several=shown.height + rest.height > 1)
        text = f"{_at_most(answers, name, peak, _NO_OWNERS)} The trace says how much is in use, but not for what."
        parts += [blocks.text(text), curve(answers, name, rows, peak)]
    parts += [_sentence_on_undrawn_curves(samples, rest)] if rest.height else []
    return blocks.section("memory", "Memory", "Memory", _MEANS, parts)
