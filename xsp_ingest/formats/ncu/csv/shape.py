"""Turns collected kernels and counters into the staging tables: the texts of counters as numbers in base units."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.counters.formula import (
    UNAVAILABLE,
    Measured,
    base_unit,
    canonical,
    decimal_sign,
    to_floats,
    with_evidence,
)
from xsp_ingest.counters.ncu_names import counter_of, doubts, ncu_table
from xsp_ingest.formats.ncu.csv.pages import ATTRIBUTE, LAUNCH, devices, peaks
from xsp_ingest.link.range_rules import NVTX, classify, module_ranges, plain_name
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_ingest.counters.formula import Unit
    from xsp_ingest.formats.ncu.csv.pages import Collected, NvtxRange
    from xsp_ingest.ingester import Options
    from xsp_model.columns.arrays import Floats

__all__ = ["shape"]

_TOOL = "ncu"
_DEVICE_NAME = "device__attribute_display_name"
_COUNTED = ("1", "byte", "inst", "sector", "request", "warp", "thread", "block", "ns", "cycle")
_NEEDS_UNIT = re.compile(
    r"__time_|__bytes|\.per_second$|^Duration$|^(?:SM|DRAM|Memory) Frequency$|^launch__shared_mem_per"
)
_PLACE_NS = 1  # of a kernel of unknown duration, so that what is around it nests
_WHOLE_ENDS = (".sum", ".max", ".min")


@dataclass(frozen=True, slots=True)
class _Column:
    """All values under one label and unit."""

    counter: str
    is_label: bool  # another name for the counter, rounded for the eye
    unit: Unit
    kernels: list[int]
    texts: pl.Series
    lacks_unit: bool  # though values mean nothing without one

    @property
    def is_integer(self) -> bool:
        """Whether it counts things, in units of one."""
        plain = self.unit.multiply == self.unit.divide == 1
        return plain and self.unit.name in _COUNTED and self.counter.endswith(_WHOLE_ENDS)


def measured_counters(collected: Collected, path: Path) -> tuple[Measured, list[Finding]]:
    """Every counter's values, and what could not be read as a number; XspError where numbers are ambiguous."""
    columns = [_column(label, unit, *where) for (label, unit), where in collected.values.items()]
    unitless = sum(len(column.kernels) for column in columns if column.lacks_unit)
    columns = [column for column in columns if not column.lacks_unit]
    sign = collected.decimal_sign or _sign_of(columns, path)
    height = len(collected.kernels["name"])
    wide: dict[str, Floats] = {}
    units: dict[str, str] = {}
    lost, texts = 0, 0
    # What is written last stays: a counter by its own name over its label, and the first section that has it.
    columns.reverse()
    for column in sorted(columns, key=lambda c: not c.is_label):
        values = column.texts.to_frame("text").select(to_floats(pl.col("text"), sign)).to_series()
        none, text = _without_number(column.texts.filter(values.is_null()))
        lost, texts = lost + none, texts + text
        has_value = values.is_not_null().to_numpy()
        if has_value.any():
            into = wide.setdefault(column.counter, np.full(height, np.nan))
            scaled = values.to_numpy() * column.unit.multiply / column.unit.divide
            into[np.asarray(column.kernels)[has_value][::-1]] = scaled[has_value][::-1]
            units[column.counter] = column.unit.name
    frame = pl.DataFrame({"row": range(height), **wide}, schema_overrides={"row": pl.Int64})
    return Measured(frame.with_columns(pl.col(pl.Float64).fill_nan(None)), units, _TOOL), _findings(
        lost, texts, unitless
    )


def _sign_of(columns: Sequence[_Column], path: Path) -> str:
    evidence = {sign for column in columns for sign in with_evidence(column.texts, integers=column.is_integer)}
    return decimal_sign(evidence, path)


def _column(label: str, text: str, kernels: list[int], texts: list[str]) -> _Column:
    unit = base_unit(text)
    counter = counter_of(label, unit.name)
    lacks_unit = not text.strip() and bool(_NEEDS_UNIT.search(counter))
    return _Column(counter, counter != label, unit, kernels, pl.Series(texts, dtype=pl.String), lacks_unit)


def _without_number(texts: pl.Series) -> tuple[int, int]:
    """How many say that there is no value, and how many say something else."""
    bare = texts.str.strip_chars().str.to_lowercase()
    none = int(bare.is_in(UNAVAILABLE).sum())
    return none, int((bare != "").sum()) - none


