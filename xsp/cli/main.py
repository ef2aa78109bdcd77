"""The command `xsp`: its parts, and what becomes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from xsp.cli.commands.analyses import analyses
from xsp.cli.commands.analyze import analyze
from xsp.cli.commands.batch import batch
from xsp.cli.commands.cohort import cohort
from xsp.cli.commands.collect import PASSED_ON, collect, with_both_dashes
from xsp.cli.commands.compare import compare
from xsp.cli.commands.convert import convert
from xsp.cli.commands.devices import devices
from xsp.cli.commands.export import export
from xsp.cli.commands.figure import figure
from xsp.cli.commands.findings import findings
from xsp.cli.commands.formats import formats
from xsp.cli.commands.info import info
from xsp.cli.commands.merge import merge
from xsp.cli.commands.query import query
from xsp.cli.commands.report import report
from xsp.cli.commands.schema import schema
from xsp.cli.commands.top import top
from xsp.cli.output import ReaderGoneError, note, print_text
from xsp.memory import before_polars

__all__ = ["app", "main"]

_USER_ERROR = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_BROKEN_PIPE = 141  # 128 + SIGPIPE

_HELP = (
    "Says where a model's time went, from the files of profilers you already have.\n\n"
    "xsp reads files of PyTorch, Nsight Systems, TensorFlow, JAX and many other profilers (`xsp formats`), joins them"
    " into one tree (model, layer, operator, library call, runtime call, kernel), and answers questions about it.\n\n"
    "Start with: xsp report trace.json.gz -o report.html"
)

app = typer.Typer(
    name="xsp",
    help=_HELP,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _command in (
    report,
    top,
    findings,
    analyze,
    batch,
    convert,
    export,
    figure,
    query,
    schema,
    merge,
    compare,
    cohort,
    info,
    analyses,
    formats,
    devices,
):
    app.command()(_command)
app.command(context_settings=PASSED_ON)(collect)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 (costs a tenth of --help)

        try:
            print_text(f"xsp {version('xsp')}")
        except PackageNotFoundError:
            print_text("xsp (not installed)")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 (its callback acts)
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before any command; the help where there is no command."""
    if context.invoked_subcommand is None:
        print_text(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0 when it answered, 2 on a user's error (one sentence on stderr), 130 when interrupted."""
    before_polars()
    try:
        status = app(
            args=with_both_dashes(sys.argv[1:] if arguments is None else list(arguments)),
            prog_name="xsp",
            standalone_mode=False,
        )
    except ReaderGoneError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        sentence = _for_users(error)
        if sentence is None:
            raise
        note(f"error: {' '.join(sentence.split())}")
        return _USER_ERROR
    return status if isinstance(status, int) else 0


def _for_users(error: Exception) -> str | None:
    """What to tell the user; null for errors that are ours.

    XspError is looked up, not imported, as whoever raised it has imported it; errors in arguments are known by
    their method, as typer has them from click or from a copy of its own.
    """
    errors = sys.modules.get("xsp_model.errors")
    if errors is not None and isinstance(error, errors.XspError):
        return str(error)
    about_arguments = getattr(error, "format_message", None)
    if about_arguments is None:
        return None
    context = getattr(error, "ctx", None)
    hint = f" See `{context.command_path} --help`." if context is not None else ""
    sentence = about_arguments().rstrip(".")
    return f"{sentence}{'' if sentence.endswith('?') else '.'}{hint}"
