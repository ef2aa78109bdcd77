"""The block that draws memory over time: what was in use and reserved, what for, and the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from xsp_analyze.core import Column
from xsp_analyze.frames.memory import KIND_COLUMNS, SERIES, of_series
from xsp_analyze.frames.steps import steps_of
from xsp_analyze.render.figure import scale_entries
from xsp_analyze.text.shown import clean
from xsp_model import MemoryKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_analyze.pages.blocks import Block
    from xsp_analyze.service.answers import Answers
    from xsp_model import Trace

__all__ = ["BYTES", "curve", "samples_in_use", "tone_of"]

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
_IN_USE = ("allocated_bytes", "memory_in_use_bytes", "bytes_in_use", "memory_used_bytes")  # the first that there is
_MAX_MOMENTS = 1_000
_MAX_STEPS = 400


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
    """Those that anything was ever used for, from below; less than nothing is drawn as nothing. Or none is known."""
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
    end = pl.col("start_ns") + pl.col("duration_ns")
    return steps.select("step", "start_ns", end.alias("end_ns")).rows()


def _limit(trace: Trace, run: int, device: int | None) -> int | None:
    largest = of_series(trace.frame("devices"), run, device)["memory_bytes"].max()
    return largest if isinstance(largest, int) else None


def samples_in_use(trace: Trace) -> pl.DataFrame:
    """Moments of what counters say is in use and reserved; of many those of equal times at which most is in use."""
    samples = (
        trace.frame("counters")
        .filter(pl.col("unit").cast(pl.String) == "byte")
        .with_columns(pl.col("counter").cast(pl.String), pl.col("value").cast(pl.Int64))
    )
    rank = pl.col("counter").replace_strict({name: i for i, name in enumerate(_IN_USE)}, default=None)
    ranked = samples.with_columns(rank.alias("rank")).drop_nulls("rank")
    in_use = ranked.filter(pl.col("rank") == pl.col("rank").min().over(SERIES)).rename({"value": "allocated_bytes"})
    held = samples.filter(pl.col("counter") == "reserved_bytes").rename({"value": "reserved_bytes"})
    keys = [*SERIES, "time_ns"]
    by_time = held.group_by(keys).agg(pl.col("reserved_bytes").max())
    joined = in_use.join(by_time, on=keys, how="left", nulls_equal=True, maintain_order="left").sort(keys)
    begin, end = pl.col("time_ns").min().over(SERIES), pl.col("time_ns").max().over(SERIES)
    stretch = ((pl.col("time_ns") - begin) * (_MAX_MOMENTS - 1)) // pl.max_horizontal(end - begin, 1)
    return (
        joined.with_columns(stretch.alias("stretch"))
        .group_by(*SERIES, "stretch", maintain_order=True)
        .agg(pl.col("time_ns", "allocated_bytes", "reserved_bytes").get(pl.col("allocated_bytes").arg_max()))
        .drop("stretch")
    )
