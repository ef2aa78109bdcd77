"""What each tool answers: what the command of that name does, a page of it, with what the numbers cover."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xsp.agents.paging import Page, Rows, one_page, plain_sentences
from xsp.agents.service import Named, Service
from xsp.agents.shortened import brief_contents, comparison_head, comparison_rows, coverage_of, select_columns, units
from xsp.api.overview import document, not_answered
from xsp.beside import captures_beside
from xsp.comparing.runs import Request, of_traces
from xsp.opening import expand, load
from xsp_analyze.catalog import all_analyses, result
from xsp_analyze.faults import FaultError, noting_faults
from xsp_analyze.findings import advise, verdict
from xsp_analyze.findings.recording import recordings
from xsp_analyze.render.findings import documents
from xsp_analyze.schema import describe_tables
from xsp_analyze.service.contents import summarise
from xsp_analyze.sql import QueryLimits
from xsp_analyze.sql import query as answered
from xsp_analyze.trace.step_view import StepView
from xsp_model import Trace, XspError

__all__ = ["Answers"]

_OPEN_AT_ONCE = 3
_KEPT_ANSWERS = 8
_Answer = dict[str, object]
_State = Sequence[tuple[int, int, int]]
_Kept = tuple[_Answer, Rows]


class Answers:
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
        held = document(summarise(trace), not_answered(trace), recordings(trace, captures))
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
            assert isinstance(columns, list)  # noqa: S101 (xsp_analyze.schema makes it)
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
