"""SQL on a trace: the tables that it sees, and a query that can be ended."""

from __future__ import annotations

import re
import threading
import time
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import polars as pl
import pyarrow as pa

from xsp_analyze.catalog import all_analyses, result
from xsp_analyze.frames.kernels.activities import gpu_ops
from xsp_analyze.text.units import plain_spaces, size
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError
from xsp_model.errors import closest
from xsp_model.limits import available_bytes, resident_bytes
from xsp_model.schema import TABLES, ColumnSpec, TableSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_analyze.core import Analysis, Column
    from xsp_model import Trace

__all__ = [
    "LOOK",
    "QueryLimits",
    "check_query",
    "columns_in",
    "describe_tables",
    "query",
    "query_frames",
    "table_of",
    "within",
    "without_comments",
]

# Computes within limits of time and memory: an answer, or an error in one sentence.

_T = TypeVar("_T")
_WATCH_S = 0.05
_FREE_SHARE = 0.8  # of the memory that is free when a query begins


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What a query may take; null: as long as it takes, or most of the memory that is free."""

    seconds: float | None = 60.0
    memory_bytes: int | None = None


def within(limits: QueryLimits, compute: Callable[[], _T]) -> _T:
    """What the function answers, or raises; XspError where it takes more time or memory than it may.

    It cannot be stopped in the middle of native code: it then goes on in a thread of its own, which the end of the
    process does not wait for.
    """
    answers: list[_T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(compute())
        except BaseException as error:  # noqa: BLE001 (handed to whoever waits, a panic of polars too)
            errors.append(error)

    worker = threading.Thread(target=copy_context().run, args=(work,), daemon=True)
    _watch(worker, limits)
    if errors:
        raise errors[0]
    return answers[0]


def _watch(worker: threading.Thread, limits: QueryLimits) -> None:
    began, before = time.monotonic(), resident_bytes()
    ceiling = limits.memory_bytes or int(available_bytes() * _FREE_SHARE)
    worker.start()
    while worker.is_alive():
        worker.join(_WATCH_S)
        if limits.seconds is not None and time.monotonic() - began > limits.seconds and worker.is_alive():
            raise XspError(
                f"the query was not answered within {limits.seconds:g} s",
                advice="Select less, or give it longer with --timeout (0: as long as it takes)",
            )
        if resident_bytes() - before > ceiling and worker.is_alive():
            raise XspError(
                f"the query needs more than the {plain_spaces(size(ceiling))} of memory that it may take",
                advice="Select fewer rows or columns",
            )


# What SQL and Python see: tables of a trace and of analyses, with columns, types, units and a sentence each.

_TYPES = {pa.int64(): "integer", pa.float64(): "float", pa.bool_(): "boolean"}  # of tables; the others are text
_ANSWERED = {pl.Int64(): "integer", pl.Float64(): "float", pl.Boolean(): "boolean", pl.String(): "text"}


def _columns_of(table: str, *names: str) -> list[ColumnSpec]:
    return [column for column in TABLES[table].columns if column.name in names]


# What people join first, joined: a view, which is made when a query names it.
_GPU_OPS = TableSpec(
    "gpu_ops",
    "One row a kernel, copy or memset, joined with its layer, operator, launching call and sizes.",
    (
        *_columns_of("spans", "span_id", "run_id", "kind", "name", "start_ns", "duration_ns", "device_id"),
        *_columns_of("spans", "stream_id", "step", "phase", "attribution"),
        *_columns_of("layers", "layer_name", "layer_type", "path"),
        ColumnSpec("operator_name", pa.string(), "The innermost operator that launched it."),
        ColumnSpec("call_name", pa.string(), "The runtime call that launched it."),
        ColumnSpec("waited_ns", pa.int64(), "From the end of that call to its start; below 0: they overlap.", "ns"),
        *_columns_of("kernels", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes"),
        *_columns_of("kernels", "registers_per_thread"),
        *_columns_of("copies", "bytes", "copy_kind"),
    ),
    ("span_id",),
)
_VIEWS = {_GPU_OPS.name: _GPU_OPS}


def _type_in_words(column: Column) -> str:
    """The type of an analysis's column in words; what is exact over whole steps is a float in a mean step."""
    dtype = column.type_of(averaged=True)
    return _ANSWERED.get(dtype, str(dtype).lower())


def describe_tables(name: str | None = None) -> list[dict[str, object]]:
    """Every table of a trace, or the one named (an analysis by its id): name, doc, columns (name, type, unit, doc).

    Raises:
        XspError: There is no such table or analysis.
    """
    tables = {**TABLES, **_VIEWS}
    if name is None:
        return [_table(spec) for spec in tables.values()]
    if name.lower() in tables:
        return [_table(tables[name.lower()])]
    for one in all_analyses():
        if one.id.lower() == name.lower():
            return [_analysis(one)]
    raise _no_table(name)


