"""The profile that TensorFlow and JAX leave in a log folder: found, rid of private data, and asked for its scopes.

Profilers name the file after the host and write into it the host's name, their own messages (which name hosts and
folders) and where each operation stands in the user's sources. All that is left out here. The file is rewritten as
protobuf's wire format, field by field, since JAX comes without the protobuf library; what is not left out is copied
byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from xsp_runners.run_folder import RunnerError

__all__ = ["TRACE", "Cleaned", "profile_in", "without_private_data"]

TRACE = "trace.xplane.pb"
"""The file that holds the profile, beside run.json."""
_FOLDERS = re.compile(rb"(?:/[\w.@+-]+)*/(?=[\w.@+-]+\.py\b)")
_LEN = 2  # wire type of texts, bytes and messages
_FIXED = {1: 8, 5: 4}  # wire types of fixed length
_PLANE, _MESSAGES = 1, (2, 3, 4)  # of a space: planes; errors, warnings, host names
_NAME, _EVENT_NAMES, _STAT_NAMES, _STATS = 2, 4, 5, 6  # of a plane
_LINES, _EVENTS = 3, 4  # of a plane, of a line
_BYTES = 6  # a statistic's value that is bytes
_GPU = b"/device:GPU"
_PROGRAMS, _TASK = b"/host:metadata", b"Task Environment"


@dataclass(frozen=True)
class Cleaned:
    """A profile without private data, the names of operations in its programs, and how many events are of GPUs."""

    content: bytes
    operations: list[str] = field(default_factory=list)
    gpu_events: int = 0


def profile_in(folder: Path) -> bytes:
    """The profile of the one session that the log folder holds; RunnerError where the profiler left none."""
    profiles = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
    if len(profiles) != 1:
        raise RunnerError(f"the profiler left {len(profiles) or 'no'} profiles where one was expected")
    return profiles[0].read_bytes()


def without_private_data(content: bytes) -> Cleaned:
    """The profile without names of hosts and folders; RunnerError where it is no profile, whole."""
    operations: dict[str, None] = {}
    out, gpu_events = bytearray(), 0
    for number, raw, value in _fields(content):
        if number in _MESSAGES:
            continue
        gpu_events += _gpu_events(value) if number == _PLANE and value is not None else 0
        out += _field_bytes(number, _plane(value, operations)) if number == _PLANE and value is not None else raw
    return Cleaned(bytes(out), list(operations), gpu_events)


def _gpu_events(plane: bytes) -> int:
    """How many events the plane has, where it is a GPU's."""
    fields = [(number, value) for number, _, value in _fields(plane) if value is not None]
    if not any(number == _NAME and value.startswith(_GPU) for number, value in fields):
        return 0
    return sum(n == _EVENTS for number, line in fields if number == _LINES for n, _, _ in _fields(line))


def _plane(data: bytes, operations: dict[str, None]) -> bytes:
    name = next((value for number, _, value in _fields(data) if number == _NAME and value is not None), b"")
    out = bytearray()
    for number, raw, value in _fields(data):
        if value is None:
            out += raw
        elif number == _STATS and name == _TASK and any(n == _BYTES for n, _, _ in _fields(value)):
            continue  # the profiler's options, among them the folder it wrote to
        elif number == _EVENT_NAMES:
            out += _field_bytes(number, _event_names(value, operations if name == _PROGRAMS else None))
        elif number == _STAT_NAMES:
            out += _field_bytes(number, _change_fields(value, {2: lambda v: _change_fields(v, {2: _without_folders})}))
        else:
            out += raw
    return bytes(out)


def _event_names(entry: bytes, operations: dict[str, None] | None) -> bytes:
    """An entry of a plane's names; with `operations`, those of the program that it holds are added to them."""

    def program(value: bytes) -> bytes:
        names = operations if operations is not None else {}
        return _change_fields(value, {1: lambda module: _module(module, names)})

    stat = (lambda v: _change_fields(v, {_BYTES: program})) if operations is not None else _same
    texts: Mapping[int, Callable[[bytes], bytes]] = {2: _without_folders, 4: _without_folders, 5: stat}
    return _change_fields(entry, {2: lambda v: _change_fields(v, texts)})


def _module(data: bytes, operations: dict[str, None]) -> bytes:
    """A compiled program without its sources' places; `operations` gets the framework's names of instructions."""
    out = bytearray()
    for number, raw, value in _fields(data):
        if number == 3 and value is not None:  # noqa: PLR2004 (a computation)
            out += _field_bytes(number, _change_fields(value, {2: lambda v: _instruction(v, operations)}))
        elif value is None or not _FOLDERS.search(value):  # else: the table of source files
            out += raw
    return bytes(out)


def _instruction(data: bytes, operations: dict[str, None]) -> bytes:
    def metadata(value: bytes) -> bytes:
        kept = bytearray()
        for n, raw, text in _fields(value):
            if n == 2 and text is not None:  # noqa: PLR2004 (the framework's name for it)
                operations[text.decode(errors="replace")] = None
            kept += b"" if n == 3 else raw  # noqa: PLR2004 (the source file)
        return bytes(kept)

    return _change_fields(data, {7: metadata})


def _without_folders(text: bytes) -> bytes:
    return _FOLDERS.sub(b"", text)


def _same(value: bytes) -> bytes:
    return value


def _change_fields(data: bytes, changes: Mapping[int, Callable[[bytes], bytes]]) -> bytes:
    """The message with the fields of these numbers changed."""
    out = bytearray()
    for number, raw, value in _fields(data):
        out += _field_bytes(number, changes[number](value)) if number in changes and value is not None else raw
    return bytes(out)


def _fields(data: bytes) -> Iterator[tuple[int, bytes, bytes | None]]:
    """The fields of a message: number, the field as it stands, and what it holds (None: a number)."""
    at = 0
    while at < len(data):
        start = at
        key, at = _varint(data, at)
        kind = key & 7
        content = None
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == _LEN:
            size, at = _varint(data, at)
            content = data[at : at + size]
            at += size
        else:
            at += _FIXED.get(kind, len(data))
        if at > len(data):
            raise RunnerError("the profile that was just written is damaged")
        yield key >> 3, data[start:at], content


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it."""
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 (no further byte)
            return value, at
    raise RunnerError("the profile that was just written is damaged")


def _field_bytes(number: int, value: bytes) -> bytes:
    """The field with its key and length."""
    return _number(number << 3 | _LEN) + _number(len(value)) + value


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
