"""What a function that comes compiled declares, where it is called: its types, and what its machine code is made of.

Its modules are named by text, so that neither numba nor they are imported before it is compiled.
`xsp_ingest.compiled_functions` lists all for the build; nothing else here knows which there are.
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

__all__ = ["NUMBER", "CompiledFunction", "source_file"]

NUMBER = ""
"""The kind of a parameter that is a number, not a column."""

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class CompiledFunction:
    """A function of columns and int64 numbers that returns an int64 or nothing, raises nothing and allocates nothing.

    `kinds` says of each parameter the numpy type of its column's numbers, of a number NUMBER.
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
        module = import_module(self.sources[0])
        if self.helpers:
            from numba.extending import register_jitable  # noqa: PLC0415 (only who compiles needs it)

            for helper in self.helpers:
                register_jitable(_nrt=False)(getattr(module, helper))
        function = getattr(module, self.attribute)
        for wrapped in ("py_func", "function"):  # of numba's dispatchers, of a Sweep
            function = getattr(function, wrapped, function)
        return function  # type: ignore[no-any-return]


def source_file(module: str) -> Path:
    """The file of a module of ours, found without importing it."""
    return _ROOT / f"{module.replace('.', '/')}.py"


def _contents(sources: Sequence[str]) -> Iterator[bytes]:
    return (source_file(source).read_bytes() for source in sources)


@cache
def _texts_digest(sources: Sequence[str]) -> str:
    return f"{zlib.crc32(b''.join(_contents(sources))):08x}"


@cache
def _stamp(sources: Sequence[str], kinds: Sequence[str]) -> str:
    trees = [_syntax_of(ast.parse(content)) for content in _contents(sources)]
    return hashlib.sha256(repr((tuple(kinds), trees)).encode()).hexdigest()[:16]


def _syntax_of(node: object) -> object:
    """A syntax tree as nested tuples, without places, texts that stand alone, and fields that hold nothing.

    `ast.dump` differs between versions of Python.
    """
    if isinstance(node, list):
        return [_syntax_of(each) for each in node if not _is_text(each)]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [(name, _syntax_of(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return (type(node).__name__, *(field for field in fields if field[1]))


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