def _findings(lost: int, texts: int, unitless: int) -> list[Finding]:
    detail = "values that the profiler could not collect (n/a or nan); they are unknown"
    return [
        Finding(LedgerKind.COUNTER_UNAVAILABLE, detail, lost),
        Finding(LedgerKind.COUNTER_WITHOUT_UNIT, count=unitless),
        Finding(LedgerKind.TEXT_COUNTER_LEFT_OUT, "values that are words, no numbers", texts),
    ]


def device_names(collected: Collected) -> dict[str | None, str]:
    """What each device calls itself, by the number that the kernels give it."""
    device = collected.kernels["device"]
    pairs_of = [zip(*where, strict=True) for (label, _), where in collected.values.items() if label == _DEVICE_NAME]
    return {device[kernel]: text for pairs in pairs_of for kernel, text in pairs}


# Turns collected kernels and counters into the staging tables that the linker takes.

_NO_TIME = (
    "kernels have no time stamps: each was put after the one before it. Their durations are of kernels replayed alone,"
    " never latencies"
)


def shape(collected: Collected, path: Path, profiler: str, options: Options) -> RawTrace:
    """One run: the kernels in the order of their launches, with all counters that could be read."""
    counted, findings = measured_counters(collected, path)
    kernels = _ordered_kernels(collected).join(counted.wide, on="row", how="left", maintain_order="left")
    stacks = [collected.ranges[number] for number in kernels["row"]]
    kernels = kernels.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"))
    wide = kernels.select("row", *(c for c in counted.wide.columns if c != "row" and not _is_launch(c)))
    table = ncu_table(wide.columns)
    counters = Measured(_with_invocations(wide, kernels), {**counted.units, "invocations": "1"}, counted.tool)
    names = pl.DataFrame(
        {"device_id": [_integer(d) for d in device_names(collected)], "name": list(device_names(collected).values())},
        schema={"device_id": pl.Int64, "name": pl.String},
    )
    work = _spans(kernels, _PLACE_NS if any(stacks) else 0)
    ranges, issued_by = _pushed_ranges(work, kernels["table"], stacks)
    around, layers, unread = _range_spans(ranges, options)
    tables = {
        "spans": pl.concat([work.with_columns(pl.Series("issued_by_row", issued_by, pl.Int64)), around]),
        "ranges": frame_of("ranges", ranges.select("row", "text", "domain", "style")),
        "layers": layers,
        "kernels": frame_of("kernels", kernels.select("row", *_launch_columns(kernels))),
        "metrics": frame_of("metrics", canonical(counters, table)),
        "devices": devices(kernels, names),
        "peaks": _peaks(kernels),
    }
    tables |= {name: frame_of(name) for name in RAW_TABLES if name not in tables}
    findings += [*doubts(kernels, counted.wide.columns), *_omissions(collected, kernels.height)]
    return RawTrace(tables, RunFacts(profiler=profiler), (*findings, *unread))


def _ordered_kernels(collected: Collected) -> pl.DataFrame:
    """The facts about kernels as numbers, in the order of launch: by table, then ID, then as they stand."""
    facts = pl.DataFrame(collected.kernels, schema=dict.fromkeys(collected.kernels, pl.String))
    sizes = [
        pl.col(what)
        .str.extract_all(r"\d+")
        .list.get(n, null_on_oob=True)
        .cast(pl.Int64, strict=False)
        .alias(f"{what}_{axis}")
        for what in ("grid", "block")
        for n, axis in enumerate("xyz")
    ]
    integers = {"process": "process_id", "context": "context_id", "stream": "stream_id", "device": "device_id"}
    return (
        facts.with_row_index("row")
        .select(
            pl.col("row").cast(pl.Int64),
            "name",
            pl.col("capability").alias("compute_capability"),
            *(pl.col(old).str.strip_chars().cast(pl.Int64, strict=False).alias(new) for old, new in integers.items()),
            *(
                pl.col(n).str.strip_chars().cast(pl.Int64, strict=False).alias(n)
                for n in ("id", "table", "invocations")
            ),
            *sizes,
        )
        .sort("table", "id", "row", nulls_last=True)
    )


