"""What every trace must satisfy, checked when one is built and when a table of a bundle is first used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl
import pyarrow as pa

from xsp_model.columns.arrays import no_refs
from xsp_model.columns.intervals import FARTHEST_NS, MAX_TOTAL_NS
from xsp_model.columns.tree import is_cyclic
from xsp_model.schema import REFERENCES, TABLES
from xsp_model.vocabulary import DEVICE_KINDS, LEVELS, Attribution, Kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from xsp_model.columns.arrays import Bools, Ints, Positions
    from xsp_model.schema import TableSpec
    from xsp_model.trace import Trace

__all__ = ["broken_rules", "check", "check_pieces", "doubtful", "run_ids", "violations_in"]


def check(trace: Trace) -> None:
    """Raises ValueError naming each rule of the model that the trace breaks."""
    _raise(list(broken_rules(trace)))


def _raise(violations: Sequence[str]) -> None:
    if violations:
        message = "the trace breaks its own rules: " + "; ".join(violations)
        raise ValueError(message)


def check_pieces(pieces: Iterable[pa.Table], spec: TableSpec, spans: int) -> Iterator[pa.Table]:
    """The pieces of one table of a trace of one run with so many spans, in order; ValueError as `check`."""
    rules = _Rules(spec, spans)
    for piece in pieces:
        _raise([*_broken_columns(piece, spec), *rules.violations_in(piece)])
        yield piece


_SEVERAL_ROWS = ("metrics", "attributions")  # tables that may say more than one thing of a span
_NUMBERS = ("span_id", "run_id", "start_ns", "duration_ns")
_VOCABULARIES = {"level": LEVELS, "kind": tuple(Kind), "attribution": tuple(Attribution)}
_FEW_LABELS = 255  # numbers of so few take a byte each, which are looked at in less time


def broken_rules(trace: Trace) -> Iterator[str]:
    """A sentence for each broken rule; nothing for a sound trace. Tables of a bundle are read some rows at a time."""
    for name, spec in TABLES.items():
        violations: dict[str, None] = {}
        for piece in trace.row_groups(name):
            if piece.schema != spec.schema:
                yield f"table {name} has another schema"
                return
            piece.validate(full=True)  # texts and their numbers, which nobody looks at while reading
            violations |= dict.fromkeys(_broken_columns(piece, spec))
        yield from violations
    runs = run_ids(trace)
    for name in TABLES:
        yield from violations_in(trace, name, runs)


def violations_in(trace: Trace, name: str, runs: Ints, only: Collection[str] | None = None) -> Iterator[str]:
    """A sentence for each rule that the rows of this table break, whose columns are the declared ones and not null.

    `runs`: their numbers. `only`: the columns that will be used; None: any. Other columns of these than rules are about
    are read too, some rows at a time: polars dies of pages at which Arrow raises.
    """
    rules = _Rules(TABLES[name], trace.row_count, runs, only)
    columns = [c for c in TABLES[name].schema.names if only is None or c in only or c in rules.columns]
    violations: dict[str, None] = {}
    for piece in trace.row_groups(name, columns) if columns else ():
        violations |= dict.fromkeys(rules.violations_in(piece))
    if rules.has_late_parents and not violations and is_cyclic(_parents(trace)):
        violations["the span tree has a cycle"] = None
    yield from violations


def doubtful(trace: Trace) -> Iterator[str]:
    """A sentence for each column that holds what is seldom sound, though no rule forbids it, or cannot be read."""
    for name, spec in TABLES.items():
        numbers = [column.name for column in spec.columns if column.type == pa.float64()]
        for piece in trace.row_groups(name) if numbers else ():
            rows = pl.DataFrame(piece.select(numbers))
            yield from (f"{name}.{c} holds what is no finite number" for c in numbers if not rows[c].is_finite().all())


def run_ids(trace: Trace) -> Ints:
    """The numbers of the runs."""
    return np.concatenate([_Integers.of(piece["run_id"]).not_null for piece in trace.row_groups("runs", ["run_id"])])


def _parents(trace: Trace) -> Positions:
    """The row of each span's parent, or -1."""
    parents = no_refs(trace.row_count)
    first = 0
    for piece in trace.pieces("spans", ["parent_id"]):
        parents[first : first + piece.height] = piece["parent_id"].fill_null(-1).to_numpy()
        first += piece.height
    return parents


