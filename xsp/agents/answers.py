"""What each tool answers: what the command of that name does, a page of it, with what the numbers cover."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from xsp.agents.service import Named, Service
from xsp.api.overview import document as overview_document
from xsp.api.overview import not_answered
from xsp.comparing import Request, of_traces
from xsp.opening import captures_beside, expand, load
from xsp_analyze.catalog import all_analyses, result
from xsp_analyze.compare.comparison import Comparison
from xsp_analyze.core import Column, Result
from xsp_analyze.faults import FaultError, noting_faults
from xsp_analyze.findings import advise, verdict
from xsp_analyze.findings.recording import recordings
from xsp_analyze.frames import coverage
from xsp_analyze.pages.compare.files import document
from xsp_analyze.pages.compare.sentences import sentences
from xsp_analyze.render.findings import documents
from xsp_analyze.render.json_text import plain
from xsp_analyze.service import summarise
from xsp_analyze.sql import QueryLimits, describe_tables
from xsp_analyze.sql import query as answered
from xsp_analyze.text.units import plain_spaces
from xsp_analyze.trace.step_view import StepView
from xsp_analyze.what_if.answer import what_if
from xsp_analyze.what_if.changes import changes_by_name
from xsp_model import Severity, Trace, XspError
from xsp_model.errors import clean, closest

__all__ = [
    "Page",
    "Rows",
    "ServedAnswers",
    "brief_contents",
    "comparison_head",
    "comparison_rows",
    "coverage_of",
    "json_text",
    "one_page",
    "plain_sentences",
    "select_columns",
    "units",
]

_MAX_BYTES = 24_000
"""Of the rows of one answer: some six thousand tokens."""
Rows = pl.DataFrame | Sequence[Mapping[str, object]]
"""All rows of an answer, of which some are sent."""


@dataclass(frozen=True, slots=True)
class Page:
    """Which rows are wanted: at most `limit` from `offset` on, their texts cut to so many characters."""

    limit: int = 20
    offset: int = 0
    max_text: int = 200


def one_page(rows: Rows, page: Page, *, key: str = "rows") -> dict[str, object]:
    """The rows of the page, fewer where they are long but one at least; `next_offset` null: there are no more."""
    cut = 0
    sent: list[object] = []
    room = _MAX_BYTES
    part = rows[page.offset : page.offset + page.limit]
    for row in part.to_dicts() if isinstance(part, pl.DataFrame) else part:
        short, cuts = _cut(plain(dict(row)), page.max_text)
        room -= len(json_text(short))
        if room < 0 and sent:
            break
        sent.append(short)
        cut += cuts
    end = page.offset + len(sent)
    answer: dict[str, object] = {
        "total_rows": len(rows),
        "offset": page.offset,
        "next_offset": end if end < len(rows) else None,
        key: sent,
    }
    return {**answer, "texts_cut": cut} if cut else answer


def _cut(value: object, length: int) -> tuple[object, int]:
    """The value with its texts cut in the middle, and how many were."""
    if isinstance(value, str):
        if len(value) <= length:
            return value, 0
        head = (length - 1) // 2
        return f"{value[: length - 1 - head]}\N{HORIZONTAL ELLIPSIS}{value[len(value) - head :] if head else ''}", 1
    if isinstance(value, list):
        parts = [_cut(item, length) for item in value]
        return [part for part, _ in parts], sum(cuts for _, cuts in parts)
    if isinstance(value, dict):
        cells = {key: _cut(item, length) for key, item in value.items()}
        return {key: part for key, (part, _) in cells.items()}, sum(cuts for _, cuts in cells.values())
    return value, 0


def json_text(value: object) -> str:
    """Compact JSON in ASCII: what acts in a name, a control code or a direction of writing, stands as its code."""
    return json.dumps(plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def plain_sentences(sentences: Iterable[str]) -> list[str]:
    """Sentences, in which names of a trace may stand, as a terminal has them."""
    return [clean(plain_spaces(sentence)) for sentence in sentences]


# What stands in an answer beside its rows: what the numbers cover, what was lost, and the head of a comparison.

_COVERS = ("steps", "step_count", "serving_phase", "layer_source", "layer_coverage", "model_latency_basis",
           "layer_latency_basis", "layer_latency_basis_observed", "over_runs", "taken_from")  # fmt: skip
_ABSENT_SAYS_NOTHING = ("serving_phase", "over_runs", "taken_from")
_ON_LAYERS = ("layer_coverage", "layer_latency_basis", "layer_latency_basis_observed")
_WHERE_TIME_WENT = tuple(str(kind) for kind in coverage.ATTRIBUTIONS.values())
_MAX_LEDGER = 10
_MAX_RUNS = 8
_MAX_PARTS = 8
_OF_RUN = ("run_id", "source_path", "source_bytes", "format", "profiler", "framework", "rank", "world_size",
           "layer_source")  # fmt: skip
_OF_COMPARISON = ("comparable", "same_content", "reasons", "per", "match", "statistics", "model")
_OF_ROW = ("level", "name", "change", "after_name", "before_ns", "after_ns", "difference_ns", "ratio", "low", "high",
           "significant", "conclusion", "before_count", "after_count", "layer_index", "path", "kernel")  # fmt: skip
_SEVERITIES = (Severity.ERROR, Severity.WARNING, Severity.INFO)


def coverage_of(frames: StepView, result: Result | None = None, *, notes: bool = False) -> dict[str, object]:
    """What the numbers are of, and the ledger, the worst first, to so many rows; of all layers without a result.

    Of what is only to note, device time by where it went is there, and the rest with `notes`.
    """
    provenance = coverage.provenance(frames) if result is None else result.provenance
    ledger = (coverage.ledger(frames) if result is None else result.ledger).to_dicts()
    ledger.sort(key=lambda row: _SEVERITIES.index(Severity(row["severity"])))
    shown = [row for row in ledger if notes or row["severity"] != Severity.INFO or row["kind"] in _WHERE_TIME_WENT]
    on_layers = result is None or result.analysis.about_layers
    covers = {key: provenance[key] for key in _COVERS if not _is_silent(key, provenance[key], on_layers=on_layers)}
    entries = [_entry(row) for row in shown[:_MAX_LEDGER]]
    left_out = len(ledger) - len(entries)
    beside: dict[str, object] = {"covers": covers, "ledger": entries}
    return {**beside, "ledger_left_out": left_out} if left_out else beside


def _is_silent(key: str, value: object, *, on_layers: bool) -> bool:
    """Whether that there is no value says nothing: a table that is not on layers does not ask how these were taken."""
    return value is None and (key in _ABSENT_SAYS_NOTHING or (not on_layers and key in _ON_LAYERS))


def _entry(row: Mapping[str, Any]) -> dict[str, object]:
    detail, advice = plain_sentences([str(row["detail"]), str(row["advice"] or "")])
    entry = {key: row[key] for key in ("severity", "kind", "count", "duration_ns")} | {"detail": detail}
    return {**entry, "advice": advice} if advice else entry


def select_columns(table: pl.DataFrame, columns: Sequence[str] | None) -> tuple[pl.DataFrame, dict[str, object]]:
    """The columns that were asked for; else all that are known, and the names of those that are null in every row."""
    if columns:
        lacking = [name for name in columns if name not in table.columns]
        if lacking:
            near = closest(lacking[0], table.columns)
            meant = f"Did you mean {' or '.join(near)}? " if near else ""
            raise XspError(f"there is no column {lacking[0]!r}", advice=f"{meant}Columns: {', '.join(table.columns)}")
        return table.select(list(dict.fromkeys(columns))), {}
    unknown = [name for name in table.columns if table.height and table[name].null_count() == table.height]
    return table.drop(unknown), {"unknown_columns": unknown} if unknown else {}


def units(names: Sequence[str], columns: Sequence[Column]) -> dict[str, str]:
    """The units of columns whose names do not end with theirs."""
    return {c.name: c.unit for c in columns if c.name in names and c.unit and not _says_unit(c.name, c.unit)}


def _says_unit(name: str, unit: str) -> bool:
    ending = {"1/s": "per_s"}.get(unit, unit.lower().replace("/", "_per_"))
    return any(name == each or name.endswith(f"_{each}") for each in (ending, f"{ending}s"))


def brief_contents(info: Mapping[str, Any]) -> dict[str, object]:
    """What `xsp info` says, with what an agent needs of each run, and steps as their count and ends."""
    steps, runs = info["steps"], info["runs"]
    return {
        "run_count": len(runs),
        "runs": [{key: run[key] for key in _OF_RUN if run.get(key) is not None} for run in runs[:_MAX_RUNS]],
        "steps": {"count": len(steps), "first": steps[0], "last": steps[-1]} if steps else {"count": 0},
        "captures": len(info["captures"]),
        **{key: value for key, value in info.items() if key not in {"runs", "steps", "captures", "findings"}},
    }


def comparison_head(comparison: Comparison) -> dict[str, object]:
    """What a comparison says before its rows, and what each side covers."""
    held: Mapping[str, Any] = document(comparison)
    sides = {
        name: coverage_of(side.views[0]) for name, side in (("before", comparison.before), ("after", comparison.after))
    }
    summary = {"summary": plain_sentences(sentences(comparison)), **{key: held[key] for key in _OF_COMPARISON}}
    falls = _largest_parts(held["waterfall"])
    return {**summary, "reasons": plain_sentences(comparison.reasons), "waterfall": falls, **sides}


def _largest_parts(falls: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What the difference is made of, the largest parts first and the others as one: their sum stays the difference."""
    if falls is None or len(falls["parts"]) <= _MAX_PARTS:
        return falls
    parts = sorted(falls["parts"], key=lambda part: -abs(part["difference_ns"]))
    rest = parts[_MAX_PARTS:]
    others = {"name": f"{len(rest)} others", "difference_ns": sum(part["difference_ns"] for part in rest)}
    return {**falls, "parts": [*parts[:_MAX_PARTS], others]}


