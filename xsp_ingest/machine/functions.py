"""Every function that comes compiled, listed once: what it takes, and the modules that its machine code is made of.

Named by text, so that neither numba nor a format's reader is imported before one of them is compiled.
"""

from __future__ import annotations

import ast
import hashlib
import zlib
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["CLIMB", "FUNCTIONS", "NESTING", "READ_LEAVES", "SCAN_EVENTS", "SCAN_LINES", "CompiledFunction"]

_PACKAGE = Path(__file__).parents[1]
_NUMBER = ""


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """A function of columns and int64 numbers that returns an int64 or nothing, raises nothing and allocates nothing.

    `kinds` says of each parameter the numpy type of its column's numbers, of a number "".
    `sources` are the modules that hold the function and all that it calls or takes constants from, the first its own.
    `helpers` are functions of that module which numba must be told of, as they are plain Python.
    """

    name: str
    attribute: str
    kinds: tuple[str, ...]
    sources: tuple[str, ...]
    helpers: tuple[str, ...] = ()

    def texts_digest(self) -> str:
        """Changes with any byte of the sources: quick to say that nothing has changed."""
        return _texts_digest(self.sources)

    def stamp(self) -> str:
        """Changes with what the sources do, not with their comments, docstrings or layout; the same on every Python."""
        return _stamp(self.sources, self.kinds)

    def load(self) -> Callable[..., Any]:
        """The function in Python, for numba to compile."""
        module = import_module("xsp_ingest." + self.sources[0].replace("/", "."))
        if self.helpers:
            from numba.extending import register_jitable  # noqa: PLC0415 (only who compiles needs it)

            for helper in self.helpers:
                register_jitable(_nrt=False)(getattr(module, helper))
        function = getattr(module, self.attribute)
        for wrapped in ("py_func", "function"):  # of numba's dispatchers, of a Sweep
            function = getattr(function, wrapped, function)
        return function  # type: ignore[no-any-return]


_SCANNER = "formats/torch_profiler/compiled"
SCAN_EVENTS = CompiledFunction(
    "scan_events",
    "scan_events",
    (_NUMBER,),
    (
        f"{_SCANNER}/machine_code",
        f"{_SCANNER}/grammar",
        f"{_SCANNER}/numbers",
        f"{_SCANNER}/row",
        f"{_SCANNER}/scan_state",
        f"{_SCANNER}/template_match",
        f"{_SCANNER}/template_segments",
        f"{_SCANNER}/texts",
        "formats/torch_profiler/events",  # its constants
        "machine/intrinsics",
    ),
)
READ_LEAVES = CompiledFunction(
    "read_leaves",
    "read_leaves",
    (_NUMBER,) * 5,
    (
        "machine/sqlite/cells",
        "machine/sqlite/records",
        "machine/sqlite/scan_state",
        "machine/sqlite/shapes",
        "machine/byte_order",
        "machine/intrinsics",
    ),
)
NESTING = CompiledFunction(
    "nesting",
    "_sweep",
    ("int32", "int64", "int64", "int8", "int64", "int32", "int64", *("int32",) * 2, *("uint8",) * 2, *("int32",) * 2),
    ("link/nest",),
)
CLIMB = CompiledFunction(
    "climb", "_climb", ("int32", "uint8", _NUMBER, _NUMBER, _NUMBER, "int32", "int32"), ("link/climb",)
)
SCAN_LINES = CompiledFunction(
    "scan_lines",
    "sweep",
    ("uint8", *("int64",) * 4, _NUMBER, *("int64",) * 4),
    ("formats/xplane/sweep",),
    ("_varint", "_past", "_eight_bytes", "_stat", "_is_in", "_event"),
)

FUNCTIONS = (SCAN_EVENTS, READ_LEAVES, NESTING, CLIMB, SCAN_LINES)


def _contents(sources: Sequence[str]) -> Iterator[bytes]:
    return ((_PACKAGE / f"{source}.py").read_bytes() for source in sources)


@cache
def _texts_digest(sources: Sequence[str]) -> str:
    return f"{zlib.crc32(b''.join(_contents(sources))):08x}"


@cache
def _stamp(sources: Sequence[str], kinds: Sequence[str]) -> str:
    trees = [_described(ast.parse(content)) for content in _contents(sources)]
    return hashlib.sha256(repr((tuple(kinds), trees)).encode()).hexdigest()[:16]


def _described(node: object) -> object:
    """A syntax tree as nested tuples, without places, texts that stand alone, and fields that hold nothing.

    `ast.dump` differs between versions of Python.
    """
    if isinstance(node, list):
        return [_described(each) for each in node if not _is_text(each)]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [(name, _described(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return (type(node).__name__, *(field for field in fields if field[1]))


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
