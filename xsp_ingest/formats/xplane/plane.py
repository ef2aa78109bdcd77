"""A plane of a profile as columns: its lines, its events with the statistics XSP uses, its metadata."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from google.protobuf.message import DecodeError

from xsp_ingest.formats.xplane import wire
from xsp_ingest.formats.xplane.messages import message
from xsp_ingest.formats.xplane.scan import scan_lines
from xsp_ingest.formats.xplane.statistics import AMOUNTS, NUMBERS, READ, TEXTS, stat_columns, text_of
from xsp_ingest.formats.xplane.sweep import EVENT, LINE
from xsp_model.intervals import LATEST_NS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_model.arrays import Ints

__all__ = ["Plane", "empty_plane", "read_plane"]

_LINES = 3
_PS_PER_NS = 1000
_HLO_PROTO = ("hlo proto", "hlo_proto")


@dataclass(frozen=True, slots=True)
class Plane:
    """One plane; `events` stand in file order, each with `line`, `metadata_id`, times in ns and statistics.

    `metadata` says what the events of an id are called; a statistic's column is there only where the plane has it.
    `frames` counts events of the Python tracer, which are not among `events`; `untimed` those whose start is beyond
    what 64 bits of ns hold.
    """

    name: str
    stats: Mapping[str, int | float | str]
    metadata: pl.DataFrame
    lines: pl.DataFrame
    events: pl.DataFrame
    hlo_protos: Mapping[str, bytes]
    frames: int
    untimed: int

    def stat(self, name: str) -> pl.Expr:
        """The column of a statistic, null throughout where the plane has none."""
        kind = pl.Int64 if name in NUMBERS else pl.Float64 if name in AMOUNTS else pl.Categorical
        return (pl.col(name) if name in self.events.columns else pl.lit(None).alias(name)).cast(kind)


def empty_plane() -> Plane:
    """A plane without events: what there is where a profile has no plane of a kind."""
    none = memoryview(b"")
    return read_plane(none, 0, 0, Path())


def read_plane(data: memoryview, start: int, end: int, path: Path) -> Plane:
    """The plane that lies from `start` to `end`; XspError where it is damaged."""
    lines: list[tuple[int, int]] = []
    rest = bytearray()
    for field in wire.fields(data, start, end, path):
        if field.number == _LINES and field.is_message:
            lines.append((field.start, field.end))
        else:
            rest += data[field.key : field.end]
    try:
        head = message("Plane").FromString(bytes(rest))
    except DecodeError as error:
        raise wire.damaged(path, start) from error
    names = {entry.key: text_of(entry.value.name) for entry in head.stat_metadata}
    stat_ids = sorted(key for key, name in names.items() if name in READ)
    starts, ends = [at for at, _ in lines], [at for _, at in lines]
    line, event, stat, damage, skipped = scan_lines(data, starts, ends, stat_ids, _frames(head))
    if damage >= 0:
        raise wire.damaged(path, damage)
    table = _lines(line, data)
    events, untimed = _events(event, table)
    metadata = _metadata(head, names)
    columns = stat_columns(stat, events.height, names, data)
    events = events.with_columns(columns)
    return Plane(
        text_of(head.name),
        {names.get(s.metadata_id, ""): _value(s, names) for s in head.stats},
        metadata.select("metadata_id", "event_name", "display_name"),
        table,
        _with_shared(events, metadata).filter(pl.col("start_ns").is_not_null()),
        _hlo_protos(head, names),
        skipped,
        untimed,
    )


def _frames(head: Any) -> list[int]:  # noqa: ANN401 (a protobuf message)
    """Ids of the frames of Python functions: most events of many profiles, and never used."""
    return sorted(entry.key for entry in head.event_metadata if entry.value.name.startswith(b"$"))


def _value(stat: Any, names: Mapping[int, str]) -> int | float | str:  # noqa: ANN401 (a protobuf message)
    kind = stat.WhichOneof("value")
    if kind == "ref_value":
        return names.get(stat.ref_value, "")
    value: int | float | bytes = getattr(stat, kind) if kind else b""
    return text_of(value) if isinstance(value, bytes) else value


def _lines(line: Ints, data: memoryview) -> pl.DataFrame:
    columns = dict(zip(LINE, line, strict=True))
    text = {
        field: [
            text_of(bytes(data[at:stop]))
            for at, stop in zip(columns[f"{field}_at"], columns[f"{field}_end"], strict=True)
        ]
        for field in ("name", "display")
    }
    return pl.DataFrame(
        {
            "line": np.arange(line.shape[1], dtype=np.int64),
            "line_id": columns["line_id"],
            "timestamp_ns": columns["timestamp_ns"],
            "line_name": pl.Series(
                [d or n for n, d in zip(text["name"], text["display"], strict=True)], dtype=pl.String
            ),
        }
    )


def _events(event: Ints, lines: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Events with times: picoseconds are cut to whole ns, start and duration each for itself."""
    columns = dict(zip(EVENT, event, strict=True))
    origin = lines["timestamp_ns"].to_numpy()[columns["line"]]
    offset = columns["offset_ps"] // _PS_PER_NS
    sound = (np.abs(origin.astype(np.float64)) < LATEST_NS) & (origin != np.iinfo(np.int64).min)
    start = pl.Series(np.where(sound, origin, 0) + offset)
    frame = pl.DataFrame(
        {
            "line": columns["line"],
            "metadata_id": columns["metadata_id"],
            "start_ns": start,
            "duration_ns": columns["duration_ps"] // _PS_PER_NS,
        }
    )
    has_start = pl.Series(sound)
    return frame.with_columns(pl.when(has_start).then(pl.col("start_ns")).alias("start_ns")), int((~sound).sum())


