"""`xsp top`: the layers and kernels that take most, at a glance."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable, Iterator
from io import StringIO
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.arguments import Inputs, ServingPhase
from xsp.cli.output import in_color, print_text
from xsp.cli.progress import Progress
from xsp.cli.reading_options import reads_input
from xsp.opening import load
from xsp.reading import Reading

if TYPE_CHECKING:
    import polars as pl
    from rich.text import Text

    from xsp_analyze.pages.report.answers import Answers
    from xsp_analyze.render.top import Entry, Ranking

__all__ = ["top"]


@reads_input()
def top(
    inputs: Inputs,
    *,
    count: Annotated[int, typer.Option("-n", "--top", min=1, help="Most layers and kernels to show.")] = 10,
    serving_phase: ServingPhase = None,
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Show the layers and kernels that take most time, with their shares.

    Examples: `xsp top trace.json.gz`, `xsp top job.xsp -n 25`.
    """
    from xsp_analyze.pages.report.answers import Answers  # noqa: PLC0415
    from xsp_analyze.render.top import ranking_lines  # noqa: PLC0415 (--help must not wait for polars)

    with Progress() as progress:
        answers = Answers(load(inputs, reading, progress.note, cache=cache), serving_phase)
        progress.note("ranking")
        rankings = list(_rankings(answers))
    width = shutil.get_terminal_size((100, 24)).columns
    print_text(textwrap.fill(_head(answers, rankings), width))
    full = max((r.largest_share for r in rankings), default=1.0)
    for ranking in rankings:
        print_text("\n" + _printed(ranking_lines(ranking, count, width, full), width))


def _head(answers: Answers, rankings: list[Ranking]) -> str:
    """What times are of, in one line."""
    from xsp_analyze.render.units import duration  # noqa: PLC0415

    if not rankings and answers.summary.attributed:
        return "Nothing to rank: the trace says of no device work how long it took."
    if not rankings:
        return f"Nothing to rank: the trace holds neither layers with a latency nor device work ({answers.basis})."
    total_ns = rankings[0].whole_ns
    what = "of device time" if answers.summary.attributed else "in layers on the host (no device work was recorded)"
    return f"{duration(total_ns)} {what}, {answers.basis}"


def _rankings(answers: Answers) -> Iterator[Ranking]:
    """Layers and kernels by device time; where no device worked, layers by latency."""
    from xsp_analyze.render.top import Ranking  # noqa: PLC0415

    kernels = _table(answers, "A10")
    if kernels is not None and kernels["duration_ns"].null_count() == kernels.height:
        return
    if kernels is None:
        layers = _table(answers, "A02")
        if layers is not None and layers["latency_ns"].sum():
            entries = _entries(layers, "latency_ns", _layer_name)
            yield Ranking("Layers by latency", entries, sum(e.time_ns for e in entries))
        return
    total_ns = float(kernels["duration_ns"].sum() or 0)
    layers = _table(answers, "A11")
    if layers is not None:
        entries = _entries(layers, "kernel_duration_ns", _layer_name)
        yield Ranking("Layers by device time", entries, total_ns, "outside every layer")
    yield Ranking("Kernels by device time", _entries(kernels, "duration_ns", _kernel_name), total_ns)


def _table(answers: Answers, identity: str) -> pl.DataFrame | None:
    answer = answers.of(identity)
    return None if isinstance(answer, str) or answer.table.is_empty() else answer.table


def _entries(table: pl.DataFrame, by: str, name: Callable[[dict[str, object]], tuple[str, str]]) -> list[Entry]:
    """The rows with a time, longest first."""
    from xsp_analyze.render.top import Entry  # noqa: PLC0415

    ranked = table.drop_nulls(by).sort(by, descending=True, maintain_order=True)
    named = ((*name(row), float(row[by])) for row in ranked.iter_rows(named=True) if row[by] > 0)
    return [Entry(text, time, before) for before, text, time in named]


def _layer_name(row: dict[str, object]) -> tuple[str, str]:
    """Its index, and its name with its type where that says more."""
    name, kind = row["layer_name"] or "-", row["layer_type"]
    more = f" ({kind})" if kind and not str(name).startswith(str(kind)) else ""
    return f"{'-' if row['layer_index'] is None else row['layer_index']:>4}  ", f"{name}{more}"


def _kernel_name(row: dict[str, object]) -> tuple[str, str]:
    """How often it ran, and its name."""
    count = row["count"]
    return f"{count:>7,.6g}x  " if isinstance(count, int | float) else " " * 10, str(row["kernel_name"])


def _printed(lines: Iterator[Text], width: int) -> str:
    from rich.console import Console  # noqa: PLC0415

    out = StringIO()
    console = Console(
        file=out, width=width, force_terminal=in_color(), no_color=not in_color(), highlight=False, markup=False,
        color_system="standard" if in_color() else None, emoji=False,
    )  # fmt: skip
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    return out.getvalue().rstrip("\n")