class _Rules:
    """The rules for the rows of one table, given piece by piece in order."""

    def __init__(
        self, spec: TableSpec, spans: int, run_ids: Ints | None = None, only: Collection[str] | None = None
    ) -> None:
        """Of a trace of so many spans and of these runs; None: of whatever run. `only`: the columns to look at."""
        self._spec = spec
        self._spans = spans
        self._run_ids = run_ids
        self._rows = 0
        self._last: _Integers | None = None  # what the last row before is ordered by
        self._total_ns = 0.0
        self.has_late_parents = False  # some parent comes after its child, as when clocks differ: is there a cycle?
        references = REFERENCES.get(spec.name, ())
        columns = [column.name for column in spec.columns]
        self._references = [*references, *(["span_id"] if spec.name != "spans" and "span_id" in columns else [])]
        numbers = _NUMBERS if spec.name == "spans" else ("span_id", "run_id")
        if only is not None and "parent_id" in only:  # rules about it are about both
            only = {*only, "span_id"}
        self._read = [c for c in columns if c in (*numbers, *references, spec.order[0]) and (only is None or c in only)]
        labels = _VOCABULARIES if spec.name == "spans" else ()
        self._read_labels = [column for column in labels if only is None or column in only]
        self.columns = [*self._read, *self._read_labels]

    def violations_in(self, piece: pa.Table) -> Iterator[str]:
        """A sentence for each rule that these rows, of which only `columns` are looked at, break."""
        if not piece.num_rows:
            return
        rows = {column: _Integers.of(piece[column]) for column in self._read}
        yield from self._broken_references(rows)
        if self._spec.order[0] in rows:
            yield from self._broken_order(rows[self._spec.order[0]])
        if self._spec.name == "spans":
            yield from self._broken_times(rows)
            yield from self._broken_tree(rows)
            labels = {column: _Labels(piece[column]) for column in self._read_labels}
            yield from _broken_labels(labels)
            if len(labels) == len(_VOCABULARIES) and "layer_id" in rows:
                yield from _broken_attribution(labels, rows["layer_id"].is_valid())
        self._rows += piece.num_rows

    def _broken_references(self, rows: Mapping[str, _Integers]) -> Iterator[str]:
        for column in self._references:
            if column in rows and not rows[column].are_between(0, self._spans - 1):
                yield f"{self._spec.name}.{column} refers to no span"
        if self._run_ids is None or "run_id" not in rows:
            return
        if self._spec.name == "runs":
            if len(np.unique(self._run_ids)) < len(self._run_ids):
                yield "runs.run_id is not unique"
        elif not rows["run_id"].are_among(self._run_ids):
            yield f"{'a span' if self._spec.name == 'spans' else f'a row of {self._spec.name}'} belongs to no run"

    def _broken_order(self, by: _Integers) -> Iterator[str]:
        """The order by the first column that rows are ordered by, and whether a span has one row."""
        column, name = self._spec.order[0], self._spec.name
        pieces = [by] if self._last is None else [self._last.append(by.first()), by]
        self._last = by.last()
        if column == "span_id" and all(each.are_rising() for each in pieces):
            return
        if not all(each.are_sorted() for each in pieces):
            yield "spans are not in order of start" if name == "spans" else f"{name} is not in order of {column}"
        elif column == "span_id" and name not in _SEVERAL_ROWS:  # else they would be rising
            yield f"{name}.span_id is not unique"

    def _broken_times(self, rows: Mapping[str, _Integers]) -> Iterator[str]:
        start, duration = rows.get("start_ns"), rows.get("duration_ns")
        if duration is not None:
            self._total_ns += duration.total()
            if not duration.are_between(0, (1 << 63) - 1):
                yield "a span has a negative duration"
        is_out = start is not None and not start.are_between(-FARTHEST_NS, FARTHEST_NS)
        if is_out or self._total_ns > MAX_TOTAL_NS:
            yield "spans last longer than a computer does"

    def _broken_tree(self, rows: Mapping[str, _Integers]) -> Iterator[str]:
        if "span_id" not in rows:
            return
        ids, parents = rows["span_id"], rows.get("parent_id")
        last_id = self._rows + len(ids.values) - 1
        if (ids.values[0], ids.values[-1]) != (self._rows, last_id) or not ids.are_rising():
            yield "spans.span_id does not count the rows"
        if parents is not None and parents.are_where(parents.values >= ids.values):
            self.has_late_parents = True
            if parents.are_where(parents.values == ids.values):
                yield "a span is its own parent"


