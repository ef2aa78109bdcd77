"""The SQLite database that rocprofv3 writes since ROCm 6.4 (`--output-format rocpd`, the default since 7.0).

Facts from ROCprofiler-SDK: tables `source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql` (schema 3; `_<GUID>` behind
each name, one GUID a process), what is in them `source/lib/output/generateRocpd.cpp`. Process, thread, agent,
stream and times stand in the row itself, in later versions in `rocpd_track` and `rocpd_timestamp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from xsp_ingest.files.sqlite import Database, table_names
from xsp_ingest.formats.rocprofv3.json_records import Agent, devices
from xsp_ingest.formats.rocprofv3.outputs import suffixes
from xsp_ingest.formats.rocprofv3.records import API, COPY, COUNT, KERNEL, Records, column, plain_kernel_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["OneProcess", "from_rocpd", "processes"]

_COLUMNS = ("pid", "tid", "agent_id", "stream_id")


def processes(path: Path) -> list[OneProcess]:
    """The processes of the file; XspError where it is damaged."""
    tables = table_names(path)
    database = Database(path, tables)
    return [OneProcess(database, suffix) for suffix in suffixes(tables)]


@dataclass(frozen=True)
class OneProcess:
    """The tables with one GUID."""

    database: Database
    suffix: str

    def name(self, table: str) -> str:
        """A table's full name."""
        return f"rocpd_{table}{self.suffix}"

    def integers(self, table: str, *columns: str) -> pl.DataFrame:
        """These columns, null where the version does not have them, in order of rowid."""
        return self.database.integers(self.name(table), columns).drop("rowid")

    def texts(self, table: str, column: str) -> pl.Series:
        """A column of texts, in the same order."""
        return self.database.texts(self.name(table), column)

    def numbers(self, table: str, column: str) -> pl.Series:
        """A column of any numbers, in the same order."""
        return self.database.numbers(self.name(table), column)

    @cached_property
    def strings(self) -> pl.DataFrame:
        """Texts by their ids."""
        return self.integers("string", "id").with_columns(self.texts("string", "string"))

    def with_texts(self, rows: pl.DataFrame, own: str, name: str) -> pl.DataFrame:
        """Adds column `name`: the text of the id in column `own`."""
        texts = self.strings.select(pl.col("id").alias(own), pl.col("string").alias(name))
        return rows.join(texts.unique(own, keep="first"), on=own, how="left", maintain_order="left")

    def times_of(self, table: str, *columns: str) -> pl.DataFrame:
        """These columns of device work or calls, with `start`, `end`, `pid`, `tid`, `agent_id` and `stream_id`."""
        has = self.database.columns(self.name(table))
        if "start_id" in has:
            rows = self.integers(table, "track_id", "start_id", "end_id", *columns)
            rows = self._at(self._at(rows, "start_id", "start"), "end_id", "end")
        elif "timestamp_id" in has or "timestamp" in has:  # a sample: of no duration
            rows = self.integers(table, "track_id", "timestamp_id", "timestamp", *columns)
            rows = self._at(rows, "timestamp_id", "moment").with_columns(start=pl.coalesce("moment", "timestamp"))
            rows = rows.with_columns(end="start")
        else:
            rows = self.integers(table, *_COLUMNS, "start", "end", *columns)
        placed = rows if "track_id" not in rows.columns else self._with_tracks(rows)
        return self._with_system_ids(self._with_system_ids(placed, "pid", "info_process"), "tid", "info_thread")

    def _at(self, rows: pl.DataFrame, own: str, name: str) -> pl.DataFrame:
        times = self.integers("timestamp", "id", "value").rename({"id": own, "value": name})
        return rows.join(times.unique(own, keep="first"), on=own, how="left", maintain_order="left")

    def _with_tracks(self, rows: pl.DataFrame) -> pl.DataFrame:
        tracks = self.integers("track", "id", *_COLUMNS).rename({"id": "track_id"})
        return rows.join(tracks.unique("track_id", keep="first"), on="track_id", how="left", maintain_order="left")

    def _with_system_ids(self, rows: pl.DataFrame, column: str, table: str) -> pl.DataFrame:
        """The system's number of a process or thread for the id that refers to it."""
        own = self.integers(table, "id", column).select(pl.col("id").alias(column), pl.col(column).alias("number"))
        joined = rows.join(own.unique(column, keep="first"), on=column, how="left", maintain_order="left")
        return joined.with_columns(pl.coalesce("number", column).alias(column)).drop("number")

    def events(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Adds `correlation`, the internal id, which stands in `stack_id`, and `category_id`, by `event_id`."""
        columns: Sequence[str] = ("id", "stack_id", "category_id")
        events = self.integers("event", *columns).rename({"id": "event_id", "stack_id": "correlation"})
        return rows.join(events.unique("event_id", keep="first"), on="event_id", how="left", maintain_order="left")


# From one process's tables in the SQLite database to the common columns.

_SIZES = {
    f"{ours}_{axis}": f"{theirs}_{axis}"
    for ours, theirs in (("threads", "grid_size"), ("block", "workgroup_size"))
    for axis in "xyz"
}
_MARKER = r"(?i)^MARKER"


class _Message(msgspec.Struct, frozen=True):
    message: str | None = None


def from_rocpd(tables: OneProcess) -> Records:
    """The records of one process; XspError where the file is damaged."""
    numbers = _numbers(tables)
    kernels = _kernels(tables, numbers)
    calls = pl.concat([_calls(tables, "region"), _calls(tables, "sample")])
    described = devices(_agents_by_number(tables, numbers), _process(tables))
    return Records(
        kernels.select(*KERNEL), _copies(tables, numbers), calls, described, _counts(tables, kernels).select(*COUNT)
    )


def _process(tables: OneProcess) -> int | None:
    return next(iter(tables.integers("info_process", "pid")["pid"].to_list()), None)


def _numbers(tables: OneProcess) -> dict[int, int]:
    """A GPU's number among the GPUs, in the order of their nodes as HIP numbers them, by the id of its agent."""
    agents = tables.integers("info_agent", "id", "absolute_index").with_columns(tables.texts("info_agent", "type"))
    gpus = agents.filter(pl.col("type") == "GPU").sort(pl.coalesce("absolute_index", "id"), "id")
    return {agent: number for number, agent in enumerate(gpus["id"].to_list())}


def _agents_by_number(tables: OneProcess, numbers: Mapping[int, int]) -> dict[int, Agent]:
    """What is said of each GPU, by its number: `extdata` is what the JSON output has of it."""
    ids = tables.integers("info_agent", "id")["id"].to_list()
    texts = zip(*(tables.texts("info_agent", one) for one in ("extdata", "product_name", "name")), strict=True)
    out: dict[int, Agent] = {}
    for agent, (extdata, product, name) in zip(ids, texts, strict=True):
        if agent in numbers:
            agent_of = _decode_agent(extdata)
            out[numbers[agent]] = msgspec.structs.replace(
                agent_of, product_name=product or "", name=name or agent_of.name
            )
    return dict(sorted(out.items()))


def _decode_agent(extdata: str | None) -> Agent:
    try:
        return msgspec.json.decode(extdata or "{}", type=Agent)
    except (msgspec.MsgspecError, UnicodeError):
        return Agent()


def _with_gpu_numbers(rows: pl.DataFrame, numbers: Mapping[int, int], own: str, name: str) -> pl.DataFrame:
    of = {own: column(own, list(numbers)), name: column(name, list(numbers.values()))}
    return rows.join(pl.DataFrame(of), on=own, how="left", maintain_order="left")


_COMMON = {"process": "pid", "thread": "tid", "stream": "stream_id"}


def _kernels(tables: OneProcess, numbers: Mapping[int, int]) -> pl.DataFrame:
    """The columns of KERNEL and `event_id`."""
    own = ("kernel_id", "dispatch_id", "group_segment_size", *_SIZES.values(), "event_id")
    rows = _with_gpu_numbers(tables.events(tables.times_of("kernel_dispatch", *own)), numbers, "agent_id", "agent")
    return rows.join(_symbols(tables), on="kernel_id", how="left", maintain_order="left").rename(
        {theirs: ours for ours, theirs in {**_COMMON, **_SIZES}.items()}
        | {"dispatch_id": "dispatch", "group_segment_size": "shared"}
    )


def _symbols(tables: OneProcess) -> pl.DataFrame:
    table = "info_kernel_symbol"
    columns = {"id": "kernel_id", "arch_vgpr_count": "registers", "accum_vgpr_count": "accumulation_registers"}
    rows = tables.integers(table, *columns).rename(columns)
    names = [
        plain_kernel_name(name or shown) if name or shown else None
        for name, shown in zip(tables.texts(table, "kernel_name"), tables.texts(table, "display_name"), strict=True)
    ]
    return rows.with_columns(pl.Series("name", names, dtype=pl.String)).unique("kernel_id", keep="first")


def _copies(tables: OneProcess, numbers: Mapping[int, int]) -> pl.DataFrame:
    """A copy is its source's; where that is the host, its destination's."""
    rows = tables.events(tables.times_of("memory_copy", "name_id", "dst_agent_id", "src_agent_id", "size", "event_id"))
    ends = _with_gpu_numbers(_with_gpu_numbers(rows, numbers, "src_agent_id", "from"), numbers, "dst_agent_id", "to")
    named = tables.with_texts(ends, "name_id", "direction").with_columns(pl.coalesce("from", "to").alias("agent"))
    return named.rename({theirs: ours for ours, theirs in _COMMON.items()} | {"size": "bytes"}).select(*COPY)


def _calls(tables: OneProcess, table: str) -> pl.DataFrame:
    """Calls and markers: regions, and as samples those of no duration; of a marker the message is its name."""
    rows = tables.with_texts(tables.events(tables.times_of(table, "name_id", "event_id")), "category_id", "domain")
    named = tables.with_texts(rows, "name_id", "called").join(_messages(tables), on="event_id", how="left")
    text = pl.when(pl.col("domain").str.contains(_MARKER)).then("message")
    return (
        named.with_columns(pl.coalesce(text, "called").alias("name"))
        .rename({theirs: ours for ours, theirs in _COMMON.items()})
        .select(*API)
    )


def _messages(tables: OneProcess) -> pl.DataFrame:
    """What markers say, by their events."""
    events = tables.integers("event", "id").select(pl.col("id").alias("event_id"))
    marked = events.with_columns(tables.texts("event", "extdata")).filter(pl.col("extdata").str.contains('"message"'))
    messages = [_message(text) for text in marked["extdata"]]
    return marked.select("event_id").with_columns(pl.Series("message", messages, dtype=pl.String)).unique("event_id")


def _message(extdata: str) -> str | None:
    try:
        return msgspec.json.decode(extdata, type=_Message).message or None
    except (msgspec.MsgspecError, UnicodeError):
        return None


def _counts(tables: OneProcess, kernels: pl.DataFrame) -> pl.DataFrame:
    """Instances of counters with the dispatches that their events are of."""
    rows = tables.integers("pmc_event", "event_id", "pmc_id").with_columns(tables.numbers("pmc_event", "value"))
    names = tables.integers("info_pmc", "id").select(pl.col("id").alias("pmc_id"))
    named = rows.join(
        names.with_columns(tables.texts("info_pmc", "name").alias("counter")).unique("pmc_id", keep="first"),
        on="pmc_id",
        how="left",
        maintain_order="left",
    )
    of = kernels.select("event_id", "process", "dispatch").drop_nulls("event_id").unique("event_id", keep="first")
    return named.join(of, on="event_id", how="left", maintain_order="left")
