"""`xsp cohort`: many models and systems side by side."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.commands.analyze import Formats
from xsp.cli.options import CsvRaw, reads_input
from xsp.cli.output import check_output, check_tables_writable, in_color, note, print_bytes, write_file, write_tables
from xsp.cli.progress import Progress
from xsp.opening import load
from xsp.reading import Reading

if TYPE_CHECKING:
    from xsp.batch.unit import Unit
    from xsp_analyze.cohort.cohort import Member
    from xsp_analyze.core import Result

__all__ = ["cohort"]

_SUMMARY = "summary.json"
_ROWS_ON_SCREEN = 50


@reads_input(only=("layer_source", "model_ranges", "layer_ranges", "graph_captures", "device"))
def cohort(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="What `xsp batch` wrote, or folders of bundles, run sets and traces, at any depth.",
            show_default=False,
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE.html|DIR",
            help="Write the page over all models into this file; with -f, one file a table into this folder, or"
            " with -f xlsx one workbook.",
            show_default=False,
        ),
    ] = None,
    output_format: Annotated[
        Formats | None, typer.Option("-f", "--output-format", help="How tables are written.", show_default=False)
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="What systems cost by the hour (docs/cohort.md), for the cost of 1,000 inputs.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC=VALUE",
            help="What training is to reach, as top1=0.93: time and, with prices, cost to it, where runs recorded a"
            " training curve.",
            show_default=False,
        ),
    ] = None,
    csv_raw: CsvRaw = False,
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Put many models, systems and batch sizes side by side: latency, throughput, GPU share, bounds, similarity.

    Examples: `xsp batch traces/ -o out`, then `xsp cohort out` or `xsp cohort out -o cohort.html`.
    """
    from xsp_analyze.cohort.cohort import group_by_system  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_analyze.cohort.quality import (  # noqa: PLC0415
        NO_PRICES,
        read_prices,
        read_target,
    )
    from xsp_analyze.cohort.tables import tables  # noqa: PLC0415
    from xsp_analyze.faults import noting_faults  # noqa: PLC0415

    sources: list[str | Path] = [*inputs, *reading.files, *([prices] if prices else [])]
    if output_format is not None:
        check_tables_writable(output_format, output, sources)
    elif output is not None:
        check_output(output, sources)
    price_list = read_prices(prices) if prices else NO_PRICES
    aimed = read_target(target) if target else None
    beside = output.absolute().parent if output is not None and output_format is None else None
    with Progress() as progress:
        with noting_faults() as faults:
            systems = group_by_system(_members(inputs, reading, cache, beside, progress))
        if output is not None and output_format is None:
            from xsp_analyze.pages import blocks  # noqa: PLC0415
            from xsp_analyze.pages.cohort import render  # noqa: PLC0415

            unknown = blocks.faults_section(list(map(str, faults)))
            page = render(systems, title=_title(inputs), prices=price_list, target=aimed, before=unknown)
            write_file(output, page.encode())
            note(f"{output}: {len(systems)} rows")
            return
        results = tables(systems, price_list, aimed)
    if output is not None:
        write_tables(results, str(output_format or Formats.TABLE), output, sources, csv_raw=csv_raw)
        return
    _print(results, str(output_format or Formats.TABLE), csv_raw=csv_raw)


def _title(inputs: Sequence[str]) -> str:
    from xsp_model.errors import readable  # noqa: PLC0415 (imports the whole model)

    return f"Cohort of {', '.join(readable(Path(text).absolute().name) for text in inputs)}"


def _members(
    inputs: Sequence[str], reading: Reading, cache: Cache | None, beside: Path | None, progress: Progress
) -> list[Member]:
    """The traces of all inputs; XspError where there is none. `beside`: the folder of the page that links to them."""
    from xsp_model import XspError  # noqa: PLC0415

    batches = [text for text in inputs if (Path(text) / _SUMMARY).is_file()]
    rest = [text for text in inputs if text not in batches]
    members = [member for text in dict.fromkeys(batches) for member in _of_batch(Path(text), beside)]
    if rest:  # all at once: names tell files apart only among those that are known together
        members += _of_traces(rest, reading, cache, progress)
    if not members:
        raise XspError("no trace that could be read is there", path=", ".join(inputs))
    members = _with_distinct_names(members)
    _note_same_work(members)
    return members


def _note_same_work(members: Sequence[Member]) -> None:
    """Says which traces took the same device time to the nanosecond, and the same steps: one recording counts twice."""
    by_times: dict[tuple[object, ...], list[str]] = {}
    for member in members:
        facts = member.facts
        if facts.kernel_duration_ns and facts.speeds:
            latencies = [(speed.batch_size, speed.latency_ns) for speed in facts.speeds]
            by_times.setdefault((facts.kernel_duration_ns, *latencies), []).append(member.name)
    for first, *others in by_times.values():
        if others:
            note(f"{first} and {', '.join(others)} took the same times to the nanosecond: one recording, several times")


