"""The lines of Python that called each operator: of the frames on its thread the innermost of the user's."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_ingest.files.values import characters
from xsp_ingest.link.nest import Moments, nest
from xsp_ingest.staging.intervals import MAX_DURATION_NS
from xsp_model.columns.arrays import Growing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from xsp_model.columns.arrays import Ints, Positions

__all__ = ["SourceLines", "lines_of_stack", "of_call_stacks", "user_line"]

DEPTH = 3
"""So many of the user's innermost lines are kept of an operator."""
SEPARATOR = "; "
_NAME = re.compile(r"(.+)\((\d+)\): (.+)", re.DOTALL)
_INSTALLED = re.compile(r".*(?:site|dist)-packages/")
_STANDARD = re.compile(r"/[Ll]ib/python[\d.]*/")
_GENERATED = re.compile(r"/torchinductor_[^/]*/|/\.triton/")
_OUTSIDE = re.compile(r"/|[A-Za-z]:/|(?:.*/)?\.\./|~")
_CELL = "<ipython-input"
# What calls the user's code for the user: the framework, the compiler of kernels, wrappers of the standard library.
_FRAMEWORK = frozenset({"torch", "functorch", "torchgen", "triton"})
_WRAPPERS = frozenset(
    (
        *(
            "_collections_abc",
            "_weakrefset",
            "abc",
            "asyncio",
            "collections",
            "concurrent",
            "contextlib",
            "contextvars",
        ),
        *("copy", "copyreg", "dataclasses", "enum", "functools", "importlib", "inspect", "json", "logging", "os", "re"),
        *("multiprocessing", "pickle", "pkgutil", "runpy", "selectors", "socketserver", "subprocess", "tempfile"),
        *("threading", "traceback", "typing", "typing_extensions", "unittest", "warnings", "weakref"),
    )
)


@lru_cache(1 << 12)
def user_line(name: str, *, keep_private: bool) -> str | None:
    """A frame named `file(line): function` as `file:line function`; None where it is not the user's.

    Of a file outside the folders that Python finds modules in only its own name stays, unless private ones are kept.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    path, line, function = match.groups()
    path = path.replace("\\", "/")
    module = _INSTALLED.sub("", path)
    if not _is_users(path, module):
        return None
    if not keep_private:
        path = PurePosixPath(module).name if _OUTSIDE.match(module) else module
    return f"{path}:{line} {function}"


def _is_users(path: str, module: str) -> bool:
    """`module`: the path from the folder of installed packages on."""
    if path.startswith("<"):
        return path.startswith(_CELL)
    if _GENERATED.search(path) or (module == path and _STANDARD.search(path)):
        return False
    package = module.partition("/")[0].removesuffix(".py")
    return package not in _FRAMEWORK and package not in _WRAPPERS


@lru_cache(1 << 12)
def lines_of_stack(stack: str, *, keep_private: bool) -> str | None:
    """The user's innermost lines of frames joined by `;` or line ends, innermost first; None where there are none."""
    frames = (each.strip() for each in re.split(r"[;\n]", stack))
    lines = [line for each in frames if (line := user_line(each, keep_private=keep_private))]
    return SEPARATOR.join(lines[:DEPTH]) or None


# The lines of Python that called each operator: of the frames on its thread the innermost of the user's.

_NOT_USERS = -1
_THREAD = ("process_id", "thread_id")
_COLUMNS = ("start", "end", "line", "thread")


