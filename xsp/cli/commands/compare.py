"""`xsp compare`: two captures of the same work beside each other, and rules that fail a build."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import ServingPhase, reads_input
from xsp.cli.output import check_output, note, print_bytes, write_file
from xsp.cli.progress import Progress
from xsp.comparing import ALONE, Request
from xsp.comparing import comparisons as compared
from xsp.opening import expand
from xsp.reading import Reading

if TYPE_CHECKING:
    from xsp_analyze.compare.rules import Rule, Several

__all__ = ["Formats", "compare", "stdout_bytes", "write_files"]

_IN_SUMMARY = 5


class Formats(StrEnum):
    """What `-f` takes."""

    TABLE = "table"
    JSON = "json"
    MD = "md"


def write_files(comparisons: Several, junit: Path | None, markdown: Path | None, html: Path | None) -> None:
    """Writes the files that were asked for."""
    from xsp_analyze.pages.compare.files import render_junit  # noqa: PLC0415

    if junit is not None:
        write_file(junit, render_junit(comparisons.compared))
    if markdown is not None:
        write_file(markdown, _markdown(comparisons, _IN_SUMMARY).encode())
    if html is not None:
        write_file(html, _page(comparisons).encode())


def _page(comparisons: Several) -> str:
    from xsp_analyze.pages.compare.page import page, page_of_several  # noqa: PLC0415

    one = comparisons.compared[0]
    return page_of_several(comparisons) if _is_batch(comparisons) else page(one.comparison, one.outcomes)


def _markdown(comparisons: Several, rows: int | None) -> str:
    from xsp_analyze.pages.compare import files  # noqa: PLC0415

    if _is_batch(comparisons):
        return files.markdown_of_several(comparisons)
    return files.markdown(comparisons.compared[0].comparison, comparisons.compared[0].outcomes, rows=rows)


def _is_batch(comparisons: Several) -> bool:
    return comparisons.compared[0].name != ALONE


def stdout_bytes(comparisons: Several, output_format: str, rows: int | None) -> bytes:
    """What goes to stdout."""
    from xsp_analyze.pages.compare import files  # noqa: PLC0415
    from xsp_analyze.pages.compare.files import render, render_several  # noqa: PLC0415

    if output_format == Formats.MD:
        return _markdown(comparisons, rows).encode()
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    one = comparisons.compared[0]
    if output_format == Formats.JSON:
        content = render_several(comparisons) if _is_batch(comparisons) else render(one.comparison, one.outcomes)
    elif _is_batch(comparisons):
        content = files.terminal_of_several(comparisons, width=width)
    else:
        content = files.terminal(one.comparison, one.outcomes, width=width, rows=rows)
    return content.encode()


_ROWS = 10
_RULES = "Failing a build"
_BASELINES = "Baselines"
_RULE_BROKEN = 1
_INCONCLUSIVE = 3
_BASELINE_FILE = Path("baselines.toml")
_TWO = 2


@reads_input(only=("layer_source", "model_ranges", "layer_ranges", "graph_captures", "nsys", "device"))
def compare(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="[BEFORE] AFTER",
            help="Two traces, bundles, run sets or folders of ranks. With --baseline only AFTER.",
            show_default=False,
        ),
    ],
    *,
    output_format: Annotated[Formats, typer.Option("-f", "--output-format", help="How the answer is written.")] = (
        Formats.TABLE
    ),
    rows: Annotated[int, typer.Option("--rows", min=0, help="Most rows of each table; 0 for all.")] = _ROWS,
    also_before: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT", help="Another capture of BEFORE. May be given several times.", show_default=False
        ),
    ] = None,
    also_after: Annotated[
        list[str] | None,
        typer.Option(metavar="INPUT", help="Another capture of AFTER. May be given several times.", show_default=False),
    ] = None,
    per_input: Annotated[
        bool, typer.Option("--per-input", help="Divide times by the batch size, to compare different ones.")
    ] = False,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            metavar="mean|all",
            help="mean: a mean step (what you get where there are steps); all: whole traces.",
            show_default=False,
        ),
    ] = None,
    serving_phase: ServingPhase = None,
    run_noise: Annotated[
        float | None,
        typer.Option(
            "--run-noise",
            metavar="PERCENT",
            min=0.0,
            help="What captures of the same work differ by (standard deviation), where one a side is given. Without it"
            " 1 on a device, 5 on the host, or more where the rows scatter more.",
            show_default=False,
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="RULE",
            help="""Exit with 1 where this holds, as in 'model.latency > +3%' or 'kernel["*gemm*"].time > +1ms'."""
            " May be given several times.",
            show_default=False,
            rich_help_panel=_RULES,
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Rules go by estimates alone, noise or not.", rich_help_panel=_RULES)
    ] = False,
    fail_on_inconclusive: Annotated[
        bool,
        typer.Option(
            "--fail-on-inconclusive",
            help="Exit with 3 where no rule is broken, but of one (without rules: of latency) it cannot be told.",
            rich_help_panel=_RULES,
        ),
    ] = False,
    junit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the rules' outcomes as JUnit XML.", show_default=False, rich_help_panel=_RULES
        ),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a summary for a pull request.", show_default=False, rich_help_panel=_RULES
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write one HTML page that opens anywhere, with a waterfall.", show_default=False
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Take BEFORE from the file of baselines.",
            show_default=False,
            rich_help_panel=_BASELINES,
        ),
    ] = None,
    save_baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Remember AFTER (alone: the only INPUT) and its other captures under this name, unless a rule is"
            " broken (or, with --fail-on-inconclusive, left open).",
            show_default=False,
            rich_help_panel=_BASELINES,
        ),
    ] = None,
    baselines: Annotated[
        Path, typer.Option(metavar="FILE", help="The file of baselines.", rich_help_panel=_BASELINES)
    ] = _BASELINE_FILE,
    reading: Reading,
    cache: Cache | None,
) -> int:
    """Say what became slower or faster between two captures of the same work, and what explains the difference.

    Exit status: 0; 1 where a rule of --fail-on is broken; 2 where inputs or rules cannot be used; 3 where
    --fail-on-inconclusive was given and noise leaves it open.

    Example: `xsp compare before.json.gz after.json.gz`

    Example: `xsp compare --baseline main new.xsp --fail-on 'model.latency > +3%' --markdown summary.md`
    """  # fmt: skip
    rules = _rules(fail_on or ())
    before, after = _sides_by_name(inputs, baseline, save_baseline, baselines, also_before or (), also_after or ())
    outputs = [path for path in (junit, markdown, html) if path]
    for number, path in enumerate(outputs):
        refuse_stdout = "where the comparison itself is written (-f chooses how)"
        check_output(path, [*before, *after, *reading.files, baselines], refuse_stdout=refuse_stdout)
        _check_apart(path, outputs[:number])
    if save_baseline:
        check_output(baselines, [*before, *after, *reading.files])
    if not before:
        _save(baselines, save_baseline, after)
        return 0
    request = Request(reading, cache, steps, per_input, run_noise, rules, strict, serving_phase)
    with Progress() as progress:
        comparisons = compared(before, after, baseline, request, progress.note)
        write_files(comparisons, junit, markdown, html)
        content = stdout_bytes(comparisons, output_format, rows or None)
    print_bytes(content)
    status = _RULE_BROKEN if comparisons.any_violated else 0
    if fail_on_inconclusive and comparisons.any_undecided and not status:
        status = _INCONCLUSIVE
    if save_baseline and not status:
        _save(baselines, save_baseline, after)
    return status


def _check_apart(path: Path, others: Sequence[Path]) -> None:
    from xsp_model import XspError  # noqa: PLC0415

    is_new = path.is_file() or not path.exists()  # a device takes one after the other
    if is_new and os.path.realpath(path) in map(os.path.realpath, others):
        raise XspError("two outputs have this name", path=path, advice="Choose a name for each")


def _rules(texts: Sequence[str]) -> list[Rule]:
    if not texts:
        return []
    from xsp_analyze.compare.rules import parse  # noqa: PLC0415 (--help must not wait for polars)

    return [parse(files) for files in texts]


def _sides_by_name(
    inputs: Sequence[str],
    baseline: str | None,
    save_baseline: str | None,
    file: Path,
    also_before: Sequence[str],
    also_after: Sequence[str],
) -> tuple[list[str], list[str]]:
    """The captures of each side as the user named them; none before where AFTER is only to be remembered."""
    from xsp_analyze.compare.rules import read  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415

    if baseline is not None:
        saved = read(file)
        if baseline not in saved:
            raise XspError(
                f"there is no baseline {baseline!r}", path=file, advice=f"It has {', '.join(saved) or 'none'}"
            )
        if len(inputs) != 1:
            raise XspError("with --baseline there is one input, AFTER", advice="Further captures go to --also-after")
        return [*saved[baseline].inputs, *also_before], [*inputs, *also_after]
    if len(inputs) == _TWO:
        return [inputs[0], *also_before], [inputs[1], *also_after]
    if len(inputs) == 1 and save_baseline and not also_before:
        return [], [*inputs, *also_after]
    raise XspError(
        f"xsp compare takes two inputs, BEFORE and AFTER, and was given {len(inputs)}",
        advice="Further captures of a side go to --also-before and --also-after; a baseline is named with --baseline",
    )


def _save(file: Path, name: str | None, inputs: Sequence[str]) -> None:
    """Adds the baseline to the file; its paths are kept relative to the file, so that both may move together."""
    from xsp_analyze.compare.rules import read, with_baseline  # noqa: PLC0415

    paths = [path for files in inputs for path in expand([files])]
    if file.exists():
        read(file)
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    kept = [Path(os.path.relpath(path, file.parent)).as_posix() for path in paths]
    write_file(file, with_baseline(old, name or "", kept, "").encode())
    note(f"{file}: baseline {name} is {', '.join(kept)}")
