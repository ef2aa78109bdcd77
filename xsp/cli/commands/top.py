"""`xsp top`: the layers and kernels that take most, at a glance."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from io import StringIO
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import CsvRaw, Inputs, ServingPhase, Steps, reads_input
from xsp.cli.output import in_color, print_bytes, print_styled
from xsp.cli.progress import Progress
from xsp.opening import load
from xsp.reading import Reading

if TYPE_CHECKING:
    import polars as pl
    from rich.text import Text

    from xsp_analyze.faults import FaultError
    from xsp_analyze.render.top import Entry, Ranking
    from xsp_analyze.service import Answers

__all__ = ["top"]

_LAYER = ("layer_index", "layer_type")
_KERNEL = ("kind", "kernel_label", "count")
_OPERATOR = ("operator", "shapes", "dtypes", "roof_share")
_TIME_OF_LAYERS = {"A02": "latency_ns", "A11": "kernel_duration_ns"}
_BY_LATENCY, _BY_SELF_TIME = "layers_by_latency", "operators_by_self_time"
_MAX_CALL = 200  # characters; what the screen has no room for is cut


class TopFormats(StrEnum):
    """How it is written."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"
    MD = "md"


@reads_input()
def top(
    inputs: Inputs,
    *,
    count: Annotated[int, typer.Option("-n", "--top", min=1, help="Most layers and kernels to show.")] = 10,
    steps: Steps = None,
    serving_phase: ServingPhase = None,
    output_format: Annotated[
        TopFormats, typer.Option("-f", "--output-format", help="How it is written.")
    ] = TopFormats.TEXT,
    csv_raw: CsvRaw = False,
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Show the layers and kernels that take most time, and what could be gained.

    Examples: `xsp top trace.json.gz`, `xsp top job.xsp -n 25`.
    """
    from xsp_analyze.faults import attempt, noting_faults  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_analyze.render.top import ranking_lines  # noqa: PLC0415
    from xsp_analyze.service import Answers, roof_summary  # noqa: PLC0415
    from xsp_analyze.text.doubts import first_doubts  # noqa: PLC0415
    from xsp_analyze.text.table import clean  # noqa: PLC0415

    with Progress() as progress, noting_faults() as faults:
        answers = Answers(load(inputs, reading, progress.note, cache=cache), serving_phase, steps)
        progress.note("ranking")
        rankings = attempt("The ranking", lambda: list(_rankings(answers)), lambda _: [])
        how_far = attempt("How far it is from its roofs", lambda: roof_summary(answers), lambda _: None)
        doubts = attempt("What to know first", lambda: first_doubts(answers.per_step.of_trace), lambda _: [])
        about = {**_about(answers, how_far, faults), **({"doubts": doubts} if doubts else {})}
        head = _head(answers, rankings, faults)
        lead = [line for line in (*doubts, head, how_far) if line]
    if output_format is not TopFormats.TEXT:
        sentences = [*lead, *(f"{fault}." for fault in faults)]
        text = _in_format(output_format, rankings, count, about, sentences, csv_raw=csv_raw)
        print_bytes(text.encode(errors="backslashreplace"))
        return
    width = shutil.get_terminal_size((100, 24)).columns
    for sentence in lead:
        print_styled(textwrap.fill(clean(sentence), width))
    full = max((r.largest_share for r in rankings), default=1.0)
    for ranking in rankings:
        print_styled("\n" + _terminal_text(ranking_lines(ranking, count, width, full), width))


def _about(answers: Answers, how_far: str | None, faults: Sequence[FaultError]) -> dict[str, object]:
    """What is said once of all rankings, for programs; `failed` where they are without something."""
    answers_about = [one for one in map(answers.of, ("A11", "A10", "A02")) if not isinstance(one, str)]
    return {
        "basis": answers.basis,
        "step_count": answers.step_count,
        "in_short": how_far,
        "provenance": dict(answers_about[0].provenance) if answers_about else {},
        "ledger": answers_about[0].ledger.to_dicts() if answers_about else [],
        **({"failed": [str(fault) for fault in faults]} if faults else {}),
    }


def _in_format(
    chosen: TopFormats,
    rankings: list[Ranking],
    count: int,
    about: dict[str, object],
    sentences: list[str],
    *,
    csv_raw: bool,
) -> str:
    from xsp_analyze.render.top import as_csv, as_json, as_markdown  # noqa: PLC0415

    if chosen is TopFormats.CSV:
        return as_csv(rankings, count, raw=csv_raw)
    if chosen is TopFormats.MD:
        return as_markdown(rankings, count, sentences)
    return as_json(rankings, count, about)


def _head(answers: Answers, rankings: list[Ranking], faults: Sequence[FaultError]) -> str:
    """What times are of, in one line."""
    from xsp_analyze.text.units import duration  # noqa: PLC0415

    if not rankings and faults:
        return "Nothing to rank: what would tell it failed."
    if not rankings and answers.summary.attributed:
        return "Nothing to rank: the trace says of no device work how long it took."
    if not rankings:
        return f"Nothing to rank: the trace holds neither layers with a latency nor device work ({answers.basis})."
    total_ns = rankings[0].whole_ns
    what = "of device time"
    if rankings[0].identity in {_BY_LATENCY, _BY_SELF_TIME}:
        what = "in layers" if answers.summary.attributed else "on the host (no device work was recorded)"
    devices = len(answers.summary.devices)
    summed = f", summed over {devices} devices" if devices > 1 else ""
    return f"{duration(total_ns)} {what}{summed}, {answers.basis}"


def _rankings(answers: Answers) -> Iterator[Ranking]:
    """Layers and kernels by device time; where no device worked, layers or operators by time on the host."""
    from xsp_analyze.render.top import Ranking  # noqa: PLC0415

    kernels = _table(answers, "A10")
    if kernels is not None and kernels["duration_ns"].null_count() == kernels.height:
        return
    if kernels is None:
        yield from _on_host(answers)
        return
    total_ns = float(kernels["duration_ns"].sum() or 0)
    layers = _table(answers, "A11")
    if layers is not None:
        entries = _entries(layers, "kernel_duration_ns", _layer_name, _LAYER)
        yield Ranking("Layers by device time", entries, total_ns, "outside every layer", "layers_by_device_time")
    entries = _entries(_by_function(kernels), "duration_ns", _kernel_name, _KERNEL)
    yield Ranking("Kernels by device time", entries, total_ns, None, "kernels_by_device_time")
    operators = _table(answers, "B23")
    if operators is not None and (gains := _entries(operators, "gain_ns", _operator_name, _OPERATOR)):
        title = "Operators by device time to gain, and how much of the roof they reach"
        yield Ranking(title, gains, total_ns, None, "operators_by_gain")


def _by_function(kernels: pl.DataFrame) -> pl.DataFrame:
    """A10's rows, those of kernels that differ only in arguments of one template added up."""
    import polars as pl  # noqa: PLC0415

    from xsp_analyze.frames.kernels.kernel_classes import functions_of  # noqa: PLC0415

    rows = kernels.with_columns(functions_of(kernels))
    name = (
        pl.when(pl.len() > 1)
        .then(pl.format("{} variants of {}", pl.len(), pl.col("function").first()))
        .otherwise(pl.col("kernel_name").cast(pl.String).first())
    )
    sums = (pl.col("duration_ns", "count").sum(), name.alias("kernel_name"), pl.col("kernel_label").first())
    return rows.group_by("function", "kind", maintain_order=True).agg(sums)


def _on_host(answers: Answers) -> Iterator[Ranking]:
    """Layers by latency; operators by their own time where they are the layers, and beside ranges that are.

    Operators lie in each other, and much of what ranges hold is theirs. Where there are neither, whatever calls are
    there. Of a step (the trace, where it has none), where they fit in it.
    """
    import polars as pl  # noqa: PLC0415

    from xsp_analyze.frames.host_ranges import host_self_time  # noqa: PLC0415
    from xsp_model import LayerSource  # noqa: PLC0415

    sources = {run["layer_source"] for run in answers.summary.runs}
    operators = _table(answers, "B40") if sources <= {LayerSource.OPERATOR, LayerSource.RANGE} else None
    if operators is not None and not operators["self_ns"].sum():
        operators = None
    layers = None if operators is not None and sources == {LayerSource.OPERATOR} else _table(answers, "A02")
    if layers is not None and layers["latency_ns"].sum():
        entries = _entries(layers, "latency_ns", _layer_name, _LAYER)
        yield _of_host(answers, "Layers by latency", entries, "outside of layers", _BY_LATENCY)
        if operators is None:
            return
    calls = answers.per_step.once(host_self_time)  # of libraries, as Gloo, and the runtime too
    others_ns = calls.filter(~pl.col("is_operator"))["self_ns"].sum()
    if operators is not None and others_ns <= operators["self_ns"].sum():
        added = operators.group_by("operator", maintain_order=True).agg(pl.col("count", "self_ns").sum())
        entries = _entries(added, "self_ns", _operator_calls, ("count",))
        yield _of_host(answers, "Operators by self time", entries, "outside of operators", _BY_SELF_TIME)
    elif calls["self_ns"].sum():
        entries = _entries(calls.rename({"name": "operator"}), "self_ns", _operator_calls, ("count",))
        yield _of_host(answers, "Operators and calls by self time", entries, "outside of these", _BY_SELF_TIME)


def _of_host(answers: Answers, title: str, entries: Sequence[Entry], outside: str, identity: str) -> Ranking:
    from xsp_analyze.frames.model_time import latency_of_model  # noqa: PLC0415
    from xsp_analyze.render.top import Ranking  # noqa: PLC0415

    ranked_ns = sum(e.time_ns for e in entries)
    step_ns = float(answers.per_step.once(latency_of_model)["model_ns"].sum())
    fits = step_ns >= ranked_ns and not answers.summary.attributed
    return Ranking(title, entries, step_ns if fits else ranked_ns, outside if fits else None, identity)


def _table(answers: Answers, identity: str) -> pl.DataFrame | None:
    from xsp_analyze.frames.layers.repeated_blocks import with_equal_folded  # noqa: PLC0415

    answer = answers.of(identity)
    if isinstance(answer, str) or answer.table.is_empty():
        return None
    by = _TIME_OF_LAYERS.get(identity)
    return answer.table if by is None else with_equal_folded(answers.per_step, answer.table, by)


def _entries(
    table: pl.DataFrame, by: str, name: Callable[[dict[str, object]], tuple[str, str]], facts: Sequence[str]
) -> list[Entry]:
    """The rows with a time, longest first."""
    from xsp_analyze.render.top import Entry  # noqa: PLC0415

    ranked = table.drop_nulls(by).sort(by, descending=True, maintain_order=True)
    rows = [row for row in ranked.iter_rows(named=True) if row[by] > 0]
    return [
        Entry(text, float(row[by]), before, {fact: row[fact] for fact in facts})
        for row, (before, text) in ((row, name(row)) for row in rows)
    ]


def _layer_name(row: dict[str, object]) -> tuple[str, str]:
    """Its index, and its name with its type where that says more."""
    name, kind = row["layer_name"] or "-", row["layer_type"]
    one = re.sub(r"^\d+ x ", "", str(name))  # of several added up
    more = f" ({kind})" if kind and not one.startswith(str(kind)) else ""
    return f"{'-' if row['layer_index'] is None else row['layer_index']:>4}  ", f"{name}{more}"


def _kernel_name(row: dict[str, object]) -> tuple[str, str]:
    """How often it ran, and its name."""
    count = row["count"]
    return f"{count:>7,.6g}x  " if isinstance(count, int | float) else " " * 10, str(row["kernel_name"])


def _operator_calls(row: dict[str, object]) -> tuple[str, str]:
    """How often it was called, and its name."""
    return f"{row['count']:>7,.6g}x  ", str(row["operator"])


def _operator_name(row: dict[str, object]) -> tuple[str, str]:
    """How much of the roof it reaches, and what it is called with."""
    from xsp_analyze.text.units import share, short_call  # noqa: PLC0415

    reached = row["roof_share"]
    name = f"{short_call(row, _MAX_CALL)} {row['dtypes'] or ''}".rstrip()
    return f"{share(reached) if isinstance(reached, float) else '-':>8}  ", name


def _terminal_text(lines: Iterator[Text], width: int) -> str:
    from rich.console import Console  # noqa: PLC0415

    out = StringIO()
    console = Console(
        file=out, width=width, force_terminal=in_color(), no_color=not in_color(), highlight=False, markup=False,
        color_system="standard" if in_color() else None, emoji=False,
    )  # fmt: skip
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    return out.getvalue().rstrip("\n")
