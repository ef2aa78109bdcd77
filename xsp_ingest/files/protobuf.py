"""Protobuf messages described at run time, as far as they are used: no generated code."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf import descriptor_pb2, descriptor_pool

__all__ = ["Messages"]

_SCALARS = {
    "bool": "TYPE_BOOL",
    "int64": "TYPE_INT64",
    "uint64": "TYPE_UINT64",
    "string": "TYPE_STRING",
    "bytes": "TYPE_BYTES",
    "double": "TYPE_DOUBLE",
    "int32": "TYPE_INT32",
    "fixed64": "TYPE_FIXED64",
}


@dataclass(frozen=True)
class Messages:
    """Messages of a format: `described` has of each the number and type of its fields by their names.

    `*` marks a repeated field, `?` one of the alternatives of a value; protobuf passes over what is not described.
    """

    package: str
    described: Mapping[str, Mapping[str, tuple[int, str]]]

    def of(self, name: str) -> Any:  # noqa: ANN401 (a class that protobuf makes)
        """The class of the message."""
        from google.protobuf import message_factory  # noqa: PLC0415 (other formats need not wait for protobuf)

        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"{self.package}.{name}"))

    @cached_property
    def _pool(self) -> descriptor_pool.DescriptorPool:
        from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: PLC0415

        file = descriptor_pb2.FileDescriptorProto(
            name=f"{self.package.replace('.', '/')}.proto", package=self.package, syntax="proto3"
        )
        for name, fields in self.described.items():
            added = file.message_type.add(name=name)
            for field, (number, kind) in fields.items():
                self._describe(added, field, number, kind)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        return pool

    def _describe(self, added: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
        plain = kind.rstrip("*?")
        field = added.field.add(name=name, number=number)
        field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
        if plain in _SCALARS:
            field.type = getattr(field, _SCALARS[plain])
        else:
            field.type = field.TYPE_MESSAGE
            field.type_name = f".{self.package}.{plain}"
        if kind.endswith("?"):
            if not added.oneof_decl:
                added.oneof_decl.add(name="value")
            field.oneof_index = 0
