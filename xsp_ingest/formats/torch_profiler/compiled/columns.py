"""The tables that the machine code fills, and the frame made of them without copying."""

from __future__ import annotations

import json
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from xsp_ingest.formats.torch_profiler.compiled import scan_state
from xsp_ingest.formats.torch_profiler.events import (
    ARGS,
    DETAIL_COLUMNS,
    EVENT_COLUMNS,
    FRAME_COLUMNS,
    JSON_ARGS,
    MODULE_PREFIX,
)
from xsp_ingest.formats.torch_profiler.scan_plain import parse_json
from xsp_ingest.machine.functions import NUMBER, CompiledFunction
from xsp_ingest.machine.native import can_compile, is_at_hand, is_ready, native
from xsp_model.columns.arrays import series
from xsp_model.limits import limits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from xsp_ingest.machine.native import Native
    from xsp_model.columns.arrays import Ints

__all__ = ["SCAN_EVENTS", "Ready", "Tables", "readiness"]

SCAN_EVENTS = CompiledFunction(
    "scan_events",
    "scan_events",
    (NUMBER,),
    (
        *(
            f"{__package__}.{module}"
            for module in (
                "machine_code",
                "grammar",
                "numbers",
                "row",
                "scan_state",
                "template_match",
                "template_segments",
                "texts",
            )
        ),
        "xsp_ingest.formats.torch_profiler.events",  # its constants
        "xsp_ingest.machine.intrinsics",
    ),
)

_TEXTS = ("ph", "cat", "name", *JSON_ARGS)
_NUMBERS = tuple(name for name in EVENT_COLUMNS if name not in _TEXTS)
_DETAILS = tuple(DETAIL_COLUMNS)
_MEMBERS = {  # an event's own keys, in the order of its slots: what kind of value, which column
    "ph": (scan_state.LABEL, "ph"),
    "cat": (scan_state.LABEL, "cat"),
    "name": (scan_state.TEXT, "name"),
    "ts": (scan_state.MICROSECONDS, "ts_ns"),
    "dur": (scan_state.MICROSECONDS, "dur_ns"),
    "pid": (scan_state.INTEGER, "pid"),
    "tid": (scan_state.INTEGER, "tid"),
    "id": (scan_state.INTEGER, "flow_id"),
}
_PREFERRED = {column: keys[0] for column, keys in ARGS.items()}
_ARGUMENTS = {  # likewise
    **{_PREFERRED[column]: (scan_state.INTEGER, column) for column in _NUMBERS if column in ARGS},
    **{keys[0]: (scan_state.TEXT, column) for column, keys in JSON_ARGS.items()},
    **{_PREFERRED[column]: (scan_state.INTEGER, column) for column in _DETAILS if column in ARGS},
    "grid": (scan_state.AXES, "grid_x"),
    "block": (scan_state.AXES, "block_x"),
}
_SPELLINGS = {
    **{key: (scan_state.INTEGER, column) for column, keys in ARGS.items() for key in keys[1:]},
    **{key: (scan_state.TEXT, column) for column, keys in JSON_ARGS.items() for key in keys[1:]},
}


def _slots() -> tuple[list[str], NDArray[np.uint64]]:
    """The column of each slot of a row, and the table that tells a key's kind and slot."""
    columns: list[str] = []
    keys = np.zeros((2, scan_state.KEYS_PER_LEVEL, scan_state.KEY_WORDS), dtype=np.uint64)
    for level, members in ((0, _MEMBERS), (1, _ARGUMENTS), (1, _SPELLINGS)):
        for key, (kind, column) in members.items():
            _enter(keys[level], key, kind << 8 | len(columns))
            columns += [column[:-1] + axis for axis in "xyz"] if kind == scan_state.AXES else [column]
    _enter(keys[0], "args", scan_state.MEMBERS << 8)
    return columns, keys


