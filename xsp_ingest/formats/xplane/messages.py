"""The protobuf messages of a profile, described at run time: no generated code, no TensorFlow.

Only what XSP uses is described; protobuf passes over the rest. Lines are scanned by `scan`, so a plane is parsed
without them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf import descriptor_pb2, descriptor_pool

__all__ = ["message"]

_PACKAGE = "xsp.xplane"
_SCALARS = {
    "int64": "TYPE_INT64",
    "uint64": "TYPE_UINT64",
    "string": "TYPE_STRING",
    "bytes": "TYPE_BYTES",
    "double": "TYPE_DOUBLE",
    "int32": "TYPE_INT32",
}
# message: field: number, type; `*` marks a repeated field, `?` one of the alternatives of a value
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Stat": {
        "metadata_id": (1, "int64"),
        "double_value": (2, "double?"),
        "uint64_value": (3, "uint64?"),
        "int64_value": (4, "int64?"),
        "str_value": (5, "bytes?"),  # a string, which need not be UTF-8
        "bytes_value": (6, "bytes?"),
        "ref_value": (7, "uint64?"),
    },
    "EventMetadata": {
        "id": (1, "int64"),
        "name": (2, "bytes"),
        "display_name": (4, "bytes"),
        "stats": (5, "Stat*"),
    },
    "StatMetadata": {"id": (1, "int64"), "name": (2, "bytes")},
    "EventEntry": {"key": (1, "int64"), "value": (2, "EventMetadata")},
    "StatEntry": {"key": (1, "int64"), "value": (2, "StatMetadata")},
    "Plane": {
        "id": (1, "int64"),
        "name": (2, "bytes"),
        "event_metadata": (4, "EventEntry*"),
        "stat_metadata": (5, "StatEntry*"),
        "stats": (6, "Stat*"),
    },
    "HloProto": {"hlo_module": (1, "HloModule")},
    "HloModule": {"name": (1, "bytes"), "computations": (3, "HloComputation*"), "schedule": (7, "HloSchedule")},
    "HloSchedule": {"sequences": (1, "HloScheduleEntry*")},
    "HloScheduleEntry": {"key": (1, "int64"), "value": (2, "HloSequence")},  # by a computation's id
    "HloSequence": {"instruction_ids": (1, "int64*")},
    "HloComputation": {"instructions": (2, "HloInstruction*"), "id": (5, "int64")},
    "HloInstruction": {
        "name": (1, "bytes"),
        "opcode": (2, "bytes"),
        "shape": (3, "bytes"),
        "metadata": (7, "HloMetadata"),
        "id": (35, "int64"),
        "called_computation_ids": (38, "int64*"),
    },
    "HloMetadata": {"op_type": (1, "bytes"), "op_name": (2, "bytes")},
}


@cache
def message(name: str) -> Any:  # noqa: ANN401 (a class that protobuf makes)
    """The class of the message."""
    from google.protobuf import message_factory  # noqa: PLC0415 (other formats need not wait for protobuf)

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: PLC0415

    file = descriptor_pb2.FileDescriptorProto(name="xsp/xplane.proto", package=_PACKAGE, syntax="proto3")
    for name, described in _MESSAGES.items():
        added = file.message_type.add(name=name)
        for field, (number, kind) in described.items():
            _describe(added, field, number, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _describe(added: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    plain = kind.rstrip("*?")
    field = added.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
    if plain in _SCALARS:
        field.type = getattr(field, _SCALARS[plain])
    else:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{plain}"
    if kind.endswith("?"):
        if not added.oneof_decl:
            added.oneof_decl.add(name="value")
        field.oneof_index = 0
