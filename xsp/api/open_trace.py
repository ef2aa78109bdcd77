"""An open trace: what one asks of it in Python, and how its answers show themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import EnumType
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, overload

import polars as pl

from xsp.api.overview import Info, info_of
from xsp.cache.cache import Cache
from xsp.opening import load
from xsp.reading import Option, as_declared, defaults, option_types, options, reading_of, takes
from xsp_analyze import core
from xsp_analyze.catalog import all_analyses, result
from xsp_analyze.faults import noting_faults
from xsp_analyze.needs import holds
from xsp_analyze.render import html, terminal
from xsp_analyze.render.findings import as_text, gain_of
from xsp_analyze.sql import table_of
from xsp_analyze.text.table import of_rows
from xsp_analyze.trace.step_view import StepView
from xsp_analyze.trace.trace_view import TraceView
from xsp_model.bundle import fault_sentence
from xsp_model.errors import XspError
from xsp_model.output_files import unwritable, write_file
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    import os
    from typing import Self

    from xsp.api.comparing import ComparedTraces
    from xsp_analyze.findings.advice import Advice
    from xsp_analyze.what_if.answer import WhatIf
    from xsp_model import Trace

__all__ = ["Findings", "OpenTrace", "Result", "open"]


# An analysis's answer as Python and notebooks show it.
class Result(core.Result):
    """An analysis's answer: the table with its columns, where it comes from, and what it does not cover."""

    @classmethod
    def of(cls, answer: core.Result) -> Self:
        """The answer, able to show itself."""
        return cls(answer.analysis, answer.table, answer.columns, answer.ledger_of, answer.provenance_of)

    def __str__(self) -> str:
        """The table that `xsp analyze` prints."""
        return terminal.render(self)

    __repr__ = __str__  # what a Python prompt shows

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows in units for people, and what they do not cover."""
        return html.result(self)


@dataclass(frozen=True, repr=False)
class OpenTrace:
    """A trace that `open` gave; `trace` is the span tree itself, for code that wants Arrow tables or a graph."""

    trace: Trace

    @property
    @fault_sentence()
    def name(self) -> str:
        """The file it was read from, and how many more there are."""
        if self.trace.origin is not None:
            return self.trace.origin.name
        files = [str(file) for file in self.trace.frame("runs")["source_path"].unique(maintain_order=True)]
        return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more" if files else "an empty trace"

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables, each of which `table` and `scan` take and `sql` knows."""
        return tuple(TABLES)

    @takes(name=str)
    @fault_sentence()
    def table(self, name: str) -> pl.DataFrame:
        """A whole table; `.to_pandas()` and `.to_arrow()` give others. Times are int64 ns, unknown is null."""
        return self.scan(name).collect()

    @takes(name=str)
    def scan(self, name: str) -> pl.LazyFrame:
        """A table of which polars reads only what a query uses: for large bundles. XspError: no such table."""
        return table_of(self.trace, name)

    @takes(query=str, steps=str | int | None, serving_phase=str | None, timeout_s=float | None)
    @fault_sentence()
    def sql(
        self,
        query: str,
        *,
        steps: str | int | None = None,
        serving_phase: str | None = None,
        timeout_s: float | None = 60,
    ) -> pl.DataFrame:
        """The answer to one SELECT over the tables and over analyses by their id; see docs/sql.md.

        XspError where it takes longer than `timeout_s` (null: any time), or most of the memory that is free.
        """
        from xsp_analyze.sql import QueryLimits  # noqa: PLC0415 (only where SQL is spoken)
        from xsp_analyze.sql import query as answer  # noqa: PLC0415

        chosen = None if steps is None else str(steps)
        return answer(self.trace, query, steps=chosen, serving_phase=serving_phase, limits=QueryLimits(timeout_s))

    @fault_sentence()
    def info(self) -> Info:
        """What the trace holds: runs, levels, steps, devices, and how much device time has a layer."""
        return info_of(self.trace)

    @fault_sentence()
    def analyses(self) -> pl.DataFrame:
        """Every analysis: id, title, whether this trace has what it needs, and what that is."""
        frames = StepView.of(self.trace)
        rows = [
            (
                one.id,
                one.title,
                all(holds(frames.of_trace, need) for need in one.needs),
                [str(need) for need in one.needs],
            )
            for one in all_analyses()
        ]
        return pl.DataFrame(rows, schema=["id", "title", "answerable", "needs"], orient="row")

    @takes(analysis=str, steps=str | int | None, serving_phase=str | None)
    @fault_sentence()
    def analyze(self, analysis: str, *, steps: str | int | None = None, serving_phase: str | None = None) -> Result:
        """One analysis, by its id (`A10`).

        Args:
            analysis: An id that `analyses` lists, however it is capitalised.
            steps: `mean` (what you get where the trace has steps), `all`, `each`, or a step's number.
            serving_phase: Of a server's trace only steps of `prefill`, `decode`, `mixed` or `diffusion`.

        Raises:
            XspError: There is no such analysis, step or phase, or the trace lacks what the analysis needs.
        """
        frames = StepView.of(self.trace, None if steps is None else str(steps), serving_phase)
        return Result.of(result(frames, analysis))

    @takes(steps=str | int | None, serving_phase=str | None)
    @fault_sentence()
    def findings(self, *, steps: str | int | None = None, serving_phase: str | None = None) -> Findings:
        """What is worth doing next, each with its evidence; doubts about the numbers last.

        Of the mean step, or of what `steps` says: `all` or the number of a step.
        """
        from xsp_analyze.findings import advise, verdict  # noqa: PLC0415
        from xsp_analyze.service import view_of_one  # noqa: PLC0415

        with noting_faults() as faults:
            view = view_of_one(self.trace, serving_phase, None if steps is None else str(steps))
            advice = advise(view)
            bounds = verdict(view, advice)
        return Findings(advice, [str(fault) for fault in faults], bounds.sentence if bounds else "")

    @fault_sentence()
    def slack(self) -> pl.DataFrame:
        """How much later each device activity could end without its job ending later: span_id, slack_ns."""
        from xsp_analyze.what_if.path import slack  # noqa: PLC0415

        return slack(TraceView(self.trace))

    @fault_sentence()
    def what_if(
        self,
        *,
        steps: str | int | None = None,
        serving_phase: str | None = None,
        **changes: Any,  # noqa: ANN401
    ) -> WhatIf:
        """What changes would gain, each alone and together: `scale=["class:attention=0.5"]`, `input=0`, `host=0.5`, ...

        They are named as the options of `xsp what-if` are, with underscores. `.document()` is the answer as JSON.
        """
        from xsp_analyze.service import view_of_one  # noqa: PLC0415
        from xsp_analyze.what_if.answer import what_if  # noqa: PLC0415
        from xsp_analyze.what_if.changes import changes_by_name  # noqa: PLC0415

        view = view_of_one(self.trace, serving_phase, None if steps is None else str(steps))
        return what_if(view, changes_by_name(changes))

    @takes(steps=str | None, per_input=bool, serving_phase=str | None)
    @fault_sentence()
    def compare(
        self,
        after: OpenTrace,
        *,
        steps: str | None = None,
        per_input: bool = False,
        serving_phase: str | None = None,
    ) -> ComparedTraces:
        """What changed from this trace to another: model, layers, operators and kernels, with intervals.

        Args:
            after: The other side, such as the new version or the other GPU.
            steps: `mean` or `all`; without it the mean step, where the traces have steps.
            per_input: Compare times per input, for sides of different batch sizes.
            serving_phase: Of servers' traces only steps of this phase.

        Raises:
            XspError: The sides cannot be set beside each other at all. Whether they did the same work is told by
                `comparable` and `reasons` instead.
        """
        from xsp.api.comparing import compare_traces  # noqa: PLC0415 (only where two are compared)

        after = as_declared(OpenTrace, "after", after)
        names = (self.name, after.name)
        return compare_traces(
            self.trace, after.trace, names=names, steps=steps, per_input=per_input, serving_phase=serving_phase
        )

    @takes(path=Path, steps=str | int | None, serving_phase=str | None)
    @fault_sentence()
    def report(
        self,
        path: str | os.PathLike[str] = "report.html",
        *,
        steps: str | int | None = None,
        serving_phase: str | None = None,
    ) -> Path:
        """Writes the report, one HTML page that needs no network, and says where; `steps` as in `findings`."""
        from xsp_analyze.pages.report.page import render  # noqa: PLC0415

        write_file(Path(path), render(self.trace, serving_phase, None if steps is None else str(steps)).encode())
        return Path(path)

    @takes(path=Path, to=str, step=int | None, levels=tuple[str, ...], serving_phase=str | None)
    @fault_sentence()
    def export(
        self,
        path: str | os.PathLike[str],
        *,
        to: str,
        step: int | None = None,
        levels: Sequence[str] = (),
        serving_phase: str | None = None,
    ) -> Path:
        """Writes the trace for another program, and says where; compressed where the name ends in .gz.

        Args:
            path: The file to write; for `arrow` the folder.
            to: `perfetto`, `chrome`, `jaeger`, `otlp`, `speedscope`, `graphml` or `arrow`.
            step: Only this step.
            levels: Only these levels, such as `["layer", "kernel"]`.
            serving_phase: Of a server's trace only steps of this phase.

        Raises:
            XspError: No such format, step or level, or the file cannot be written.
        """
        from xsp_analyze.export import export, part_of  # noqa: PLC0415
        from xsp_analyze.export import find as format_of  # noqa: PLC0415

        target = Path(path)
        part = part_of(self.trace, step=step, levels=levels, serving_phase=serving_phase)
        export(part, format_of(to), target)
        return target

    @takes(path=Path)
    @fault_sentence()
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes a bundle (`NAME.xsp`), which opens at once, and says where."""
        from xsp_model import bundle  # noqa: PLC0415

        target = Path(path)
        try:
            bundle.write(self.trace, target)
        except OSError as error:
            raise unwritable(target, error) from error
        return target

    @takes(span_ids=tuple[int, ...] | None)
    @fault_sentence()
    def to_networkx(self, span_ids: Sequence[int] | None = None) -> Any:  # noqa: ANN401 (networkx is imported late)
        """A directed graph over the spans given, or over all; see `Trace.to_networkx`."""
        return self.trace.to_networkx(span_ids)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.trace.row_count:,} spans>"

    def _repr_html_(self) -> str:
        from xsp_analyze.render import html  # noqa: PLC0415

        return html.heading(repr(self)[1:-1]) + self.info()._repr_html_()


# Findings in Python: a sequence that knows how to show itself.
_SCHEMA = {
    "id": pl.String,
    "title": pl.String,
    "on_trust": pl.Boolean,
    "sentence": pl.String,
    "gain_ns": pl.Float64,
    "gain_share": pl.Float64,
    "rows": pl.String,
    "do": pl.String,
}


@dataclass(frozen=True)
class Findings(Sequence["Advice"]):
    """What is worth doing next: what promises most first, doubts about the numbers last.

    `failed` says, each in a sentence, what rules could not look at; `verdict` what bounds the run, empty where nothing
    was run.
    """

    advice: Sequence[Advice]
    failed: Sequence[str] = ()
    verdict: str = ""

    @overload
    def __getitem__(self, index: int) -> Advice: ...
    @overload
    def __getitem__(self, index: slice) -> Findings: ...
    def __getitem__(self, index: int | slice) -> Advice | Findings:
        return (
            Findings(self.advice[index], self.failed, self.verdict) if isinstance(index, slice) else self.advice[index]
        )

    def __len__(self) -> int:
        return len(self.advice)

    def to_polars(self) -> pl.DataFrame:
        """One row a finding; `gain_ns` is the most it can take off a step, null: unknown; `rows` an analysis's id."""
        rows = [
            (
                one.rule.id,
                one.rule.title,
                one.rule.on_trust,
                one.observation.sentence,
                None if one.gain_ns is None else float(one.gain_ns),
                one.gain_share,
                one.observation.rows or None,
                one.do,
            )
            for one in self.advice
        ]
        return pl.DataFrame(rows, schema=_SCHEMA, orient="row")

    def __str__(self) -> str:
        head = [self.verdict.removesuffix(".")] if self.verdict else []
        return as_text(self.advice, before=[*self.failed, *head])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.advice:
            return html.paragraph(str(self))
        rows = [
            (
                one.rule.title,
                "doubts the numbers" if one.rule.on_trust else gain_of(one),
                one.observation.sentence,
                one.do,
            )
            for one in self.advice
        ]
        columns = [(heading, "", False, 0) for heading in ("finding", "gain", "what was found", "what to do")]
        failed = "".join(html.paragraph(f"{sentence}.") for sentence in self.failed)
        return failed + html.table(of_rows("", columns, rows))


