"""The entries of a large JSON list, a bounded stretch of the file at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from xsp_ingest.files.json_window import TOKEN, JsonWindow, check_depth, no_json, open_json, stretch
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Entries", "entries"]

T = TypeVar("T", bound=msgspec.Struct)

_LIST = re.compile(rb"\s*+\[")
_OBJECT = re.compile(rb"\s*+\{")
_VALUE_LIST = re.compile(rb"\s*+:\s*+\[")


@dataclass(slots=True)
class Entries:
    """What was odd about a list, counted while it is read."""

    foreign: int = 0  # entries that are no objects
    not_utf8: int = 0  # stretches of the file with bytes that are not UTF-8


def entries(path: Path, kind: type[T], seen: Entries, *, key: bytes | None = None) -> Iterator[list[T]]:
    """The objects of the list in order, some at a time, as values of a msgspec Struct whose fields take anything.

    The list is the file's content or, with `key`, what the object in the file holds under it. XspError where there is
    no such list, it is cut off or nested too deeply, or is no JSON.
    """
    decoder = msgspec.json.Decoder(list[kind | list[Any] | str | int | float | bool | None])  # type: ignore[valid-type]
    with open_json(path) as window:
        if key is None:
            window.expect(_LIST, "the file holds no JSON list")
        else:
            window.expect(_OBJECT, "the file holds no JSON object")
            _find(window, key)
        last = False
        while not last:
            text, last = stretch(window)
            values = _decode_entries(decoder, text, window, seen)
            objects = [entry for entry in values if isinstance(entry, kind)]
            seen.foreign += len(values) - len(objects)
            if objects:
                yield objects


def _find(window: JsonWindow, key: bytes) -> None:
    """Goes into the list under the key of the outermost object."""
    depth, offset, quoted_key = 0, window.offset, b'"' + key + b'"'
    while True:
        match = TOKEN.search(window.text, offset)
        token = match[0] if match else b'"'
        if match is None or token == b'"':
            behind = len(window.text) if match is None else match.start()
            window.offset = behind
            window.more()
            offset = 0
        elif depth == 0 and token == quoted_key:
            window.offset = match.end()
            window.expect(_VALUE_LIST, f"the JSON holds no list `{key.decode()}`")
            return
        else:
            offset = match.end()
            depth += (token in b"[{") - (token in b"]}")
            if depth < 0:
                raise XspError(f"the JSON holds no list `{key.decode()}`", path=window.path)
            check_depth(depth, window)


def _decode_entries(
    decoder: msgspec.json.Decoder[list[Any]], text: bytes, window: JsonWindow, seen: Entries
) -> list[Any]:
    try:
        return decoder.decode(text)
    except UnicodeDecodeError:
        seen.not_utf8 += 1
    except msgspec.DecodeError as error:
        raise no_json(window) from error
    try:
        return decoder.decode(text.decode(errors="replace").encode())
    except msgspec.DecodeError as error:
        raise no_json(window) from error