@dataclass(frozen=True, slots=True)
class _Integers:
    """The integers of a column, as Arrow holds them."""

    values: Ints  # of any value where they are null
    valid: Bools | None  # None: all are

    @classmethod
    def of(cls, column: pa.ChunkedArray | pa.Array) -> Self:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        validity, data = array.buffers()
        end = array.offset + len(array)
        kind: Any = np.int32 if array.type == pa.int32() else np.int64
        values = np.frombuffer(data, kind, count=end)[array.offset :]
        if not array.null_count:
            return cls(values, None)
        valid = np.unpackbits(np.frombuffer(validity, np.uint8), count=end, bitorder="little")[array.offset :]
        return cls(values, valid.view(np.bool_))

    @property
    def not_null(self) -> Ints:
        """Which values are valid."""
        return self.values if self.valid is None else self.values[self.valid]

    def is_valid(self) -> Bools:
        return np.ones(len(self.values), np.bool_) if self.valid is None else self.valid

    def are_where(self, mask: Bools) -> bool:
        """Whether any that is valid is where the mask is set."""
        return bool((mask if self.valid is None else mask & self.valid).any())

    def total(self) -> float:
        """The sum of those that are valid."""
        return float(self.values.sum(dtype=np.float64, where=True if self.valid is None else self.valid))

    def are_between(self, minimum: int, maximum: int) -> bool:
        """Whether all that are valid are."""
        valid = True if self.valid is None else self.valid
        lowest = self.values.min(where=valid, initial=minimum)
        return bool(lowest >= minimum and self.values.max(where=valid, initial=maximum) <= maximum)

    def are_among(self, allowed: Ints) -> bool:
        if len(allowed) == 1:
            return self.are_between(int(allowed[0]), int(allowed[0]))
        return bool(np.isin(np.unique(self.not_null), allowed).all())

    def are_sorted(self) -> bool:
        """Whether none is smaller than the one before, and nulls come last."""
        values = self.not_null
        nulls_last = self.valid is None or bool(self.valid[: len(values)].all())
        return nulls_last and bool((values[1:] >= values[:-1]).all())

    def are_rising(self) -> bool:
        """Whether each is valid and larger than the one before, as ids are in tables in order of spans."""
        return self.valid is None and bool((self.values[1:] > self.values[:-1]).all())

    def first(self) -> _Integers:
        return _Integers(self.values[:1], self.is_valid()[:1])

    def last(self) -> _Integers:
        return _Integers(self.values[-1:].copy(), self.is_valid()[-1:].copy())

    def append(self, other: _Integers) -> _Integers:
        valid = np.concatenate([self.is_valid(), other.is_valid()])
        return _Integers(np.concatenate([self.values, other.values]), None if valid.all() else valid)


class _Labels:
    """The labels of a column: looked at once each, however many rows have them."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        array = (column if column.num_chunks == 1 else column.unify_dictionaries()).combine_chunks()
        indices = _Integers.of(array.indices)
        self._null = len(array.dictionary)
        if indices.valid is None:
            physical = indices.values
        else:
            physical = np.where(indices.valid, indices.values, np.int32(self._null))
        self._physical = physical.astype(np.uint8) if self._null < _FEW_LABELS else physical
        used = np.flatnonzero(np.bincount(self._physical, minlength=self._null + 1)[: self._null])
        self._used = {int(index): array.dictionary[int(index)].as_py() for index in used}

    def is_valid(self) -> Bools:
        """Which rows have one."""
        valid: Bools = self._physical != self._null
        return valid

    def are_of(self, allowed: Iterable[str]) -> bool:
        """Whether all are of this vocabulary."""
        return set(self._used.values()) <= {str(label) for label in allowed}

    def is_one_of(self, labels: Iterable[str]) -> Bools:
        """Which rows have one of these labels."""
        texts = {str(label) for label in labels}
        is_one = np.zeros(len(self._physical), np.bool_)
        for index in (index for index, label in self._used.items() if label in texts):
            is_one |= self._physical == index
        return is_one


def _broken_columns(table: pa.Table, spec: TableSpec) -> Iterator[str]:
    for column in spec.columns:
        if not column.nullable and table.column(column.name).null_count:
            yield f"{spec.name}.{column.name} has nulls"


def _broken_labels(labels: Mapping[str, _Labels]) -> Iterator[str]:
    for column, each in labels.items():
        if not each.are_of(_VOCABULARIES[column]):
            yield f"spans.{column} holds a word outside its vocabulary"


def _broken_attribution(labels: Mapping[str, _Labels], has_layer: Bools) -> Iterator[str]:
    attributed, in_layer = labels["attribution"].is_valid(), labels["attribution"].is_one_of([Attribution.LAYER])
    if (labels["kind"].is_one_of(DEVICE_KINDS) != attributed).any():
        yield "device activities and attributed spans are not the same"
    if (in_layer & ~has_layer).any():
        yield "work attributed to a layer names none"
    if (attributed & ~in_layer & has_layer).any():
        yield "work that is attributed to no layer names one"
