"""What every trace must satisfy, checked when one is built and when one is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_model.schema import TABLES
from xsp_model.vocabulary import DEVICE_KINDS, LEVELS, Attribution, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from xsp_model.schema import TableSpec
    from xsp_model.trace import Trace

__all__ = ["broken_rules", "check", "checked"]


def check(trace: Trace) -> None:
    """Raises ValueError naming each rule of the model that the trace breaks."""
    _raise(list(broken_rules(trace)))


def _raise(violations: Sequence[str]) -> None:
    if violations:
        message = "the trace breaks its own rules: " + "; ".join(violations)
        raise ValueError(message)


def checked(pieces: Iterable[pa.Table], spec: TableSpec, spans: int) -> Iterator[pa.Table]:
    """The pieces of one table of a trace of one run with so many spans, in order; ValueError as `check`."""
    first, last_id, last_ns = 0, -1, None
    for piece in pieces:
        violations = [*_broken_columns(piece, spec)]
        frame = pl.DataFrame(piece.select([c for c in piece.column_names if c in _CHECKED]))
        if spec.name == "spans" and piece.num_rows:
            violations += _broken_spans(frame, first, spans)
            if last_ns is not None and frame["start_ns"][0] < last_ns:
                violations.append("spans are not in order of start")
            last_ns = frame["start_ns"][-1]
        elif "span_id" in frame.columns and piece.num_rows:
            violations += _broken_ids(frame["span_id"], spec.name, spans)
            if spec.name not in _SEVERAL_ROWS and frame["span_id"][0] <= last_id:
                violations.append(f"{spec.name}.span_id is not unique")
            last_id = frame["span_id"][-1]
        _raise(violations)
        first += piece.num_rows
        yield piece


_SEVERAL_ROWS = ("metrics", "attributions")  # tables that may say more than one thing of a span
_CHECKED = ("span_id", "parent_id", "layer_id", "start_ns", "duration_ns", "level", "kind", "attribution")


def broken_rules(trace: Trace) -> Iterator[str]:
    """A sentence for each broken rule; nothing for a sound trace."""
    for name, spec in TABLES.items():
        table = trace.table(name)
        if table.schema != spec.schema:
            yield f"table {name} has another schema"
            return
        yield from _broken_columns(table, spec)
    spans = trace.table("spans").select([c for c in TABLES["spans"].schema.names if c in _CHECKED])
    yield from _broken_spans(pl.DataFrame(spans), 0, trace.row_count)
    yield from _broken_references(trace)


def _broken_columns(table: pa.Table, spec: TableSpec) -> Iterator[str]:
    for column in spec.columns:
        if not column.nullable and table.column(column.name).null_count:
            yield f"{spec.name}.{column.name} has nulls"


def _broken_spans(spans: pl.DataFrame, first_id: int, count: int) -> Iterator[str]:
    """The rules for these spans, of which the trace has `count` and `first_id` came before."""
    vocabularies = {
        "level": [str(x) for x in LEVELS],
        "kind": [str(x) for x in Kind],
        "attribution": [str(x) for x in Attribution],
    }
    for column, allowed in vocabularies.items():
        if not spans[column].drop_nulls().unique().cast(pl.String).is_in(allowed).all():
            yield f"spans.{column} holds a word outside its vocabulary"
    if not (spans["span_id"] == pl.int_range(first_id, first_id + spans.height, eager=True)).all():
        yield "spans.span_id does not count the rows"
    if not spans["start_ns"].is_sorted():
        yield "spans are not in order of start"
    if (spans["duration_ns"] < 0).any():
        yield "a span has a negative duration"
    yield from _broken_attribution(spans, count)


def _broken_attribution(spans: pl.DataFrame, count: int) -> Iterator[str]:
    for column in ("parent_id", "layer_id"):
        if not spans[column].drop_nulls().is_between(0, max(count - 1, 0)).all():
            yield f"spans.{column} refers to no span"
    if (_is_one_of(spans["kind"], DEVICE_KINDS) != spans["attribution"].is_not_null()).any():
        yield "device activities and attributed spans are not the same"
    attributed = spans["attribution"].is_not_null()
    in_layer = _is_one_of(spans["attribution"], [Attribution.LAYER])
    if (in_layer & spans["layer_id"].is_null()).any():
        yield "work attributed to a layer names none"
    if (attributed & ~in_layer & spans["layer_id"].is_not_null()).any():
        yield "work that is attributed to no layer names one"
    if (spans["parent_id"] == spans["span_id"]).any():
        yield "a span is its own parent"


def _is_one_of(column: pl.Series, vocabulary: Iterable[str]) -> pl.Series:
    """Which rows have one of the words; null: none of them. Looks at each distinct word once."""
    distinct = column.unique().drop_nulls()
    meant = distinct.filter(distinct.cast(pl.String).is_in([str(member) for member in vocabulary]))
    out = pl.repeat(value=False, n=len(column), dtype=pl.Boolean, eager=True)
    for code in meant.to_physical():
        out |= (column.to_physical() == code).fill_null(value=False)
    return out


def _broken_references(trace: Trace) -> Iterator[str]:
    runs = trace.frame("runs")["run_id"]
    if not _numbers(trace, "spans", "run_id").unique().is_in(runs.implode()).all():
        yield "a span belongs to no run"
    for name, spec in TABLES.items():
        if name != "spans" and "span_id" in (c.name for c in spec.columns):
            yield from _broken_ids(_numbers(trace, name, "span_id"), name, trace.row_count)


def _numbers(trace: Trace, table: str, column: str) -> pl.Series:
    return pl.DataFrame(trace.table(table).select([column])).to_series()


def _broken_ids(ids: pl.Series, name: str, count: int) -> Iterator[str]:
    if not ids.is_between(0, max(count - 1, 0)).all():
        yield f"{name}.span_id refers to no span"
    if name not in _SEVERAL_ROWS and not _all_rising(ids) and ids.is_duplicated().any():
        yield f"{name}.span_id is not unique"


def _all_rising(ids: pl.Series) -> bool:
    """Whether each is larger than the one before, as it is in tables in order of spans."""
    values = ids.to_numpy()
    return bool((values[1:] > values[:-1]).all())
