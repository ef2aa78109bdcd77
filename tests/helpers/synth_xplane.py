"""Small XPlane profiles built from literals, so that a test shows its whole input."""

# ruff: noqa: ANN401 (protobuf messages whose classes are made at run time)

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["PlaneOfEvents", "Profile", "space_class"]

_F = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "int64": _F.TYPE_INT64,
    "uint64": _F.TYPE_UINT64,
    "string": _F.TYPE_STRING,
    "bytes": _F.TYPE_BYTES,
    "double": _F.TYPE_DOUBLE,
}
# the whole format; `*` repeated, `?` one of a value's alternatives
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Space": {
        "planes": (1, "Plane*"),
        "errors": (2, "string*"),
        "warnings": (3, "string*"),
        "hostnames": (4, "string*"),
    },
    "Plane": {
        "id": (1, "int64"),
        "name": (2, "string"),
        "lines": (3, "Line*"),
        "event_metadata": (4, "EventEntry*"),
        "stat_metadata": (5, "StatEntry*"),
        "stats": (6, "Stat*"),
    },
    "EventEntry": {"key": (1, "int64"), "value": (2, "EventMetadata")},
    "StatEntry": {"key": (1, "int64"), "value": (2, "StatMetadata")},
    "Line": {
        "id": (1, "int64"),
        "name": (2, "string"),
        "timestamp_ns": (3, "int64"),
        "events": (4, "Event*"),
        "duration_ps": (9, "int64"),
        "display_id": (10, "int64"),
        "display_name": (11, "string"),
    },
    "Event": {
        "metadata_id": (1, "int64"),
        "offset_ps": (2, "int64"),
        "duration_ps": (3, "int64"),
        "stats": (4, "Stat*"),
        "num_occurrences": (5, "int64"),
    },
    "Stat": {
        "metadata_id": (1, "int64"),
        "double_value": (2, "double?"),
        "uint64_value": (3, "uint64?"),
        "int64_value": (4, "int64?"),
        "str_value": (5, "string?"),
        "bytes_value": (6, "bytes?"),
        "ref_value": (7, "uint64?"),
    },
    "EventMetadata": {
        "id": (1, "int64"),
        "name": (2, "string"),
        "metadata": (3, "bytes"),
        "display_name": (4, "string"),
        "stats": (5, "Stat*"),
        "child_id": (6, "int64*"),
    },
    "StatMetadata": {"id": (1, "int64"), "name": (2, "string"), "description": (3, "string")},
}
_PACKAGE = "xsp.synthetic"
_PS_PER_NS = 1000


@cache
def space_class() -> Any:
    """The message that a profile is."""
    file = descriptor_pb2.FileDescriptorProto(name="xsp/synthetic.proto", package=_PACKAGE, syntax="proto3")
    for name, described in _MESSAGES.items():
        added = file.message_type.add(name=name)
        for field, (number, kind) in described.items():
            plain = kind.rstrip("*?")
            label = _F.LABEL_REPEATED if kind.endswith("*") else _F.LABEL_OPTIONAL
            made = added.field.add(name=field, number=number, label=label)
            made.type = _KINDS.get(plain, _F.TYPE_MESSAGE)
            if plain not in _KINDS:
                made.type_name = f".{_PACKAGE}.{plain}"
            if kind.endswith("?"):
                if not added.oneof_decl:
                    added.oneof_decl.add(name="value")
                made.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Space"))


class PlaneOfEvents:
    """One plane; names and statistics get their metadata as they come."""

    def __init__(self, plane: Any) -> None:
        self.plane = plane
        self._names: dict[tuple[str, str], int] = {}
        self._stats: dict[str, int] = {}

    def line(self, line_id: int, name: str, timestamp_ns: int = 0) -> Any:
        """A line, which events are then put on."""
        return self.plane.lines.add(id=line_id, name=name, timestamp_ns=timestamp_ns)

    def event(
        self, line: Any, name: str, start_ns: int, duration_ns: int, /, *, display: object = "", **stats: object
    ) -> Any:
        """An event that starts so many ns after its line; a text that begins with `&` is put down by reference."""
        event = line.events.add(
            metadata_id=self.name_id(name, str(display)),
            offset_ps=start_ns * _PS_PER_NS,
            duration_ps=duration_ns * _PS_PER_NS,
        )
        for key, value in stats.items():
            self.stat(event.stats, key, value)
        return event

    def name_id(self, name: str, display: str = "") -> int:
        """The number of an event's name."""
        key = (name, display)
        if key not in self._names:
            self._names[key] = len(self._names) + 1
            entry = self.plane.event_metadata.add(key=self._names[key])
            entry.value.id, entry.value.name, entry.value.display_name = self._names[key], name, display
        return self._names[key]

    def stat(self, stats: Any, key: str, value: object) -> None:
        """One more statistic: an int, a float, bytes or a text."""
        added = stats.add(metadata_id=self.stat_id(key))
        if isinstance(value, bytes):
            added.bytes_value = value
        elif isinstance(value, float):
            added.double_value = value
        elif isinstance(value, int):
            added.int64_value = value
        elif isinstance(value, str) and value.startswith("&"):
            added.ref_value = self.stat_id(value[1:])
        else:
            added.str_value = str(value)

    def stat_id(self, name: str) -> int:
        """The number of a statistic's name, or of a text referred to."""
        if name not in self._stats:
            self._stats[name] = len(self._stats) + 1
            entry = self.plane.stat_metadata.add(key=self._stats[name])
            entry.value.id, entry.value.name = self._stats[name], name
        return self._stats[name]


class Profile:
    """A profile; planes are added in the order of the calls."""

    def __init__(self) -> None:
        self.space = space_class()()

    def plane(self, name: str, **stats: object) -> PlaneOfEvents:
        """A plane with statistics of its own."""
        plane = PlaneOfEvents(self.space.planes.add(name=name))
        for key, value in stats.items():
            plane.stat(plane.plane.stats, key, value)
        return plane

    def to_bytes(self) -> bytes:
        """The file's content, the same bytes each time."""
        return self.space.SerializeToString(deterministic=True)  # type: ignore[no-any-return]

    def write(self, path: Path) -> Path:
        """Writes the file; gives the path."""
        path.write_bytes(self.to_bytes())
        return path
