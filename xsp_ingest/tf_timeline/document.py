"""The JSON of a timeline as typed values, and as columns."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_ingest.content import whole
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Event", "events_of", "load"]

_MOST_BYTES = 1 << 28
_NS_PER_US = 1000
_LAST_US = (1 << 62) // _NS_PER_US
_AGAIN = "Write the timeline again; a program that was killed leaves such files"
_PLACE = re.compile(r"byte (\d+)")
_BOM = b"\xef\xbb\xbf"


class Event(msgspec.Struct):
    """One event; `ts` and `dur` are microseconds, the former since 1970."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    id: Any = None
    args: Any = None


class _Document(msgspec.Struct):
    traceEvents: list[Any]  # noqa: N815 (Chrome's key)


def load(path: Path) -> tuple[list[Event], int]:
    """The events, and how many entries of the list are none; XspError where the file is no timeline."""
    raw = whole(path, _MOST_BYTES).removeprefix(_BOM)
    try:
        entries = msgspec.json.decode(raw, type=_Document).traceEvents
    except msgspec.ValidationError as error:
        raise XspError(
            "the JSON holds no list `traceEvents`", path=path, advice="Is it a TensorFlow timeline?"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise XspError(_complaint(error), path=path, advice=_AGAIN) from error
    events = [msgspec.convert(entry, Event) for entry in entries if isinstance(entry, dict)]
    return events, len(entries) - len(events)


def _complaint(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the timeline's JSON is nested too deeply"
    if "truncated" in str(error):
        return "the timeline is cut off: the file ends before its JSON does"
    place = _PLACE.search(str(error))
    return f"the timeline is not valid JSON at byte {place[1]}" if place else "the timeline is not valid JSON"


def events_of(events: list[Event], ph: str) -> pl.DataFrame:
    """The events of a phase as columns: pid, tid, id, times in ns, `cat`, and `name` with the texts of `args`."""
    rows = [_row(event) for event in events if event.ph == ph]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


_SCHEMA = {
    "cat": pl.String(),
    "name": pl.String(),
    "pid": pl.Int64(),
    "tid": pl.Int64(),
    "id": pl.Int64(),
    "start_ns": pl.Int64(),
    "duration_ns": pl.Int64(),
    "node": pl.String(),  # args.name
    "op": pl.String(),
    "kernel": pl.String(),
    "inputs": pl.List(pl.String()),
    "value": pl.Int64(),  # a counter's
    "snapshot": pl.String(),
}


def _row(event: Event) -> tuple[object, ...]:
    args = event.args if isinstance(event.args, dict) else {}
    name = _text(event.name) or ""
    snapshot = args.get("snapshot")
    described = snapshot.get("tensor_description") if isinstance(snapshot, dict) else None
    inputs = [found for n in range(len(args)) if (found := _text(args.get(f"input{n}"))) is not None]
    return (
        _text(event.cat),
        name,
        _whole(event.pid),
        _whole(event.tid),
        _whole(event.id),
        _nanoseconds(event.ts),
        _nanoseconds(event.dur),
        _text(args.get("name")),
        _text(args.get("op")),
        _text(args.get("kernel")),
        inputs,
        _whole(args.get(name)),
        _text(described),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _nanoseconds(value: object) -> int | None:
    """Microseconds, whole or with decimals, as ns; null for what is no finite number or beyond 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LAST_US < value < _LAST_US:
        return None
    return value * _NS_PER_US if isinstance(value, int) else int(Decimal(repr(value)) * _NS_PER_US)
