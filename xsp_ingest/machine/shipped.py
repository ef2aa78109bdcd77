"""Our compiled functions as LLVM bitcode that comes with the package, of which LLVM makes machine code by itself.

That takes a third of a second, and is code for the processor at hand; numba takes more than ten to compile the sources.
`python -m benchmarks.ship` makes the files anew from the sources.
"""

from __future__ import annotations

import hashlib
import zlib
from contextlib import suppress
from pathlib import Path

__all__ = ["FOLDER", "file_name", "is_shipped", "read", "write"]

FOLDER = Path(__file__).parent / "bitcode"


def file_name(name: str, stamp: str) -> str:
    """The file of a function's code; `stamp` changes with all that it is made of."""
    return f"{name}.{hashlib.sha256(stamp.encode()).hexdigest()[:16]}.bc"


def is_shipped(name: str, stamp: str) -> bool:
    """Whether code of this stamp came along."""
    return (FOLDER / file_name(name, stamp)).is_file()


def read(name: str, stamp: str) -> tuple[str, bytes] | None:
    """The symbol and the bitcode, where they came along whole."""
    with suppress(OSError, zlib.error, ValueError):
        symbol, _, code = zlib.decompress((FOLDER / file_name(name, stamp)).read_bytes()).partition(b"\n")
        return symbol.decode(), code
    return None


def write(name: str, stamp: str, symbol: str, code: bytes) -> None:
    """Puts them where `read` finds them."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / file_name(name, stamp)).write_bytes(zlib.compress(symbol.encode() + b"\n" + code, 9))