def _with_distinct_names(members: Sequence[Member]) -> list[Member]:
    """The members; of those of one name each with the name of its folder, else its path below the folder of all."""
    from collections import Counter  # noqa: PLC0415
    from dataclasses import replace  # noqa: PLC0415

    above = _common_steps([Path(member.path).parts[:-1] for member in members])
    namings: tuple[Callable[[Member], str], ...] = (
        lambda member: f"{Path(member.path).parent.name}-{member.name}",
        lambda member: "/".join(Path(member.path).parts[above:]),
    )
    for name in namings:
        counts = Counter(member.name for member in members)
        renamed = []
        for member in members:
            new = name(member) if counts[member.name] > 1 else member.name
            model = new if member.facts.model == member.name else member.facts.model
            renamed.append(replace(member, name=new, facts=replace(member.facts, model=model)))
        members = renamed
    return list(members)


def _common_steps(paths: Sequence[Sequence[str]]) -> int:
    """How many folders from the outermost are the same in all paths."""
    counts = (number for number, steps in enumerate(zip(*paths, strict=False)) if len(set(steps)) > 1)
    return next(counts, min(map(len, paths)))


def _of_batch(folder: Path, beside: Path | None) -> Iterator[Member]:
    """The traces that a batch did, from its summary; how many had failed is said on stderr."""
    from dataclasses import replace  # noqa: PLC0415

    from xsp.batch.pages import members, note_faults  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415

    try:
        document = json.loads((folder / _SUMMARY).read_text(encoding="utf-8"))
        members_of_batch = members(document)
        failed = sum(row["status"] == "failed" for row in document["traces"])
        same_ranks = list(map(str, document.get("same_ranks", ())))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise XspError(
            f"the summary of the batch cannot be read ({type(error).__name__}: {error})",
            path=folder / _SUMMARY,
            advice="Run xsp batch again",
        ) from error
    if failed:
        note(f"{folder}: {failed} {'trace' if failed == 1 else 'traces'} failed and are not in the cohort")
    for sentence in same_ranks:
        note(f"{folder}: {sentence}")
    note_faults(document)
    for one in members_of_batch:
        link = os.path.relpath(folder / one.report, beside) if one.report and beside else None
        yield replace(one, report=link, path=str(folder.absolute() / one.name))


def _of_traces(inputs: Sequence[str], reading: Reading, cache: Cache | None, progress: Progress) -> Iterator[Member]:
    """The traces of folders and files, read one after the other; one that cannot be is a line on stderr."""
    from xsp.batch.discover import discover  # noqa: PLC0415
    from xsp_analyze.cohort.cohort import Member  # noqa: PLC0415
    from xsp_analyze.cohort.facts import facts_of  # noqa: PLC0415
    from xsp_analyze.export.part import of_system, systems_of  # noqa: PLC0415
    from xsp_analyze.faults import FaultError, fault_of, note_fault, noting_faults  # noqa: PLC0415
    from xsp_analyze.text.doubts import double_counting  # noqa: PLC0415
    from xsp_model import LedgerKind, XspError  # noqa: PLC0415

    discovered = discover(inputs, "", ranks=False, format_name=None)
    for copy, of in discovered.copies.items():
        note(f"not read again: {copy} holds what {of} does")
    for unit in discovered.units:
        progress.note(f"reading {unit.name}")
        try:
            trace = load(unit.inputs, _reading_of(unit, reading), progress.note, cache=cache)
            systems = systems_of(trace)
            is_several = (trace.frame("ledger")["kind"].cast(str) == LedgerKind.SEVERAL_SYSTEMS).any()
            for system in systems if is_several else [None]:
                part = trace if system is None else of_system(trace, system)
                name = unit.name if system is None else f"{unit.name}: {system}"
                for sentence in double_counting(part):
                    note(f"{name}: {sentence}")
                with noting_faults(name), fault_of("The trace"):
                    facts = facts_of(part, name)
                yield Member(name, facts, path=unit.inputs[0] if system is None else f"{unit.inputs[0]}#{system}")
        except FaultError as fault:
            note_fault(FaultError(f"{unit.name}: {fault}"))
        except XspError as error:
            note(f"left out: {error}")


def _reading_of(unit: Unit, reading: Reading) -> Reading:
    """A bundle is converted already: what concerns source files does not concern it."""
    from xsp_model import bundle  # noqa: PLC0415

    beside = Reading(device=reading.device, gpu=reading.gpu, work_models=reading.work_models)
    return beside if bundle.is_bundle(Path(unit.inputs[0])) else reading


def _print(results: Sequence[Result], output_format: str, *, csv_raw: bool) -> None:
    from xsp_analyze.render import Screen, render  # noqa: PLC0415

    columns = shutil.get_terminal_size().columns
    screen = Screen(columns, color=in_color(), rows=_ROWS_ON_SCREEN) if sys.stdout.isatty() else Screen()
    content = render(results, output_format, screen, csv_raw=csv_raw, is_list=True)
    print_bytes(content, styled=output_format == "table")