def _metadata(head: Any, names: Mapping[int, str]) -> pl.DataFrame:  # noqa: ANN401
    """One row an event metadata: id, names, and the statistics read that all its events share."""
    columns: dict[str, list[object]] = {
        key: [] for key in ("metadata_id", "event_name", "display_name", *AMOUNTS, *TEXTS)
    }
    for entry in head.event_metadata:
        shared = {names.get(s.metadata_id, ""): _value(s, names) for s in entry.value.stats}
        columns["metadata_id"].append(entry.key)
        columns["event_name"].append(text_of(entry.value.name))
        columns["display_name"].append(text_of(entry.value.display_name))
        for key in (*AMOUNTS, *TEXTS):
            value = shared.get(key)
            columns[key].append(value if isinstance(value, (int, float) if key in AMOUNTS else str) else None)
    types = {key: pl.Float64() if key in AMOUNTS else pl.String() for key in columns}
    frame = pl.DataFrame(columns, schema=types | {"metadata_id": pl.Int64()}, strict=False)
    return frame.unique("metadata_id", keep="last", maintain_order=True)


def _with_shared(events: pl.DataFrame, metadata: pl.DataFrame) -> pl.DataFrame:
    """Events with the statistics of their metadata where they have none of their own."""
    shared = [key for key in (*AMOUNTS, *TEXTS) if metadata[key].null_count() < metadata.height]
    if not shared:
        return events
    joined = events.join(
        metadata.select("metadata_id", *shared), on="metadata_id", how="left", suffix="_shared", maintain_order="left"
    )
    twice = [key for key in shared if key in events.columns]
    return joined.with_columns(
        pl.coalesce(pl.col(key).cast(pl.String), f"{key}_shared") if key in TEXTS else pl.coalesce(key, f"{key}_shared")
        for key in twice
    ).drop(f"{key}_shared" for key in twice)


def _hlo_protos(head: Any, names: Mapping[int, str]) -> dict[str, bytes]:  # noqa: ANN401
    """By module: the compiled programs that the plane of metadata holds, serialised."""
    protos: dict[str, bytes] = {}
    for entry in head.event_metadata:
        for stat in entry.value.stats:
            if stat.WhichOneof("value") == "bytes_value" and names.get(stat.metadata_id, "").lower() in _HLO_PROTO:
                protos[text_of(entry.value.name)] = stat.bytes_value
    return protos
