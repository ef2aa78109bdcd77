"""`xsp info`: what a trace holds."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import Inputs, reads_input
from xsp.cli.output import in_color, print_styled, print_text, thousands
from xsp.cli.progress import Progress
from xsp.opening import captures_beside, expand, load
from xsp.reading import Reading

if TYPE_CHECKING:
    from xsp_analyze.findings.recording import Recording
    from xsp_analyze.service import Summary
    from xsp_model import Trace

__all__ = ["info"]

_STEPS_IN_FULL = 8
_MAX_ABSENT = 3
_MAX_BLOCKS = 4
_LABEL_WIDTH = 13
_MIN_TEXT = 30
_NEXT = "xsp top, xsp findings, xsp report -o report.html, xsp analyze -a ID (`xsp analyses` lists them)"


class InfoFormats(StrEnum):
    """How it is written."""

    TEXT = "text"
    JSON = "json"


@reads_input()
def info(
    inputs: Inputs,
    *,
    output_format: Annotated[
        InfoFormats, typer.Option("-f", "--output-format", help="How it is written.")
    ] = InfoFormats.TEXT,
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Say what a trace holds, how much device time has a layer, and what to record for more.

    Examples: `xsp info trace.json.gz`, `xsp info runs/`.
    """
    from xsp.api.overview import document, not_answered  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_analyze.findings.recording import recordings  # noqa: PLC0415
    from xsp_analyze.service import summarise  # noqa: PLC0415

    with Progress() as progress:
        trace = load(inputs, reading, progress.note, cache=cache)
        summary, without = summarise(trace), not_answered(trace)
        blocks = _blocks(trace)
        more = recordings(trace, [str(path) for path in captures_beside(expand(inputs), reading.graph_captures)])
    if output_format is InfoFormats.JSON:
        print_text(json.dumps(document(summary, without, more), indent=2))
        return
    for label, text in (*_lines(summary), *blocks, *_absent(without), *_more(more), ("", ""), ("next", _NEXT)):
        print_styled(_labelled_line(label, text))


def _more(more: Sequence[Recording]) -> list[tuple[str, str]]:
    """What the trace has of each topic, and what to record for more of it."""
    from xsp_analyze.text.table import clean  # noqa: PLC0415

    lines = [clean(f"{one.topic}: {one.state}{f'; {one.do}' if one.do else ''}") for one in more]
    return [("recording" if not number else "", line) for number, line in enumerate(lines)]


def _labelled_line(label: str, text: str) -> str:
    """The label before the text; on a terminal the label is bold, and a long text goes on beneath itself."""
    label = f"{label:<{_LABEL_WIDTH}}"
    if not sys.stdout.isatty():
        return f"{label} {text}".rstrip()
    room = max(shutil.get_terminal_size().columns - _LABEL_WIDTH - 1, _MIN_TEXT)
    first, *more = textwrap.wrap(text, room, subsequent_indent="  ") if len(text) > room else [text]
    bold = f"\x1b[1m{label}\x1b[0m" if in_color() and label.strip() else label
    return "\n".join([f"{bold} {first}".rstrip(), *(" " * (_LABEL_WIDTH + 1) + line for line in more)])


def _blocks(trace: Trace) -> list[tuple[str, str]]:
    """What a model has several times, the largest first."""
    from xsp_analyze.frames.layers.repeated_blocks import block_sentences, repeated_blocks  # noqa: PLC0415
    from xsp_analyze.text.table import clean  # noqa: PLC0415
    from xsp_analyze.trace.trace_view import TraceView  # noqa: PLC0415

    named = block_sentences(repeated_blocks(TraceView(trace)))
    more = [f"and {thousands(len(named) - _MAX_BLOCKS)} more (xsp analyze -a B28)"] if len(named) > _MAX_BLOCKS else []
    return [("blocks" if not at else "", clean(text)) for at, text in enumerate([*named[:_MAX_BLOCKS], *more])]


