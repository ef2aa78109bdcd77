"""Damage to a protobuf message of any kind, field by field, by its wire format alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz import hostile

if TYPE_CHECKING:
    from random import Random

__all__ = ["damage", "field_bytes", "wire_fields"]

_Field = tuple[int, int, int | bytes]  # number, wire type, value
_WIDTHS = {1: 8, 5: 4}
_MASK = 2**64 - 1


def damage(content: bytes, random: Random) -> bytes | None:
    """The message with a few fields changed somewhere inside; None where it is no message."""
    fields = wire_fields(content)
    if not fields:
        return None
    for _ in range(random.choice([1, 2, 6])):
        fields = wire_fields(content)
        if not fields:
            break
        content = _change(fields, random)
    return content


def _change(fields: list[_Field], random: Random) -> bytes:
    index = random.randrange(len(fields))
    number, wire, value = fields[index]
    inside = wire_fields(value) if isinstance(value, bytes) and value else None
    if inside and random.random() < 0.85:
        fields[index] = (number, wire, _change(inside, random))
        return b"".join(map(field_bytes, fields))
    action = random.randrange(6)
    if action == 0:
        del fields[index]
    elif action == 1:
        fields[index:index] = [fields[index]] * random.choice([1, 20])
    elif action == 2:
        fields[index] = (random.randint(1, 20), wire, value)
    elif action == 3:
        random.shuffle(fields)
    elif isinstance(value, bytes):
        fields[index] = (number, wire, _bytes(value, random))
    else:
        fields[index] = (number, wire, random.choice(hostile.NUMBERS) & _MASK)
    return b"".join(map(field_bytes, fields))


def _bytes(value: bytes, random: Random) -> bytes:
    texts = hostile.text(random).encode(errors="surrogatepass")
    choices: list[bytes] = [b"", texts, b"\xff" * 9, value[: len(value) // 2], value * 2]
    return random.choice(choices)


def wire_fields(content: bytes) -> list[_Field] | None:
    """The message's fields; None where the bytes are none."""
    fields: list[_Field] = []
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, wire = tag >> 3, tag & 7
        value: int | bytes
        if at < 0 or not 0 < number < 1 << 29:
            return None
        if wire == 0:
            value, at = _varint(content, at)
        elif width := _WIDTHS.get(wire):
            value, at = int.from_bytes(content[at : at + width], "little"), at + width
        elif wire == 2:
            length, at = _varint(content, at)
            value, at = content[at : at + length], at + length if at >= 0 else at
        else:
            return None
        if not 0 <= at <= len(content):
            return None
        fields.append((number, wire, value))
    return fields


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """The number, and the place behind it; a negative place where it does not end."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            break
        value |= (content[at] & 127) << shift
        at += 1
        if content[at - 1] < 128:
            return value & _MASK, at
    return 0, -1


def field_bytes(field: _Field) -> bytes:
    number, wire, value = field
    head = _as_varint(number << 3 | wire)
    if isinstance(value, bytes):
        return head + _as_varint(len(value)) + value
    if width := _WIDTHS.get(wire):
        return head + int(value & (2 ** (8 * width) - 1)).to_bytes(width, "little")
    return head + _as_varint(value)


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