def comparison_rows(comparison: Comparison, level: str | None) -> Sequence[Mapping[str, object]]:
    """Rows by how much they differ, those of one level where asked."""
    rows = [row for row in comparison.rows if level in {None, row.level}]
    if not rows and level is not None:
        levels = dict.fromkeys(row.level for row in comparison.rows)
        raise XspError(f"the comparison has no rows of level {level!r}", advice=f"It has {', '.join(levels) or 'none'}")
    rows.sort(key=lambda row: -abs(row.difference_ns or 0.0))
    return [{name: getattr(row, name) for name in _OF_ROW if getattr(row, name) is not None} for row in rows]


_OPEN_AT_ONCE = 3
_KEPT_ANSWERS = 8
_Answer = dict[str, object]
_State = Sequence[tuple[int, int, int]]
_Kept = tuple[_Answer, Rows]


class ServedAnswers:
    """Answers of a service; the last traces stay open and the last answers are kept for their further pages."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._traces: OrderedDict[str, tuple[_State, Trace]] = OrderedDict()
        self._kept: OrderedDict[object, _Kept] = OrderedDict()
        self._seen: tuple[object, StepView] | None = None  # the last view, of which more is often asked

    def answer(self, tool: str, arguments: Mapping[str, Any]) -> _Answer:
        """The answer in JSON's own types, or XspError in one sentence; arguments are as the tool's schema has them."""
        tools: Mapping[str, Callable[..., _Answer]] = {
            "info": self._info,
            "findings": self._findings,
            "what_if": self._what_if,
            "analyze": self._analyze,
            "query": self._query,
            "compare": self._compare,
            "schema": self._schema,
        }
        others = {name: value for name, value in arguments.items() if name not in Page.__dataclass_fields__}
        if tool == "info":
            with noting_faults() as faults:
                held = self._info(**others)
            return {**held, **_failures(faults)}
        page = Page(
            **{name: int(value) for name, value in arguments.items() if name not in others}
        )  # 20.0 is an integer
        return tools[tool](page, **others)

    def _info(self, file: str | None = None) -> _Answer:
        one, trace = self._open(file)
        captures = [str(path) for path in captures_beside(expand([one.path]), self._service.reading.graph_captures)]
        held = overview_document(summarise(trace), not_answered(trace), recordings(trace, captures))
        names = {"files": self._service.aliases} if len(self._service.inputs) > 1 else {}
        return {**names, "file": one.alias, **brief_contents(held), **coverage_of(self._view(one, trace), notes=True)}

    def _findings(self, page: Page, file: str | None = None, serving_phase: str | None = None) -> _Answer:
        one, trace = self._open(file)

        def compute() -> _Kept:
            captures = captures_beside(expand([one.path]), self._service.reading.graph_captures)
            frames = self._view(one, trace, serving_phase=serving_phase)
            advice = advise(frames, captures=[str(path) for path in captures])
            bounds = verdict(frames, advice)
            head = {"verdict": plain_sentences([bounds.sentence])[0]} if bounds else {}
            rows = documents(advice)
            sentences = plain_sentences([str(row["sentence"]) for row in rows])
            in_plain = [{**row, "sentence": text} for row, text in zip(rows, sentences, strict=True)]
            return {"file": one.alias, **head, **coverage_of(frames)}, in_plain

        return self._page_of(("findings", one.alias, serving_phase), compute, page)

    def _what_if(
        self,
        page: Page,
        file: str | None = None,
        steps: str | None = None,
        serving_phase: str | None = None,
        **changes: object,
    ) -> _Answer:
        one, trace = self._open(file)

        def compute() -> _Kept:
            frames = self._view(one, trace, steps, serving_phase)
            answer = what_if(frames, changes_by_name(changes)).document()
            rows = [*answer.pop("alone"), answer.pop("together")]
            return {"file": one.alias, **answer, **coverage_of(frames)}, rows

        return self._page_of(("what_if", one.alias, steps, serving_phase, json_text(changes)), compute, page)

    def _analyze(
        self,
        page: Page,
        analysis: str,
        file: str | None = None,
        steps: str | None = None,
        serving_phase: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> _Answer:
        one, trace = self._open(file)

        def compute() -> _Kept:
            frames = self._view(one, trace, steps, serving_phase)
            answer = result(frames, analysis)
            table, unknown = select_columns(answer.table, columns)
            head = {"file": one.alias, "analysis": answer.analysis.id, "title": answer.analysis.title}
            beside = coverage_of(frames, answer)
            return {**head, "units": units(table.columns, answer.columns), **unknown, **beside}, table

        key = ("analyze", one.alias, analysis, steps, serving_phase, tuple(columns or ()))
        return self._page_of(key, compute, page)

    def _query(
        self, page: Page, sql: str, file: str | None = None, steps: str | None = None, serving_phase: str | None = None
    ) -> _Answer:
        one, trace = self._open(file)

        def compute() -> _Kept:
            limits = QueryLimits(self._service.timeout_s)
            table = answered(trace, sql, steps=steps, serving_phase=serving_phase, limits=limits)
            beside = coverage_of(self._view(one, trace, steps, serving_phase))
            return {"file": one.alias, "steps_are_of": "analyses; the trace's own tables hold all", **beside}, table

        return self._page_of(("query", one.alias, sql, steps, serving_phase), compute, page)

    def _compare(
        self,
        page: Page,
        before: str,
        after: str,
        level: str | None = None,
        steps: str | None = None,
        serving_phase: str | None = None,
        *,
        per_input: bool = False,
    ) -> _Answer:
        sides = [self._open(before), self._open(after)]

        def compute() -> _Kept:
            request = Request(steps=steps, per_input=per_input, serving_phase=serving_phase)
            comparison = of_traces([sides[0][1]], [sides[1][1]], (before, after), request).comparison
            return comparison_head(comparison), comparison_rows(comparison, level)

        return self._page_of(("compare", before, after, level, steps, serving_phase, per_input), compute, page)

    def _schema(self, page: Page, table: str | None = None) -> _Answer:
        if table is not None:
            spec = describe_tables(table)[0]
            columns = spec.pop("columns")
            assert isinstance(columns, list)  # noqa: S101 (xsp_analyze.sql makes it)
            return {**spec, **one_page(columns, page, key="columns")}
        tables = [{"name": spec["name"], "doc": spec["doc"]} for spec in describe_tables()]
        analyses = [{"id": one.id, "title": one.title} for one in all_analyses()]
        return {"tables": tables, **one_page(analyses, page, key="analyses")}

    def _open(self, alias: str | None) -> tuple[Named, Trace]:
        """The input of that name and its trace; null: the only one."""
        one = self._find(alias)
        state = _state(one)
        if one.alias not in self._traces or self._traces[one.alias][0] != state:
            service = self._service
            self._kept.clear()
            self._traces[one.alias] = state, load([one.path], service.reading, lambda _: None, cache=service.cache)
            if len(self._traces) > _OPEN_AT_ONCE:
                self._traces.popitem(last=False)
        self._traces.move_to_end(one.alias)
        return one, self._traces[one.alias][1]

    def _view(self, one: Named, trace: Trace, steps: str | None = None, serving_phase: str | None = None) -> StepView:
        """The trace over these steps, with what the answer before this one worked out of it if that was of the same."""
        key = (one.alias, steps, serving_phase)
        if self._seen is None or self._seen[0] != key or self._seen[1].trace is not trace:
            self._seen = key, StepView.of(trace, steps, serving_phase)
        return self._seen[1]

    def _find(self, alias: str | None) -> Named:
        inputs = {one.alias: one for one in self._service.inputs}
        if alias is None and len(inputs) == 1:
            return self._service.inputs[0]
        if alias not in inputs:
            raise XspError(f"there is no input {alias!r}", advice=f"Name one of {', '.join(inputs)}")
        return inputs[alias]

    def _page_of(self, key: object, find_all: Callable[[], _Kept], page: Page) -> _Answer:
        if key not in self._kept:
            with noting_faults() as faults:
                head, rows = find_all()
            self._kept[key] = {**head, **_failures(faults)}, rows
            if len(self._kept) > _KEPT_ANSWERS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        head, rows = self._kept[key]
        return {**head, **one_page(rows, page)}


def _failures(faults: Sequence[FaultError]) -> _Answer:
    """What an answer is without because it failed, in sentences."""
    return {"failed": plain_sentences(map(str, faults))} if faults else {}


def _state(one: Named) -> _State:
    """Tells a file that was written anew from the one that was read."""
    return [
        (status.st_ino, status.st_size, status.st_mtime_ns) for path in expand([one.path]) for status in [path.stat()]
    ]