def table_of(trace: Trace, name: str) -> pl.LazyFrame:
    """A table, or a view of several, of which only what is used is read; XspError where there is none."""
    if name in _VIEWS:
        return gpu_ops(trace).select(column.name for column in _GPU_OPS.columns)
    if name not in TABLES:
        raise _no_table(name)
    return trace.scan(name)


def _no_table(name: str) -> XspError:
    """The error for a name that is neither a table's nor an analysis's."""
    near = closest(name, [*TABLES, *_VIEWS, *(one.id for one in all_analyses())])
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    advice = f"Tables: {', '.join([*TABLES, *_VIEWS])}; or an analysis, as `xsp analyses` lists"
    return XspError(f"there is no table {name!r}", advice=meant + advice)


def _table(spec: TableSpec) -> dict[str, object]:
    columns = [
        {"name": c.name, "type": _TYPES.get(c.type, "text"), "unit": c.unit, "nullable": c.nullable, "doc": c.doc}
        for c in spec.columns
    ]
    return {"name": spec.name, "doc": spec.doc, "columns": columns, "order": list(spec.order)}


def _analysis(one: Analysis) -> dict[str, object]:
    columns = [
        {
            "name": c.name,
            "type": _type_in_words(c),
            "unit": c.unit,
            "nullable": True,
            "doc": c.doc,
        }
        for c in one.columns
    ]
    return {"name": one.id, "doc": " ".join(one.doc.split()), "columns": columns, "order": []}


# SQL over a trace: what a query may say, its tables, and the analyses that it names, as polars frames.

LOOK = "`xsp schema` lists tables and columns"
_PARTS = re.compile(
    r"""
    (?P<text>'(?:[^']|'')*')                            # text: nothing in it counts
    | (?P<comment>--[^\n]* | /\*.*?\*/)
    | (?P<quoted>"(?:[^"]|"")*" | `[^`]*`)              # an identifier, which quoting does not make another one
    | (?P<mark>\b(?:[a-zA-Z]|[bB][rR]|[rR][bB]|[uU]&)['"] | \$\w*\$)   # other ways to quote
    """,
    re.DOTALL | re.VERBOSE,
)
_IDENTIFIER = re.compile(r"\w+")
_READS_A_FILE = re.compile(r"\b(?:read|scan)_\w+(?=\s*\()", re.IGNORECASE)
_STARTS = {"select", "with", "from"}
_COUNT = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
_ANY_COLUMN = re.compile(r"\*|\b(?:natural|columns|table)\b|(?:^|\(|\bselect)\s*from\b", re.IGNORECASE)
_SELECTS = re.compile(r"\b(?:select|union|intersect|except|join)\b", re.IGNORECASE)
_COMMENT = re.compile(r"--|/\*|\*/")
_OPERATORS = re.compile(r"[^\w\s,()]|(?<![,(.\s])\s+\w+")  # signs, and words behind others: not what commas part
_MAX_SELECTS = 200
_MAX_OPERATORS = 2_000
_MAX_CHARACTERS = 200_000


