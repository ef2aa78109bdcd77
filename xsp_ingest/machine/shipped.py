"""Our compiled functions as LLVM bitcode that comes with the package, of which LLVM makes machine code by itself.

That takes a third of a second, and is code for the processor at hand; numba takes more than ten to compile the sources.
`python -m xsp_ingest.machine.build` makes the files anew from the sources, and MANIFEST.json, which says of which
sources each is.
"""

from __future__ import annotations

import json
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xsp_ingest.machine.functions import CompiledFunction

__all__ = ["FOLDER", "MANIFEST", "file_of", "is_shipped", "read", "stamp_of"]

FOLDER = Path(__file__).parent / "bitcode"
MANIFEST = "MANIFEST.json"


def file_of(function: CompiledFunction) -> Path:
    """Where the function's bitcode is: compressed, its symbol in the first line."""
    return FOLDER / f"{function.name}.bc"


def is_shipped(function: CompiledFunction) -> bool:
    """Whether code of the function's present sources came along."""
    return _entry(FOLDER, function.name).get("stamp") == stamp_of(function) and file_of(function).is_file()


def read(function: CompiledFunction) -> tuple[str, bytes] | None:
    """The symbol and the bitcode, where they came along undamaged and are of the present sources."""
    if not is_shipped(function):
        return None
    with suppress(OSError, zlib.error, ValueError):
        content = file_of(function).read_bytes()
        if zlib.crc32(content) == _entry(FOLDER, function.name).get("crc32"):
            symbol, _, code = zlib.decompress(content).partition(b"\n")
            return symbol.decode(), code
    return None


def stamp_of(function: CompiledFunction) -> str:
    """The function's stamp; as the manifest has it where no byte of its sources has changed since."""
    entry = _entry(FOLDER, function.name)
    if entry.get("texts") == function.texts_digest():
        return str(entry["stamp"])
    return function.stamp()


@cache
def _entry(folder: Path, name: str) -> dict[str, Any]:
    with suppress(OSError, ValueError, KeyError):
        entry: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())["functions"][name]
        return entry
    return {}
