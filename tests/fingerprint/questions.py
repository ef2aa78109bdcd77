"""What a trace is asked, once it is the bundle `trace.xsp`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.fingerprint.command import xsp

if TYPE_CHECKING:
    from tests.fingerprint.recorder import Recorder

__all__ = ["ask"]

_EXPORTS = ("chrome", "jaeger", "speedscope", "graphml")
_FIGURES = ("A10", "A06", "B03")
_QUERIES = (
    "select level, count(*) as n, sum(duration_ns) as total_ns from spans group by level order by level",
    "select name, start_ns, duration_ns, step, phase from spans order by start_ns, duration_ns, name limit 20",
    "select * from A10 limit 20",
    "select * from ledger",
)


def ask(recorder: Recorder, *, short: bool) -> None:
    """Records every answer; where `short`, those of the default mode and one of each kind."""
    _analyses(recorder, short=short)
    _texts(recorder, short=short)
    _exports(recorder, short=short)


def _analyses(recorder: Recorder, *, short: bool) -> None:
    """All analyses: in each mode as JSON (the default is mean, or all without steps), in the default as other forms."""
    modes: dict[str, tuple[str, ...]] = {"default": ()}
    if not short:
        modes = {"all": ("--steps", "all"), "mean": ("--steps", "mean"), "each": ("--steps", "each")}
        modes["one"] = ("--steps", _first_step())
    for mode, options in modes.items():
        _analyze(recorder, f"{mode}.json", "-f", "json", *options)
    for form in () if short else ("csv", "md", "parquet"):
        _analyze(recorder, f"default.{form}", "-f", form)
    if not short:
        recorder.run("analyze/default.table", "analyze", "trace.xsp", "--rows", "20")


def _analyze(recorder: Recorder, step: str, *options: str) -> None:
    folder = Path("answers", step)
    recorder.run(f"analyze/{step}", "analyze", "trace.xsp", "-o", str(folder), *options, output=folder)


def _first_step() -> str:
    """The number of the trace's first step; 0, which is refused, where it has none."""
    answer = xsp(["query", "trace.xsp", "select min(step) as step from spans", "-f", "csv"]).stdout.split()
    return answer[1] if len(answer) > 1 and answer[1].isdigit() else "0"


def _texts(recorder: Recorder, *, short: bool) -> None:
    for form in ("json",) if short else ("text", "md", "json"):
        recorder.run(f"findings.{form}", "findings", "trace.xsp", "-f", form)
    recorder.run("top", "top", "trace.xsp")
    recorder.run("report", "report", "trace.xsp", "-o", "report.html", output=Path("report.html"))
    for number, query in enumerate(_QUERIES):
        for form in ("json",) if short else ("table", "csv", "json"):
            recorder.run(f"query{number}.{form}", "query", "trace.xsp", query, "-f", form)


def _exports(recorder: Recorder, *, short: bool) -> None:
    for form in _EXPORTS[:1] if short else _EXPORTS:
        file = Path(f"export.{form}")
        recorder.run(f"export.{form}", "export", "trace.xsp", "--to", form, "-o", str(file), output=file)
    if not short:
        options = ("--to", "chrome", "--steps", _first_step(), "--levels", "layer,kernel")
        file = Path("part.json")
        recorder.run("export.part", "export", "trace.xsp", *options, "-o", str(file), output=file)
    for analysis in _FIGURES[:1] if short else _FIGURES:
        file = Path(f"{analysis}.svg")
        recorder.run(f"figure.{analysis}", "figure", "trace.xsp", "-a", analysis, "-o", str(file), output=file)
