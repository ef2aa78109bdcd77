"""Our compiled functions as they come with the package: LLVM bitcode, and a library linked of it.

The library is for Linux on x86-64, whose loader takes it without LLVM. It is made for any such processor: on what these
functions do, code for a newer one is no faster (ADR 0019). It calls nothing, not even the C library. Elsewhere LLVM
makes machine code of the bitcode in a third of a second (`native`); numba takes more than ten to compile the sources.
`python -m xsp_ingest.machine.build` makes the files anew from the sources, and MANIFEST.json, which says of which
sources each is.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import platform
import sys
import zlib
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xsp_ingest.machine.functions import CompiledFunction

__all__ = [
    "FOLDER",
    "LIBRARY",
    "MANIFEST",
    "file_of",
    "is_for_this_system",
    "is_shipped",
    "library_address",
    "library_digest",
    "read",
    "stamp_of",
    "symbol_of",
]

FOLDER = Path(__file__).parent / "bitcode"
MANIFEST = "MANIFEST.json"
LIBRARY = "linux_x86_64.so"


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


def library_address(function: CompiledFunction) -> int | None:
    """Where the function is, loaded; None where there is no library for this system or it is not of these sources."""
    if not is_for_this_system() or not is_shipped(function):
        return None
    library = _loaded_library(FOLDER)
    try:
        return ctypes.cast(library[symbol_of(function)], ctypes.c_void_p).value if library else None
    except AttributeError:
        return None


def is_for_this_system() -> bool:
    """Whether the library that comes along is for this system and processor."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 1 << 32


@cache
def _loaded_library(folder: Path) -> ctypes.CDLL | None:
    """None where it is not the file that the manifest names, or may not be loaded from there."""
    with suppress(OSError):
        content = (folder / LIBRARY).read_bytes()
        if hashlib.sha256(content).hexdigest() == library_digest(folder):
            return ctypes.CDLL(str(folder / LIBRARY))
    return None
