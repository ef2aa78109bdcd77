"""`xsp merge`: runs of the same work at several levels to one profile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cli.output import check_writable, note, unwritable
from xsp.cli.progress import Progress
from xsp.cli.reading_options import reads_input
from xsp.opening import options_of, with_given_devices
from xsp.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_ingest.ingester import Options
    from xsp_model import Finding, Trace

__all__ = ["merge"]

_MIN_MATCH = 0.95  # as xsp_analyze.merge.merge.MIN_MATCH, which --help must not import
_SINGLE = "Runs given one by one"


@reads_input(only=("layer_source", "model_ranges", "layer_ranges", "graph_captures", "device"))
def merge(
    run_set: Annotated[
        Path | None,
        typer.Argument(metavar="[RUNDIR]", help="A run set: a folder with a run.json per run.", show_default=False),
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
    reading: Reading,
) -> None:
    """Join runs of the same work, taken at different levels, into one profile.

    Each latency is then taken from the run that disturbed it least: the model's from the run without a profiler,
    a layer's from the layer run, a kernel's from the kernel run; counters from the counter runs.

    Example: `xsp merge runs/ -o profile.xsp`, where runs/ is what `xsp collect` left.
    """
    from xsp_analyze.merge.merge import merge as merged  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_model import XspError, bundle  # noqa: PLC0415

    check_writable(output)
    options = options_of(reading)
    single: list[tuple[str, Sequence[Path | None]]] = [
        ("model", [model]),
        ("layers", [layers]),
        ("kernels", kernels or []),
        ("counters", counters or []),
    ]
    files = [(role, path) for role, paths in single for path in paths if path is not None]
    if (run_set is None) == (not files):
        raise XspError(
            "xsp merge takes either a run set or single runs",
            advice="Give a folder with a run.json per run, or --model, --layers, --kernels and --counters",
        )
    failed = _failed(run_set)
    for finding in failed:
        note(finding.detail)
    with Progress() as progress:
        runs = _runs(run_set, files, options, progress.note)
        progress.note("merging")
        profile = with_given_devices(merged(runs, min_match=min_match, noted=failed), reading)
        progress.note(f"writing {output.name}")
        try:
            bundle.write(profile, output)
        except OSError as error:
            raise unwritable(output, error) from error
    for detail in _on_replays(profile):
        note(detail)
    note(f"{output}: {len(runs)} runs, {profile.row_count:,} spans")


def _failed(run_set: Path | None) -> list[Finding]:
    from xsp_ingest.run_set.run_set import failed_runs  # noqa: PLC0415

    return failed_runs(run_set) if run_set is not None else []


def _on_replays(profile: Trace) -> list[str]:
    """What the ledger says of replayed graphs and the run that tells their layers, with how much work it is."""
    from xsp_model import LedgerKind  # noqa: PLC0415

    kinds = {str(LedgerKind.GRAPH_ALIGNED), str(LedgerKind.GRAPH_NOT_ALIGNED)}
    rows = profile.table("ledger").select(["kind", "count", "detail"]).to_pylist()
    return [f"{row['count']:,} activities: {row['detail']}" for row in rows if row["kind"] in kinds]


def _runs(
    run_set: Path | None, files: Sequence[tuple[str, Path]], options: Options, progress: Callable[[str], None]
) -> list[Trace]:
    from xsp_ingest.run_set.run_set import read_run_set, read_single  # noqa: PLC0415

    if run_set is not None:
        return read_run_set(run_set, options, progress=progress)
    return [read_single(path, role, options, progress=progress) for role, path in files]
