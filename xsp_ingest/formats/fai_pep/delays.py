"""Delays of the net and of its operators, from lines of observers or from a report of the harness."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from xsp_ingest.files.content import cut_off, lines, read_all
from xsp_ingest.files.values import UNITS_NS
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Delays", "Operator", "read_delays"]

OBSERVER = re.compile(rb"(?:Caffe2|PyTorch)Observer (\{.*\})")
_OPERATOR = re.compile(r"^ID_(\d+)_([A-Za-z0-9]+)_(.*)$", re.DOTALL)
_NET, _LATENCY = "NET", "latency"
_MAX_NS = 1e15  # eleven days: beyond, a number is none
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True, order=True)
class Operator:
    """An operator of the net: its number, type and what it is called."""

    index: int
    kind: str
    name: str

    @property
    def label(self) -> str:
        """The observer's own, without its mark: operators that share an output share the rest of it."""
        return f"{self.index}_{self.kind}_{self.name}"


@dataclass(slots=True)
class Delays:
    """Delays in ns, in the file's order; facts of the report; how many entries could not be used, and why."""

    net_ns: list[int] = field(default_factory=list)
    operators_ns: dict[Operator, list[int]] = field(default_factory=dict)
    model: str | None = None
    framework: str | None = None
    platform: str | None = None
    bad: int = 0
    other_metrics: int = 0
    control: int = 0


def read_delays(path: Path) -> Delays:
    """What the file holds; XspError where no delay of a net or operator is in it."""
    first = next((line for block in lines(path) for line in block.splitlines() if line.strip()), b"")
    delays = _of_lines(path) if OBSERVER.search(first) or not first.lstrip().startswith(b"{") else _of_report(path)
    if not delays.net_ns and not delays.operators_ns:
        raise XspError("the file holds no delay of a net or of an operator", path=path)
    return delays


def _of_lines(path: Path) -> Delays:
    delays = Delays()
    for line in (line for block in lines(path) for line in block.splitlines(keepends=True)):
        match = OBSERVER.search(line)
        if match is None:
            if not line.endswith(b"\n"):
                raise cut_off(path, "its last line is no whole one")
            continue
        try:
            entry = msgspec.json.decode(match[1])
        except _NO_JSON:
            delays.bad += 1
            continue
        _add(delays, entry, [entry.get("value")] if isinstance(entry, dict) else [])
    return delays


def _of_report(path: Path) -> Delays:
    try:
        document = msgspec.json.decode(read_all(path))
    except _NO_JSON as error:
        raise XspError(f"the report is no JSON ({error})", path=path) from error
    data = document.get("data") if isinstance(document, dict) else None
    if not isinstance(data, dict):
        raise XspError("the report has no data", path=path)
    delays = Delays()
    for entry in data.values():
        values = entry.get("values") if isinstance(entry, dict) else None
        _add(delays, entry, values if isinstance(values, list) else [])
        delays.control += isinstance(entry, dict) and bool(entry.get("control_values"))
    meta = document.get("meta")
    if isinstance(meta, dict):
        delays.model, delays.framework, delays.platform = (
            meta[key] if isinstance(meta.get(key), str) else None for key in ("net_name", "framework", "platform")
        )
    return delays


def _add(delays: Delays, entry: Any, values: Iterable[object]) -> None:  # noqa: ANN401 (JSON)
    """Counts what is no delay."""
    kind = entry.get("type") if isinstance(entry, dict) else None
    if not isinstance(kind, str):
        delays.bad += 1
        return
    if entry.get("metric") != _LATENCY:
        delays.other_metrics += 1
        return
    operator = None if kind == _NET else _operator(kind)
    durations = [_nanoseconds(value, entry.get("unit")) for value in values]
    if (kind != _NET and operator is None) or not durations or None in durations:
        delays.bad += 1
    sound = [ns for ns in durations if ns is not None]
    if kind == _NET:
        delays.net_ns += sound
    elif operator is not None and sound:
        delays.operators_ns.setdefault(operator, []).extend(sound)


def _operator(text: str) -> Operator | None:
    match = _OPERATOR.match(text)
    return Operator(int(match[1]), match[2], match[3]) if match and len(match[1]) < 10 else None  # noqa: PLR2004


def _nanoseconds(value: object, unit: object) -> int | None:
    """The observers print values as text; reports hold numbers."""
    scale = UNITS_NS.get(unit) if isinstance(unit, str) else None
    try:
        ns = float(value) * scale if scale and isinstance(value, str | int | float) else math.nan
    except (ValueError, OverflowError):
        return None
    return round(ns) if 0 <= ns <= _MAX_NS else None