def without_comments(text: str) -> str:
    """The query as it is to be run: what stands in a comment is decided here alone, as readers differ in that.

    XspError where what is left could be taken for a comment, text in it is quoted as no trace needs it, or what stands
    in it are no characters, as bytes of a command line that are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        which = f"its character {error.start + 1} is {text[error.start]!r}"
        raise XspError(f"the query is no text in UTF-8: {which}", advice="Write it in UTF-8") from error
    run = _PARTS.sub(lambda match: " " if match["comment"] else match.group(), text)
    if mark := _COMMENT.search(_bare(run)):
        raise XspError(f"the query has a {mark.group()} that belongs to no comment", advice=LOOK)
    return run


def check_query(text: str) -> set[str]:
    """The identifiers of the query, in small letters; XspError where it does anything but select from the trace.

    Polars goes into a query's depth by recursion: a thousand SELECTs in one another take it minutes, and five thousand
    its life.
    """
    if len(text) > _MAX_CHARACTERS:
        raise XspError(f"a query has at most {_MAX_CHARACTERS} characters, and this one {len(text)}")
    bare = _bare(text)
    first = _IDENTIFIER.search(bare)
    if first is None or first.group().lower() not in _STARTS:
        raise XspError("a query begins with SELECT (or WITH, or FROM)", advice=LOOK)
    if reads := _READS_A_FILE.search(bare):
        raise XspError(f"a query sees the tables of its trace alone, so {reads.group()} is not for it", advice=LOOK)
    for what, pattern, ceiling in (("SELECTs", _SELECTS, _MAX_SELECTS), ("operators", _OPERATORS, _MAX_OPERATORS)):
        if sum(1 for _ in pattern.finditer(bare)) > ceiling:
            raise XspError(f"the query has more than {ceiling} {what}", advice="Ask for less at once")
    return {identifier.lower() for identifier in _IDENTIFIER.findall(bare)}


def columns_in(text: str) -> set[str] | None:
    """The words of the query, among which are the columns that it reads; None: it may read any."""
    bare = _COUNT.sub(" ", _bare(text))
    return None if _ANY_COLUMN.search(bare) else {identifier.lower() for identifier in _IDENTIFIER.findall(bare)}


def _bare(text: str) -> str:
    """The query without text and comments, and identifiers without their quotes."""

    def replacement(match: re.Match[str]) -> str:
        if match["mark"]:
            raise XspError(f"a query has text in single quotes, not as {match['mark'][:2]}", advice=LOOK)
        return " ".join(_IDENTIFIER.findall(match["quoted"])) if match["quoted"] else " "

    return _PARTS.sub(replacement, text)


# SQL over a trace: its tables, and the analyses that a query names, as polars frames.
_DEFAULTS = QueryLimits()
_SCAN = re.compile(r"\bSCAN \[([^\]]*)")
_UNKNOWN_TABLE = re.compile(r"relation '(.*?)' was not found")
_UNKNOWN_COLUMN = re.compile(
    r"(?:unable to find column \"|no column named ')(.*?)['\"](?:; valid columns: \[(.*?)\])?", re.DOTALL
)
_MAX_COLUMNS = 30
_MAX_TABLES = 3


def query(
    trace: Trace,
    text: str,
    *,
    steps: str | None = None,
    serving_phase: str | None = None,
    limits: QueryLimits = _DEFAULTS,
) -> pl.DataFrame:
    """The answer to one SELECT over the tables of `schema.TABLES` and over analyses by their id (`A10`).

    Words such as `level` are text, times int64 ns, unknown is null. `steps` and `serving_phase` are how analyses see
    the trace. XspError in one sentence where the query is no SELECT, names what is not there, cannot be computed, or
    takes more time or memory than it may.
    """
    text = without_comments(text)
    identifiers = check_query(text)
    columns = columns_in(text)
    tables = {name: _plain(trace.scan(name, columns)) for name in TABLES if name in identifiers}
    if _GPU_OPS.name in identifiers:
        tables[_GPU_OPS.name] = _plain(gpu_ops(trace).select(column.name for column in _GPU_OPS.columns))
    analyses = [one for one in all_analyses() if one.id.lower() in identifiers]
    frames = StepView.of(trace, steps, serving_phase)
    tables |= {one.id: _plain(result(frames, one.id).table.lazy()) for one in analyses}
    return _within(limits, tables, text)


def query_frames(frames: Mapping[str, pl.DataFrame], text: str, limits: QueryLimits = _DEFAULTS) -> pl.DataFrame:
    """The answer to one SELECT over these tables, on the same terms."""
    text = without_comments(text)
    check_query(text)
    return _within(limits, {name: frame.lazy() for name, frame in frames.items()}, text)


def _within(limits: QueryLimits, tables: Mapping[str, pl.LazyFrame], text: str) -> pl.DataFrame:
    try:
        return within(limits, lambda: _answer(tables, text))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _for_users(error) from error


def _answer(tables: Mapping[str, pl.LazyFrame], text: str) -> pl.DataFrame:
    planned = pl.SQLContext(tables).execute(text, eager=False)
    own = {path for table in tables.values() for path in _files_of_plan(table)}
    if foreign := [path for path in _files_of_plan(planned) if path not in own]:
        raise XspError(f"a query sees the tables of its trace alone, and not {foreign[0]}", advice=LOOK)
    return planned.collect()


def _files_of_plan(plan: pl.LazyFrame) -> list[str]:
    """The files that the plan reads."""
    return [name.strip() for names in _SCAN.findall(plan.explain(optimized=False)) for name in names.split(",")]


def _plain(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Words as text: LIKE and functions of text take no categories."""
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _for_users(error: BaseException) -> XspError:
    message = str(error)
    if match := _UNKNOWN_TABLE.search(message):
        return _no_table(match[1])
    if match := _UNKNOWN_COLUMN.search(message):
        return XspError(f"there is no column {match[1]!r} there", advice=_where(match[1], match[2]))
    first = message.strip().partition("\n")[0] or type(error).__name__
    return XspError(f"the query cannot be answered: {first.removeprefix('sql parser error: ')}", advice=LOOK)


def _where(name: str, listed: str | None) -> str:
    """Which tables have a column of that name, or of one like it; else which columns there are."""
    specs = {"spans": TABLES["spans"], **_VIEWS, **TABLES}
    columns = {table: [column.name for column in spec.columns] for table, spec in specs.items()}
    meant = name.rpartition(".")[2]
    if not any(meant in names for names in columns.values()):
        near = closest(meant, sorted({each for names in columns.values() for each in names}))
        if not near:
            return _columns(listed)
        meant = near[0]
    tables = [table for table, names in columns.items() if meant in names]
    more = " and others" if len(tables) > _MAX_TABLES else ""
    return f"{meant} is in {', '.join(tables[:_MAX_TABLES])}{more}; {LOOK}"


def _columns(listed: str | None) -> str:
    names = [name.strip().strip('"') for name in listed.split(",")] if listed else []
    if not names or len(names) > _MAX_COLUMNS:
        return LOOK
    return f"What it could be: {', '.join(names)}"
