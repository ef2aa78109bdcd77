"""From one process's tables in the SQLite database to the common columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl

from xsp_ingest.formats.rocprofv3.agents import devices
from xsp_ingest.formats.rocprofv3.columns import API, COPY, COUNT, KERNEL, Records, column
from xsp_ingest.formats.rocprofv3.document import Agent
from xsp_ingest.formats.rocprofv3.names import plain_kernel_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_ingest.formats.rocprofv3.database import OneProcess

__all__ = ["from_rocpd"]

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
    described = devices(_described(tables, numbers), _process(tables))
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


def _described(tables: OneProcess, numbers: Mapping[int, int]) -> dict[int, Agent]:
    """What is said of each GPU, by its number: `extdata` is what the JSON output has of it."""
    ids = tables.integers("info_agent", "id")["id"].to_list()
    texts = zip(*(tables.texts("info_agent", one) for one in ("extdata", "product_name", "name")), strict=True)
    out: dict[int, Agent] = {}
    for agent, (extdata, product, name) in zip(ids, texts, strict=True):
        if agent in numbers:
            agent_of = _decoded(extdata)
            out[numbers[agent]] = msgspec.structs.replace(
                agent_of, product_name=product or "", name=name or agent_of.name
            )
    return dict(sorted(out.items()))


def _decoded(extdata: str | None) -> Agent:
    try:
        return msgspec.json.decode(extdata or "{}", type=Agent)
    except (msgspec.MsgspecError, UnicodeError):
        return Agent()


def _placed(rows: pl.DataFrame, numbers: Mapping[int, int], own: str, name: str) -> pl.DataFrame:
    of = {own: column(own, list(numbers)), name: column(name, list(numbers.values()))}
    return rows.join(pl.DataFrame(of), on=own, how="left", maintain_order="left")


_COMMON = {"process": "pid", "thread": "tid", "stream": "stream_id"}


def _kernels(tables: OneProcess, numbers: Mapping[int, int]) -> pl.DataFrame:
    """The columns of KERNEL and `event_id`."""
    own = ("kernel_id", "dispatch_id", "group_segment_size", *_SIZES.values(), "event_id")
    rows = _placed(tables.events(tables.timed("kernel_dispatch", *own)), numbers, "agent_id", "agent")
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
    rows = tables.events(tables.timed("memory_copy", "name_id", "dst_agent_id", "src_agent_id", "size", "event_id"))
    ends = _placed(_placed(rows, numbers, "src_agent_id", "from"), numbers, "dst_agent_id", "to")
    named = tables.named(ends, "name_id", "direction").with_columns(pl.coalesce("from", "to").alias("agent"))
    return named.rename({theirs: ours for ours, theirs in _COMMON.items()} | {"size": "bytes"}).select(*COPY)


def _calls(tables: OneProcess, table: str) -> pl.DataFrame:
    """Calls and markers: regions, and as samples those of no duration; of a marker the message is its name."""
    rows = tables.named(tables.events(tables.timed(table, "name_id", "event_id")), "category_id", "domain")
    named = tables.named(rows, "name_id", "called").join(_messages(tables), on="event_id", how="left")
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
