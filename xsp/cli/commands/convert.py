"""`xsp convert`: profiler files to a bundle."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cli.options import Inputs, reads_input
from xsp.cli.output import check_output, note, thousands, unwritable
from xsp.cli.progress import Progress, ended_politely
from xsp.opening import load
from xsp.reading import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xsp_model import Trace

__all__ = ["convert"]


@reads_input(also=("keep_private",))
def convert(
    inputs: Inputs,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The bundle to write: a folder NAME.xsp.")],
    reading: Reading,
) -> None:
    """Read profiler files once and keep the joined trace as a bundle, which opens in a moment.

    The files of several ranks given together become one trace.

    Examples: `xsp convert trace.json.gz -o trace.xsp`, `xsp convert 'rank*.json.gz' -o job.xsp`.
    """
    from xsp_model import bundle  # noqa: PLC0415 (--help must not wait for polars)

    check_output(output, [*inputs, *reading.files], refuse_stdout="and a bundle is a folder")
    with ended_politely(), _scratch_beside(output):
        with Progress() as progress:
            trace = load(inputs, reading, progress.note)
            progress.note(f"writing {output.name}")
            try:
                bundle.write(trace, output)
            except OSError as error:
                raise unwritable(output, error) from error
        for detail in _errors(trace):
            note(f"warning: {detail}")
        note(f"{output}: {thousands(trace.row_count)} spans")


@contextmanager
def _scratch_beside(output: Path) -> Iterator[None]:
    """What does not fit into memory goes beside the bundle, unless the user named a folder: /tmp may be memory too."""
    from xsp_model.columns.arrays import in_folder  # noqa: PLC0415
    from xsp_model.output_files import room_beside  # noqa: PLC0415

    with ExitStack() as stack:
        if "TMPDIR" not in os.environ and output.parent.is_dir():
            try:
                room = stack.enter_context(room_beside(output))
            except OSError as error:
                raise unwritable(output, error) from error
            stack.enter_context(in_folder(room))
        yield


def _errors(trace: Trace) -> list[str]:
    """What the ledger calls an error: numbers that a reader of the bundle would miss."""
    import polars as pl  # noqa: PLC0415

    from xsp_model import Severity  # noqa: PLC0415
    from xsp_model.errors import clean  # noqa: PLC0415

    errors = trace.frame("ledger").filter(pl.col("severity").cast(pl.String) == str(Severity.ERROR))
    return [clean(detail) for detail in errors["detail"].cast(pl.String)]