class SourceLines:
    """The user's frames so far: 24 bytes each, on disk where they are many, and each distinct line once."""

    def __init__(self, *, keep_private: bool) -> None:
        self._keep_private = keep_private
        self._lines: dict[str, int] = {}
        self._threads: dict[tuple[int | None, int | None], int] = {}
        self._columns = {name: Growing(np.int64 if name in ("start", "end") else np.int32) for name in _COLUMNS}

    def add(self, frames: pl.DataFrame) -> None:
        """Adds frames (FRAME_COLUMNS), of the framework or of the user; such without a length hold no operator."""
        lines = self._line_numbers(frames["name"])
        is_kept = (lines != _NOT_USERS) & frames["dur_ns"].is_between(1, MAX_DURATION_NS).fill_null(
            value=False
        ).to_numpy()
        if not is_kept.any():
            return
        some = frames.filter(pl.Series(is_kept))
        start = some["ts_ns"].to_numpy()
        values = {"start": start, "end": start + some["dur_ns"].to_numpy(), "line": lines[is_kept]}
        values["thread"] = self._threads_of(some.select("pid", "tid"))
        for name, column in values.items():
            self._columns[name].add(column)

    def _line_numbers(self, names: pl.Series) -> NDArray[np.int32]:
        """The number of each frame's line, or -1."""
        distinct = names.unique().cast(pl.String)
        lines = [user_line(name, keep_private=self._keep_private) for name in distinct]
        numbers = [_NOT_USERS if line is None else self._lines.setdefault(line, len(self._lines)) for line in lines]
        number_of = dict(zip(distinct, numbers, strict=True))
        return names.replace_strict(number_of, return_dtype=pl.Int32).to_numpy()

    def _threads_of(self, rows: pl.DataFrame) -> NDArray[np.int32]:
        """The number of each row's process and thread."""
        first, second = rows.columns
        distinct = rows.unique()
        numbers = [self._threads.setdefault(each, len(self._threads)) for each in distinct.iter_rows()]
        numbered = distinct.with_columns(pl.Series("number", numbers, dtype=pl.Int32))
        joined = rows.join(numbered, on=[first, second], how="left", nulls_equal=True, maintain_order="left")
        return joined["number"].to_numpy()

    def with_lines(self, operators: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
        """The facts of operators with the lines that called them; where no frame did, what they were recorded with."""
        if not self._columns["line"].count or operators.is_empty():
            return operators
        where = spans.select("row", "start_ns", "duration_ns", *_THREAD)
        lines = self._of(operators.select("row").join(where, on="row", how="left", maintain_order="left"))
        if operators["source_lines"].null_count() < operators.height:
            lines = lines.cast(pl.String).fill_null(operators["source_lines"].cast(pl.String)).cast(pl.Categorical)
        return operators.with_columns(lines.alias("source_lines"))

    def _of(self, operators: pl.DataFrame) -> pl.Series:
        """The lines that called each operator (start_ns, duration_ns, process_id, thread_id), null where unknown."""
        moments = Moments(self._threads_of(operators.select(_THREAD)), operators["start_ns"].to_numpy())
        start, end, line, thread = (column.column() for column in self._columns.values())
        if len(start) > 1 and (np.diff(start) < 0).any():
            order = np.argsort(start, kind="stable")
            start, end, line, thread = (each[order] for each in (start, end, line, thread))
        nested = nest(thread, start, end, np.zeros(len(start), np.int8), threads=len(self._threads), moments=moments)
        ends = moments.time + operators["duration_ns"].to_numpy()
        held = _callers(nested.owner, nested.parent, (start, end), (moments.time, ends))
        return _stack_texts(held, nested.parent, line, list(self._lines))


def _callers(held: Positions, parent: Positions, frames: tuple[Ints, Ints], operators: tuple[Ints, Ints]) -> Positions:
    """The frame that called each operator: not one that starts with it and is shorter, which the operator called."""
    (start, end), (begins, ends) = frames, operators
    while True:
        called = (held >= 0) & (start[held] == begins) & (end[held] < ends)
        if not called.any():
            return held
        held = np.where(called, parent[held], held)


def _stack_texts(held: Positions, parent: Positions, line: NDArray[np.int32], lines: Sequence[str]) -> pl.Series:
    """The lines of these frames and of those around them as one text, each distinct one made once."""
    columns = []
    for _ in range(DEPTH):
        columns.append(np.where(held >= 0, line[held], _NOT_USERS))
        held = np.where(held >= 0, parent[held], held)
    stacks = pl.DataFrame({str(depth): column for depth, column in enumerate(columns)})
    distinct = stacks.unique(maintain_order=True)
    texts = [SEPARATOR.join(lines[each] for each in stack if each >= 0) or None for stack in distinct.iter_rows()]
    joined = distinct.with_columns(pl.Series("lines", texts, dtype=pl.Categorical))
    return stacks.join(joined, on=list(stacks.columns), how="left", maintain_order="left")["lines"]


def of_call_stacks(stacks: pl.Series, *, keep_private: bool) -> pl.Series:
    """The user's innermost lines of stacks that operators were recorded with, which are JSON texts."""
    distinct = stacks.unique().drop_nulls().cast(pl.String)
    lines = {each: _of_call_stack(each, keep_private=keep_private) for each in distinct}
    return stacks.replace_strict(lines, default=None, return_dtype=pl.Categorical)


def _of_call_stack(text: str, *, keep_private: bool) -> str | None:
    stack = json.loads(text)
    return lines_of_stack(characters(stack), keep_private=keep_private) if isinstance(stack, str) else None