def _integer(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\s*\d{1,18}\s*", text) else None


def _is_launch(counter: str) -> bool:
    return counter.startswith(ATTRIBUTE) or counter in LAUNCH.values()


def _with_invocations(wide: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """With `invocations` as a counter where rows are means of several executions."""
    executions = kernels["invocations"]
    return wide if executions.is_null().all() else wide.with_columns(executions.cast(pl.Float64).alias("invocations"))


def _spans(kernels: pl.DataFrame, place_ns: int) -> pl.DataFrame:
    time = "gpu__time_duration.sum"
    measured_ns = pl.col(time) if time in kernels.columns else pl.lit(None, pl.Float64)
    possible = measured_ns.is_between(0, MAX_DURATION_NS)
    spans = kernels.with_columns(
        pl.when(possible).then(measured_ns.round()).cast(pl.Int64).alias("duration_ns"),
        pl.lit("kernel").alias("level"),
        pl.lit("kernel").alias("kind"),
    )
    start = pl.col("duration_ns").fill_null(place_ns).cum_sum().shift(1, fill_value=0)
    return frame_of("spans", spans.with_columns(start.alias("start_ns")))


def _pushed_ranges(
    work: pl.DataFrame, tables: pl.Series, stacks: Sequence[Sequence[NvtxRange]]
) -> tuple[pl.DataFrame, list[int | None]]:
    """The ranges around kernels, from the first of them to the last, and for each kernel the row of the innermost.

    A range lasts as long as kernels one after the other have it in the same place: two calls in a row are one.
    """
    ranges: list[dict[str, object]] = []
    open_: list[tuple[tuple[object, ...], int]] = []
    issued_by: list[int | None] = []
    facts = work.select("start_ns", pl.col("duration_ns").fill_null(_PLACE_NS), "process_id").hstack([tables])
    for (start, duration, process, table), stack in zip(facts.iter_rows(), stacks, strict=True):
        keys = [(table, process, each) for each in stack]
        same = next((n for n, (a, (b, _)) in enumerate(zip(keys, open_, strict=False)) if a != b), len(keys))
        del open_[same:]
        for key, each in list(zip(keys, stack, strict=True))[len(open_) :]:
            row = work.height + len(ranges)
            open_.append((key, row))
            ranges.append(
                {"row": row, "text": each.text, "domain": each.domain, "start_ns": start, "process_id": process}
            )
        for _, row in open_:
            ranges[row - work.height]["duration_ns"] = start + duration - ranges[row - work.height]["start_ns"]
        issued_by.append(open_[-1][1] if open_ else None)
    integers = dict.fromkeys(("row", "start_ns", "duration_ns", "process_id"), pl.Int64)
    table = pl.DataFrame(ranges, schema={**integers, "text": pl.String, "domain": pl.String})
    return table.with_columns(pl.lit("PushPop").alias("style")), issued_by


def _range_spans(ranges: pl.DataFrame, options: Options) -> tuple[pl.DataFrame, pl.DataFrame, tuple[Finding, ...]]:
    """Spans of ranges by what their names stand for, what those of modules say of layers, and what cannot be read."""
    named = ranges.with_columns(plain_name(pl.col("text")).alias("name"), pl.lit(0, pl.Int64).alias("thread_id"))
    named, layers, unread = module_ranges(named.with_columns((pl.col("name") != pl.col("text")).alias("numbered")))
    levels = classify(named, NVTX, model_ranges=options.model_ranges, layer_ranges=options.layer_ranges)
    return frame_of("spans", named.hstack(levels)), layers, unread


def _launch_columns(kernels: pl.DataFrame) -> list[pl.Expr]:
    """How each was launched: from its own columns, else from the counters that say so."""
    out = []
    for column, counter in LAUNCH.items():
        sources = [pl.col(name) for name in (column, counter) if name in kernels.columns]
        if sources:
            out.append(pl.coalesce(e.cast(pl.Int64, strict=False) for e in sources).alias(column))
    held = [pl.col(LAUNCH[c]) for c in ("static_shared_bytes", "dynamic_shared_bytes") if LAUNCH[c] in kernels.columns]
    if len(held) == 2:  # noqa: PLR2004 (both)
        out.append((held[0] + held[1]).cast(pl.Int64, strict=False).alias("shared_bytes"))
    return out


def _peaks(kernels: pl.DataFrame) -> pl.DataFrame:
    rows = [(device, p.quantity, p.value, p.unit, p.source, p.detail) for device, p in peaks(kernels)]
    columns = {"device_id": pl.Int64, "quantity": pl.String, "value": pl.Float64}
    columns |= dict.fromkeys(("unit", "source", "detail"), pl.String)
    return frame_of("peaks", pl.DataFrame(rows, schema=columns, orient="row"))


def _omissions(collected: Collected, kernels: int) -> list[Finding]:
    return [
        Finding(LedgerKind.NO_TIMESTAMPS, _NO_TIME, kernels, advice="Join it to a timeline with `xsp merge`"),
        Finding(LedgerKind.CUT_OFF_ROWS, "rows end before their last column and were left out", collected.cut_off),
        Finding(LedgerKind.NVTX_STATE_LEFT_OUT, count=collected.annotations),
        *(
            Finding(LedgerKind.PROFILER_ADVICE, f"{': '.join(filter(None, rule))}: {messages[0]}", len(messages))
            for rule, messages in collected.advice.items()
        ),
    ]