def _absent(without: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    count = len({analysis for ids in without.values() for analysis in ids})
    if not count:
        return []
    first = "; ".join(list(without)[:_MAX_ABSENT])  # some have commas of their own
    more = f"; {len(without) - _MAX_ABSENT} more" if len(without) > _MAX_ABSENT else ""
    return [("not in it", f"{first}{more}: what {thousands(count)} analyses need (all: xsp info -f json)")]


def _lines(summary: Summary) -> Iterator[tuple[str, str]]:
    from xsp_analyze.text.table import clean  # noqa: PLC0415
    from xsp_analyze.text.units import or_dash  # noqa: PLC0415

    for run in summary.runs:
        yield f"run {run['run_id']}", _run(run)
    if captures := ", ".join(str(run["source_path"]) for run in summary.captures):
        yield "captures", f"{clean(captures)}: what replayed graphs belong to; nothing of it is counted"
    yield "layers from", ", ".join(summary.layer_sources) or "-"
    caveat = f"; {summary.layer_caveat}" if summary.layer_caveat and summary.layer_count else ""
    times = "time" if summary.layer_call_count == 1 else "times"
    layers = (
        f"{thousands(summary.layer_count)} with work of their own, called {thousands(summary.layer_call_count)} {times}"
    )
    yield "layers", layers + caveat
    for number, (level, count) in enumerate(summary.counts.items()):
        yield "spans" if not number else "", f"{level:<12}{thousands(count):>12}"
    yield "steps", _steps(summary)
    for device in summary.devices:
        yield f"device {or_dash(device['device_id'])}", _device(device)
    yield "window", f"{_or_unknown(summary.window_ns)}; device work within {_or_unknown(summary.device_window_ns)}"
    yield from _attribution(summary)
    yield from _ledger(summary)


def _run(run: Mapping[str, object]) -> str:
    from xsp_analyze.text.table import clean  # noqa: PLC0415
    from xsp_analyze.text.units import or_dash, size  # noqa: PLC0415

    count = run["source_bytes"]
    rank = f"rank {run['rank']} of {or_dash(run['world_size'])}" if run["rank"] is not None else None
    parts = (
        run["source_path"],
        size(count) if isinstance(count, int) else None,
        run["format"],
        run["profiler"],
        run["framework"],
        rank,
        f"captured {run['level_captured']}" if run["level_captured"] else None,
    )
    return clean(", ".join(str(p) for p in parts if p))


def _steps(summary: Summary) -> str:
    steps = summary.steps
    if not steps:
        return "none marked"
    if len(steps) <= _STEPS_IN_FULL:
        return f"{len(steps)}: {', '.join(map(str, steps))}"
    return f"{len(steps)}: {steps[0]} to {steps[-1]}"


def _device(device: Mapping[str, object]) -> str:
    from xsp_analyze.text.table import clean  # noqa: PLC0415
    from xsp_analyze.text.units import duration  # noqa: PLC0415

    time = device["duration_ns"]
    name = clean(str(device["name"])) if device["name"] else "no name in the file"
    work = f"{duration(time)} in sum" if isinstance(time, int) else "of unknown duration"
    return f"{name}: {thousands(device['activities'])} activities, {work} (run {device['run_id']})"


def _attribution(summary: Summary) -> Iterator[tuple[str, str]]:
    from xsp_analyze.text.units import share  # noqa: PLC0415

    total = summary.device_time_ns
    for number, part in enumerate(summary.attributed):
        time_ns = part.duration_ns
        of_all = share(time_ns / total) if time_ns is not None and total else "-"
        time = _or_unknown(time_ns)
        yield "device time" if not number else "", f"{part.attribution:<22}{part.count:>10,}{time:>16}{of_all:>9}"
    if not summary.attributed:
        yield "device time", "none recorded"


def _ledger(summary: Summary) -> Iterator[tuple[str, str]]:
    from xsp_analyze.text.table import clean  # noqa: PLC0415
    from xsp_analyze.text.units import count  # noqa: PLC0415

    for number, finding in enumerate(summary.findings):
        yield (
            "ledger" if not number else "",
            clean(f"{finding['severity']}: {finding['detail']} ({count(finding['count'])})"),
        )
    if not summary.findings:
        yield "ledger", "nothing else to report"


def _or_unknown(time_ns: int | None) -> str:
    from xsp_analyze.text.units import duration  # noqa: PLC0415

    return "unknown" if time_ns is None else duration(time_ns)