def _enter(table: NDArray[np.uint64], key: str, meaning: int) -> None:
    text = key.encode()
    labels = [int.from_bytes(text[i : i + 8], "little") for i in (0, 8, 16)] + [len(text)]
    slot = scan_state.first_slot(labels)
    while table[slot, 3]:
        slot = (slot + 1) % scan_state.KEYS_PER_LEVEL
    table[slot] = [*labels[:3], len(text) + 1, meaning]


class Tables:
    """Rows of events so far, and the texts they refer to by number, each distinct text once."""

    def __init__(self, max_rows: int | None = None, *, frames: bool = True) -> None:
        self._max_rows = max_rows  # at once; None: all of them
        self._decoded: dict[str, dict[int, str]] = {}
        slots, keys = _slots()
        self._arrays: dict[str, NDArray[Any]] = {}
        self._state = np.zeros(len(scan_state.NAMES), dtype=np.int64)
        self._set(width=len(slots), first_argument=len(_MEMBERS), first_spelling=len(slots) - len(_SPELLINGS))
        self._set(number_columns=len(_NUMBERS), code_columns=len(_TEXTS), detail_columns=len(_DETAILS))
        self._hold("keys", keys)
        self._hold("preferred", np.array([slots.index(name) for name in slots], dtype=np.int64))
        self._hold("row", np.empty(2 * len(slots), dtype=np.int64))
        prefix = f'"{MODULE_PREFIX}'.encode()
        self._hold("module_prefix", np.frombuffer(prefix, dtype=np.uint8))
        self._set(module_prefix_bytes=len(prefix), known_texts=len(scan_state.KNOWN_TEXTS))
        self._hold("nesting", np.empty(scan_state.MAX_DEPTH, dtype=np.uint8))
        notes = scan_state.MAX_VALUE_OFFSETS * scan_state.VALUE_OFFSETS_WORDS
        self._hold("value_offsets", np.empty(notes, dtype=np.int64))
        self._hold("segments", np.zeros(scan_state.MAX_SEGMENTS * scan_state.SEGMENT_SIZE, dtype=np.uint8))
        self._set(segment_count=1, score=scan_state.MAX_SCORE)
        first = limits()
        self._room_for_rows(max_rows or first.compiled_first_rows)
        self._room_for_texts(first.compiled_first_texts)
        self._room_for_bytes(first.compiled_first_text_bytes)
        self._room_for_details(max_rows or first.compiled_first_details)
        self._room_for_frames(max_rows or first.compiled_first_frames)
        self._set(wants_frames=int(frames))
        self._know(scan_state.KNOWN_TEXTS)

    def _know(self, texts: Sequence[str]) -> None:
        """Gives the texts the first numbers."""
        document = json.dumps([{"ph": text} for text in texts]).encode()
        text = np.frombuffer(document + bytes(scan_state.PAD), dtype=np.uint8)
        self.scan(text, 1, len(document))
        self._set(rows=0, expected=scan_state.VALUE_OR_END)

    def __getitem__(self, name: str) -> int:
        """What the scan state says."""
        return int(self._state[scan_state.NAMES.index(name)])

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self._state[scan_state.NAMES.index(name)] = value

    def _hold(self, name: str, array: NDArray[Any]) -> None:
        """Puts the array's address on the scan state, and keeps the array alive."""
        self._arrays[name] = array
        self._set(**{name: array.ctypes.data})

    def scan(self, text: NDArray[np.uint8], offset: int, end: int) -> tuple[int, int]:
        """Scans entries of the list from the place on: one of the machine's results, and the place reached.

        The text must be followed by scan state.PAD zero bytes in the same array.
        """
        origin = text.ctypes.data
        self._set(offset=origin + offset, end=origin + end)
        result = _machine_code()(self._state.ctypes.data)
        return result, self["offset"] - origin

    def value_end(self, text: NDArray[np.uint8], offset: int, end: int) -> tuple[int, int]:
        """Likewise, for one value outside the list."""
        expected = self["expected"]
        self._set(expected=scan_state.ONE_VALUE)
        try:
            return self.scan(text, offset, end)
        finally:
            self._set(expected=expected)

    def grow(self, growth: float, event_bytes: int) -> None:
        """Makes room for so many times the events, the next of which is at most so long."""
        if self["rows"] == self["max_rows"]:
            # Pages of an array that are never written cost nothing, so a generous guess is better than a second copy.
            self._room_for_rows(max(round(self["rows"] * growth), self["rows"] * 3 // 2))
        if self["detail_rows"] == self["max_details"]:
            self._room_for_details(max(round(self["detail_rows"] * growth), self["detail_rows"] * 3 // 2))
        if self["frame_rows"] == self["max_frames"]:
            self._room_for_frames(max(round(self["frame_rows"] * growth), self["frame_rows"] * 3 // 2))
        if self["texts"] + self["width"] > self["max_texts"]:
            self._room_for_texts(2 * self["max_texts"])
        if self["text_bytes"] + event_bytes + scan_state.PAD > self["store_bytes"]:
            self._room_for_bytes(2 * self["store_bytes"] + event_bytes)

    def _room_for_rows(self, height: int) -> None:
        for name, columns, kind in (("numbers", len(_NUMBERS), np.int64), ("text_ids", len(_TEXTS), np.int32)):
            new = np.empty((columns, height), dtype=kind)
            if used := self["rows"]:
                new[:, :used] = self._arrays[name][:, :used]
            self._hold(name, new)
        self._set(max_rows=height)

    def _room_for_details(self, height: int) -> None:
        new = np.empty((len(_DETAILS), height), dtype=np.int64)
        if used := self["detail_rows"]:
            new[:, :used] = self._arrays["details"][:, :used]
        self._hold("details", new)
        self._set(max_details=height)

    def _room_for_frames(self, height: int) -> None:
        new = np.empty((1 + scan_state.FRAME_NUMBERS, height), dtype=np.int64)
        if used := self["frame_rows"]:
            new[:, :used] = self._arrays["frames"][:, :used]
        self._hold("frames", new)
        self._set(max_frames=height)

    def _room_for_texts(self, count: int) -> None:
        for name, shape, kind in (("seen", (count, 2), np.int64), ("hashes", (count,), np.uint64)):
            new = np.empty(shape, dtype=kind)
            if used := self["texts"]:
                new[:used] = self._arrays[name][:used]
            self._hold(name, new)
        self._hold("table", np.full(4 * count, -1, dtype=np.int64))
        self._set(max_texts=count, table_mask=4 * count - 1, indexed=0)

    def _room_for_bytes(self, count: int) -> None:
        new = np.zeros(count, dtype=np.uint8)
        if used := self["text_bytes"]:
            new[:used] = self._arrays["store"][:used]
        self._hold("store", new)
        self._set(store_bytes=count)

    @property
    def is_piece(self) -> bool:
        """Whether there are as many rows, or frames of functions, as wanted at once."""
        if self._max_rows is None:
            return False
        return self["rows"] >= min(self._max_rows, self["max_rows"]) or self["frame_rows"] >= self["max_frames"]

    def forget_rows(self) -> None:
        """Makes room for other rows in the place of these; their texts stay known."""
        self._set(rows=0, detail_rows=0, frame_rows=0)

    def frames(self, path: Path) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Frames of EVENT_COLUMNS, DETAIL_COLUMNS, FRAME_COLUMNS; ValueError where a text is beyond UTF-8."""
        rows, numbers, text_ids = self["rows"], self._arrays["numbers"], self._arrays["text_ids"]
        columns = {name: _whole_numbers(name, numbers[i, :rows]) for i, name in enumerate(_NUMBERS)}
        columns |= {name: self._texts(name, text_ids[i, :rows], path) for i, name in enumerate(_TEXTS)}
        rows, table = self["detail_rows"], self._arrays["details"]
        details = pl.DataFrame([_whole_numbers(name, table[i, :rows]) for i, name in enumerate(_DETAILS)])
        return pl.DataFrame([columns[name] for name in EVENT_COLUMNS]), details, self._function_frames(path)

    def _function_frames(self, path: Path) -> pl.DataFrame:
        rows, table = self["frame_rows"], self._arrays["frames"]
        texts = self._texts("name", table[0, :rows], path)
        kept = [_whole_numbers(name, table[i, :rows]) for i, name in enumerate(FRAME_COLUMNS) if i]
        return pl.DataFrame([texts, *kept])

    def _texts(self, name: str, text_ids: NDArray[np.int32], path: Path) -> pl.Series:
        used = np.zeros(self["texts"] + 1, dtype=np.bool_)
        used[text_ids] = True  # -1, absent, is the last
        used[-1] = False
        numbers = np.flatnonzero(used)
        if not len(numbers) and name in JSON_ARGS:  # as in most files, which say nothing of collectives
            return pl.Series(name, [None], dtype=EVENT_COLUMNS[name]).new_from_index(0, len(text_ids))
        labels = self._labels(name, numbers.tolist(), path)
        distinct = {label: i for i, label in enumerate(dict.fromkeys(["", *labels] if name == "name" else labels))}
        new_text_ids = np.full(len(used), -1, dtype=np.int32)
        new_text_ids[numbers] = [distinct[label] for label in labels]
        if name == "name":
            new_text_ids[-1] = distinct[""]
        new = new_text_ids[text_ids]
        words_once = pl.Series(name, list(distinct), dtype=EVENT_COLUMNS[name])
        return words_once.gather(series(name, new, new >= 0))

    def _labels(self, name: str, numbers: Sequence[int], path: Path) -> list[str]:
        """The texts of these numbers as the column has them: decoding is slow, so each is decoded once."""
        seen = self._decoded.setdefault(name, {})
        store, spans = self._arrays["store"], self._arrays["seen"]
        for number in numbers:
            if number not in seen:
                at, length = spans[number].tolist()
                seen[number] = _decode_text(store[at : at + length].tobytes(), name, path)
        return [seen[number] for number in numbers]


def _decode_text(raw: bytes, column: str, path: Path) -> str:
    """The text as the plain scanner gives it."""
    if column in JSON_ARGS:
        return json.dumps(parse_json(raw, path))
    if raw.startswith(b'"') and b"\\" not in raw:
        return raw[1:-1].decode(errors="replace")
    value = parse_json(raw, path)
    label = str(value) if isinstance(value, str) else json.dumps(value)
    label.encode()  # a lone surrogate: UnicodeEncodeError, a ValueError
    return label


def _whole_numbers(name: str, values: Ints) -> pl.Series:
    return series(name, values, values != scan_state.NULL)


@cache
def _machine_code() -> Native:
    return native(SCAN_EVENTS)


class Ready(IntEnum):
    """What it takes until the compiled scanner can start."""

    NEVER = 0  # nothing shipped is of these sources, and numba is not installed
    COMPILE = 1  # numba's work, of more than ten seconds
    FINISH = 2  # LLVM's alone, of a third of a second
    LOAD = 3

    @property
    def min_bytes(self) -> int:
        """For less content nobody waits, once per installation, until the scanner is made."""
        if self == Ready.LOAD:
            return 0
        return limits().compiled_finish_min_bytes if self == Ready.FINISH else limits().compiled_compile_min_bytes


def readiness() -> Ready:
    """How ready the compiled scanner is."""
    if is_ready(SCAN_EVENTS):
        return Ready.LOAD
    if is_at_hand(SCAN_EVENTS):
        return Ready.FINISH
    return Ready.COMPILE if can_compile() else Ready.NEVER