# From what Python code names to an open trace: inputs mean the same in Python as on the command line.


def open(  # noqa: A001 (xsp.open is what people will type)
    *inputs: str | os.PathLike[str],
    cache: bool = True,
    progress: Callable[[str], None] | None = None,
    **reading: Any,  # noqa: ANN401 (of the types that `Reading` declares)
) -> OpenTrace:
    """The one trace of all inputs: files, folders, patterns (`"rank*.json.gz"`), a bundle, or a run set, merged.

    Args:
        inputs: What `xsp` takes as INPUT; several files are the ranks of one job. `~` is the home folder.
        cache: Keep what a large file was converted to, for the next time, where the command keeps it.
        progress: Called with a few words about what is being read.
        reading: The options of `xsp.reading.Reading`.

    Raises:
        XspError: An input is missing, of no known format, or damaged; one sentence says what to do.
        TypeError: There is no such option, or an argument is of another type; the latter is an XspError too.
    """
    _SIGNATURE.bind(*inputs, **reading)
    if not inputs:
        raise XspError("nothing to open", advice='Name a file: open("trace.json.gz")')
    texts = [str(as_declared(Path, "inputs", one)) for one in inputs]
    kept_in = Cache() if as_declared(bool, "cache", cache) else None
    progress = as_declared(Callable | None, "progress", progress)
    return OpenTrace(load(texts, reading_of(reading), progress or (lambda _: None), cache=kept_in))


def _signature() -> inspect.Signature:
    """That of `open`, with the options of reading by their names."""
    written = inspect.signature(open)
    *fixed, _ = written.parameters.values()
    types = option_types()
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
        for name, default in defaults().items()
    ]
    return written.replace(parameters=[*fixed, *named])


def _docstring_with_options() -> str:
    """The docstring of `open`, with a line for each option."""
    types = option_types()
    lines = [f"    {name}: {option.help}{_form(option, types[name])}" for name, option in options().items()]
    written = inspect.cleandoc(open.__doc__ or "")
    return written.replace("    reading: The options of `xsp.reading.Reading`.", "\n".join(lines))


def _form(option: Option, kind: Any) -> str:  # noqa: ANN401 (of any type)
    """What of the value its help does not say."""
    if get_origin(kind) is tuple:
        return f" A sequence of {option.metavar}."
    if isinstance(kind, EnumType):
        return f" One of {', '.join(map(str, kind.__members__.values()))}."
    return f" A path of a {option.metavar}." if Path in get_args(kind) else ""


_SIGNATURE = _signature()
_public: Any = open
_public.__signature__ = _SIGNATURE
_public.__doc__ = _docstring_with_options()
