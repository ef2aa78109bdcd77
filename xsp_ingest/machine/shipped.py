"""Our compiled functions as they come with the package: LLVM bitcode, and a library linked of it (`library`).

Where the library is not for the system, LLVM makes machine code of the bitcode in a third of a second; numba takes more
than ten to compile the sources.
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

__all__ = ["FOLDER", "MANIFEST", "file_of", "is_shipped", "library_digest", "read", "stamp_of", "symbol_of"]

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


def symbol_of(function: CompiledFunction) -> str:
    """What the function is called within what is shipped."""
    return str(_entry(FOLDER, function.name).get("symbol"))


def library_digest(folder: Path) -> str | None:
    """SHA-256 of the library that the manifest names."""
    library = _manifest(folder).get("library")
    return library["sha256"] if isinstance(library, dict) else None


def stamp_of(function: CompiledFunction) -> str:
    """The function's stamp; as the manifest has it where no byte of its sources has changed since."""
    entry = _entry(FOLDER, function.name)
    if entry.get("texts") == function.texts_digest():
        return str(entry["stamp"])
    return function.stamp()


@cache
def _entry(folder: Path, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = _manifest(folder).get("functions", {}).get(name, {})
    return entry


def _manifest(folder: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
        return manifest
    return {}
