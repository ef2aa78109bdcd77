"""`xsp merge`: runs of the same work at several levels to one profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cli.options import reads_input
from xsp.cli.output import check_output, note, thousands, unwritable
from xsp.cli.progress import Progress, ended_politely
from xsp.opening import options_of, read_runs, with_what_is_given
from xsp.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_ingest.convert import LeveledRuns
    from xsp_model import Trace

__all__ = ["merge"]

_MIN_MATCH = 0.95  # as xsp_analyze.merge.merge.MIN_MATCH, which --help must not import
_SINGLE = "Runs given one by one"


@reads_input(only=("layer_source", "model_ranges", "layer_ranges", "graph_captures", "device"))
def merge(
    runs: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUNS]",
            help="A run set: a folder with a run.json per run, or with one such folder for each rank (rank-0, rank-1);"
            " or a file that holds runs at several levels.",
            show_default=False,
        ),
    ] = None,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The profile to write: a folder NAME.xsp.")],
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The run without a profiler (M): its run.json or a trace.",
            show_default=False,
            rich_help_panel=_SINGLE,
        ),
    ] = None,
    layers: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The run profiled at layer level (ML).", show_default=False, rich_help_panel=_SINGLE
        ),
    ] = None,
    kernels: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="The run profiled down to kernels (MLG); a second one without graphs tells the layers of replays.",
            show_default=False,
            rich_help_panel=_SINGLE,
        ),
    ] = None,
    counters: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Hardware counters of the same work; may be given several times.",
            show_default=False,
            rich_help_panel=_SINGLE,
        ),
    ] = None,
    min_match: Annotated[
        float, typer.Option("--min-match", min=0.0, max=1.0, help="Refuse runs that match less than this share.")
    ] = _MIN_MATCH,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            metavar="N",
            min=1,
            help="Of several batch sizes the one that all analyses are of; A01, A15 and B38 are of each."
            " Default: of those run at most levels the optimal one, else that of most inputs a second.",
            show_default=False,
        ),
    ] = None,
    reading: Reading,
) -> None:
    """Join runs of the same work, taken at different levels, into one profile.

    Each latency is then taken from the run that disturbed it least: the model's from the run without a profiler,
    a layer's from the layer run, a kernel's from the kernel run; counters from the counter runs.

    Example: `xsp merge runs/ -o profile.xsp`, where runs/ is what `xsp collect` left.
    """
    from xsp.run_sets import merged_sets  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_model import XspError, bundle  # noqa: PLC0415

    single: list[tuple[str, Sequence[Path | None]]] = [
        ("model", [model]),
        ("layers", [layers]),
        ("kernels", kernels or []),
        ("counters", counters or []),
    ]
    files = [(role, path) for role, paths in single for path in paths if path is not None]
    if (runs is None) == (not files):
        raise XspError(
            "xsp merge takes either runs that lie together or single runs",
            advice="Give a folder with a run.json per run, a file of several levels, or --model, --layers, --kernels"
            " and --counters",
        )
    check_output(
        output,
        [*filter(None, [runs]), *(path for _, path in files), *reading.files],
        refuse_stdout="and a profile is a folder",
    )
    with Progress() as progress, ended_politely():
        sets = _runs(runs, files, reading, progress.note)
        for finding in (finding for each in sets for finding in each.findings if finding.count):
            note(finding.detail)
        progress.note("merging")
        profile = merged_sets(sets, min_match=min_match, batch_size=batch_size)
        profile = with_what_is_given(profile, reading)
        progress.note(f"writing {output.name}")
        try:
            bundle.write(profile, output)
        except OSError as error:
            raise unwritable(output, error) from error
    for detail in (*_on_batch_sizes(profile), *_on_replays(profile), *_not_used(profile)):
        note(detail)
    ranks = profile.table("runs").column("rank").to_pylist()
    of_ranks = f" of {len(set(ranks))} ranks" if len(set(ranks)) > 1 else ""
    note(f"{output}: {len(ranks)} runs{of_ranks}, {thousands(profile.row_count)} spans")


def _on_batch_sizes(profile: Trace) -> list[str]:
    """Which batch size analyses are of, where the runs are of several."""
    from xsp_analyze.trace.trace_view import TraceView  # noqa: PLC0415 (--help must not wait for polars)

    view = TraceView(profile)
    if not view.other_batch_sizes:
        return []
    own = view.own_runs.table["batch_size"][0]
    others = ", ".join(map(str, view.other_batch_sizes))
    return [f"analyses are of batch size {own}; A01, A15 and B38 are of {others} too (--batch-size chooses)"]


def _on_replays(profile: Trace) -> list[str]:
    """What the ledger says of replayed graphs and the run that tells their layers, with how much work it is."""
    from xsp_model import LedgerKind  # noqa: PLC0415

    kinds = {str(LedgerKind.GRAPH_ALIGNED), str(LedgerKind.GRAPH_NOT_ALIGNED)}
    rows = profile.table("ledger").select(["kind", "count", "detail"]).to_pylist()
    return [f"{thousands(row['count'])} activities: {row['detail']}" for row in rows if row["kind"] in kinds]


def _not_used(profile: Trace) -> list[str]:
    """Which runs another one of their level and batch size went before."""
    rows = profile.table("ledger").select(["kind", "detail"]).to_pylist()
    return [row["detail"] for row in rows if row["kind"] == "run_not_used"]


def _runs(
    together: Path | None, files: Sequence[tuple[str, Path]], reading: Reading, progress: Callable[[str], None]
) -> Sequence[LeveledRuns]:
    """The runs to merge: those given one by one, of a set, of the set of each rank, or of files that hold several."""
    from xsp_ingest.convert import LeveledRuns  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_ingest.run_set import read_sets, read_single  # noqa: PLC0415

    options = options_of(reading)
    if together is None:
        return [LeveledRuns([read_single(path, role, options, progress=progress) for role, path in files], ())]
    if together.is_file() or (together.is_dir() and not any(together.glob("**/run.json"))):
        return _runs_of_files(together, reading, progress)
    return read_sets(together, options, progress=progress)


def _runs_of_files(path: Path, reading: Reading, progress: Callable[[str], None]) -> Sequence[LeveledRuns]:
    from xsp_model import Trace, XspError  # noqa: PLC0415 (--help must not wait for polars)

    runs = read_runs([path], reading, progress)
    if not isinstance(runs, Trace):
        return runs
    kinds = runs.table("ledger").column("kind").to_pylist()
    details = runs.table("ledger").column("detail").to_pylist()
    mixed = next((detail for kind, detail in zip(kinds, details, strict=True) if kind == "levels_mixed"), None)
    raise XspError(
        "this does not hold the same work at several levels",
        path=path,
        advice=mixed or "Give a run set, or each run with --model, --layers, --kernels or --counters",
    )
