"""`xsp history`: runs of the same work over time, kept, shown, and a new one held against them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import ServingPhase, reads_input
from xsp.cli.output import check_output, note, print_text, write_file
from xsp.cli.progress import Progress
from xsp.reading import Reading

if TYPE_CHECKING:
    import polars as pl

    from xsp.history.judging import Judged
    from xsp.history.store import Store
    from xsp_analyze.history.facts import Described

__all__ = ["history"]

_ADDING, _SHOWING, _GATE = "Adding runs", "Showing", "Holding a run against its history"
_RULE_BROKEN, _INCONCLUSIVE = 1, 3
_DEFAULT_RULE = "step.latency > +3%"
_ROWS = 20


class Action(StrEnum):
    """What is done with the store."""

    ADD = "add"
    SHOW = "show"
    GATE = "gate"


class HistoryFormats(StrEnum):
    """How the answer is written."""

    MD = "md"
    JSON = "json"


@reads_input(only=("layer_source", "model_ranges", "layer_ranges", "graph_captures", "nsys", "device", "gpu"))
def history(
    action: Annotated[Action, typer.Argument(help="What to do.", show_default=False)],
    store: Annotated[
        str, typer.Argument(metavar="STORE", help="A folder or URL that holds the runs.", show_default=False)
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN...]",
            help="add: traces, bundles, or what `xsp batch` wrote, each a run; gate: captures of the run.",
            show_default=False,
        ),
    ] = None,
    *,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="What to know the run by, as commit=1a2b3c; model, system, batch, phase and branch say of which series"
            " it is, where the trace does not. May be given several times.",
            show_default=False,
            rich_help_panel=_ADDING,
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When it ran, as 2026-11-27T02:00 (UTC) or seconds since 1970; else as its capture says, else now.",
            show_default=False,
            rich_help_panel=_ADDING,
        ),
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="The report that the page links to; of what `xsp batch` wrote it is known.",
            show_default=False,
            rich_help_panel=_ADDING,
        ),
    ] = None,
    serving_phase: ServingPhase = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE.html",
            help="Write the page: trends, changes, and what explains them.",
            show_default=False,
            rich_help_panel=_SHOWING,
        ),
    ] = None,
    output_format: Annotated[
        HistoryFormats,
        typer.Option("-f", "--output-format", help="How the answer is written; md for chat and mail."),
    ] = HistoryFormats.MD,
    rows: Annotated[
        int, typer.Option("--rows", min=1, help="Most changes of the summary, newest first.", rich_help_panel=_SHOWING)
    ] = _ROWS,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="RULE",
            help=f"Exit with 1 where this holds, as in '{_DEFAULT_RULE}' (which it is without) or"
            """ 'kernel_class["attention"].time > +5%'. May be given several times.""",
            show_default=False,
            rich_help_panel=_GATE,
        ),
    ] = None,
    fail_on_inconclusive: Annotated[
        bool,
        typer.Option(
            "--fail-on-inconclusive",
            help="Exit with 3 where no rule is broken, but of one it cannot be told.",
            rich_help_panel=_GATE,
        ),
    ] = False,
    reading: Reading,
    cache: Cache | None,
) -> int:
    """Keep what each run of the same work came to, show where it changed and why, and hold a new run against it.

    A store is a folder of small files, one a run: any number of machines may add to it at once.

    Exit status of gate: 0; 1 where a rule is broken; 3 where --fail-on-inconclusive was given and noise leaves it open.

    Example: `xsp history add runs/ trace.json.gz --label commit=1a2b3c --label branch=main`

    Example: `xsp history show runs/ -o history.html`

    Example: `xsp history gate runs/ new.json.gz --label branch=main --fail-on 'step.latency > +3%'`
    """  # fmt: skip
    from xsp.history.adding import labels_of, time_of  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_analyze.history.facts import Described  # noqa: PLC0415

    texts = inputs or []
    _check_inputs(action, texts)
    described = Described(labels_of(label or ()), serving_phase, report)
    when = time_of(time) if time is not None else None
    if action is Action.SHOW:
        return _show(store, output, output_format, rows)
    from xsp.history.store import Store  # noqa: PLC0415

    if action is Action.GATE:
        from xsp.history.judging import judge, parse_rule  # noqa: PLC0415

        rules = [parse_rule(text) for text in fail_on or [_DEFAULT_RULE]]
        runs = _runs(texts, described, reading, cache)
        status = _print_verdict(judge(Store(store), runs, rules, until=when), output_format)
        return status if status != _INCONCLUSIVE or fail_on_inconclusive else 0
    return _add(Store(store), texts, described, when, reading, cache)


def _check_inputs(action: Action, texts: Sequence[str]) -> None:
    from xsp_model import XspError  # noqa: PLC0415 (imports the whole model)

    if action is Action.SHOW and texts:
        raise XspError(
            "xsp history show takes a store and no runs", advice="Write: xsp history show STORE -o FILE.html"
        )
    if action is not Action.SHOW and not texts:
        raise XspError(
            f"xsp history {action} takes a store and runs", advice=f"Write: xsp history {action} STORE TRACE"
        )


def _add(
    store: Store, texts: Sequence[str], described: Described, when: object, reading: Reading, cache: Cache | None
) -> int:
    """Adds each; one that cannot be is the end of it, and those before it stay."""
    from datetime import datetime  # noqa: PLC0415

    from xsp.history.adding import add_input  # noqa: PLC0415

    at = when if isinstance(when, datetime) else None
    with Progress() as progress:
        for text in texts:
            for one in add_input(store, text, described, at, reading=reading, cache=cache, progress=progress.note):
                note(f"{one.name}: {'added' if one.is_new else 'is in the history already, and is not added again'}")
    return 0


def _show(location: str, output: Path | None, output_format: HistoryFormats, rows: int) -> int:
    from xsp.history.store import open as open_store  # noqa: PLC0415
    from xsp_analyze.history.trends import document, trends  # noqa: PLC0415

    if output is not None:
        check_output(output, [])
    store = open_store(location)
    with Progress() as progress:
        progress.note("reading runs")
        runs = store.runs()  # once, as a folder of thousands takes a while to list
        series = trends(store.facts(runs), lambda identities: store.of(identities, runs))
    left_out = list(dict.fromkeys(store.left_out))
    for sentence in left_out:
        note(sentence)
    if output is not None:
        from xsp_analyze.pages.history import render  # noqa: PLC0415 (only there)

        title = f"History of {Path(location).absolute().name}"
        write_file(output, render(series, left_out, title=title, link=lambda report: _link(report, output)).encode())
        note(f"{output}: {sum(trend.runs.height for trend in series)} runs, {len(series)} series")
    elif output_format is HistoryFormats.JSON:
        print_text(json.dumps(document(series, left_out), indent=1, ensure_ascii=False, allow_nan=False))
    else:
        from xsp_analyze.pages.history import markdown  # noqa: PLC0415

        print_text(markdown(series, left_out, rows).rstrip())
    return 0


def _link(report: str, page: Path) -> str | None:
    """Of a file its place beside the page; of a URL of the web itself; of what else nothing leads there."""
    from xsp.batch.locations import is_http, is_url  # noqa: PLC0415
    from xsp_analyze.pages.blocks import address  # noqa: PLC0415

    if is_url(report):
        return report if is_http(report) else None
    return address(os.path.relpath(report, page.absolute().parent))


def _runs(
    texts: Sequence[str], described: Described, reading: Reading, cache: Cache | None
) -> list[tuple[pl.DataFrame, str]]:
    from xsp.history.adding import facts_with_identity  # noqa: PLC0415
    from xsp.opening import load  # noqa: PLC0415

    with Progress() as progress:
        return [facts_with_identity(load([text], reading, progress.note, cache=cache), described) for text in texts]


def _print_verdict(judged: Judged, output_format: HistoryFormats) -> int:
    """Prints it; the exit status, were every rule to be decided."""
    if output_format is HistoryFormats.JSON:
        latency = judged.held.latency if judged.held else None
        document = {
            "schema_version": 1,
            "verdict": str(judged.verdict),
            "earlier_runs": judged.earlier_count,
            "missing": judged.missing or None,
            "latency": latency and {name: getattr(latency, name) for name in _LATENCY},
            "rules": [
                {"rule": o.rule.text, "verdict": str(o.verdict), "told": list(o.sentences)} for o in judged.outcomes
            ],
            "causes": judged.causes,
        }
        print_text(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print_text(judged.text)
    return _STATUSES[str(judged.verdict)]


_STATUSES = {"passed": 0, "regressed": _RULE_BROKEN, "inconclusive": _INCONCLUSIVE}
_LATENCY = ("before_ns", "after_ns", "ratio", "low", "high", "p_value", "rank_p_value", "significant")
