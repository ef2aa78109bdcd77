"""The command line as typer has it: what goes before any command, and the commands, each imported when it is called."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from xsp.cli.output import print_styled
from xsp.cli.reading_help import ReadingCommand, literal
from xsp.cli.table import ABOUT, COMMANDS

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["app", "command_named", "run"]

_PASSED_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
"""How a command leaves every option, --help among them, to the program that it starts."""


class _Commands(TyperGroup):
    """Names all commands, with what each is for, and imports the one that is called."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 (typer's own)
        super().__init__(**attributes)
        self.commands = {each.name: TyperCommand(each.name, help=literal(each.help)) for each in COMMANDS}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401 (its module's name differs between versions of typer)
        """The command that the arguments name, with its options."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else command_named(name), rest


def command_named(name: str) -> Any:  # noqa: ANN401 (its module's name differs between versions of typer)
    """The command as typer has it."""
    entry = next(each for each in COMMANDS if each.name == name)
    function = getattr(import_module(entry.module), name)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(
        name,
        cls=ReadingCommand,
        help=literal(inspect.getdoc(function) or ""),
        context_settings=_PASSED_ON if entry.passes_on else None,
    )(function)
    return typer.main.get_command(alone)


app = typer.Typer(
    name="xsp",
    cls=_Commands,
    help=ABOUT,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wants_version: bool) -> None:
    if wants_version:
        from xsp.version import version_line  # noqa: PLC0415 (only here)

        print_styled(version_line())
        raise typer.Exit


def _print_reading_help(wants_help: bool) -> None:
    if wants_help:
        command = command_named("report")  # has each of these options
        command.reading_help(typer.Context(command, info_name="xsp COMMAND"))
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 (its callback acts)
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print version and commit and exit."),
    ] = False,
    help_reading: Annotated[  # noqa: ARG001 (likewise)
        bool,
        typer.Option(
            "--help-reading",
            callback=_print_reading_help,
            is_eager=True,
            help="Show how files are read (options that commands share), and exit.",
        ),
    ] = False,
) -> None:
    """Options before any command; the help where there is no command."""
    if context.invoked_subcommand is None:
        print_styled(context.get_help())


def run(arguments: Sequence[str]) -> object:
    """Runs the command; what it returned, its exit status where it has one."""
    return app(args=_with_both_dashes(list(arguments)), prog_name="xsp", standalone_mode=False)


def _with_both_dashes(arguments: list[str]) -> list[str]:
    """The command line so that the `--` before a script's own arguments is passed on as well: typer takes the first."""
    passes_on = {each.name for each in COMMANDS if each.passes_on}
    if "--" not in arguments or arguments[0] not in passes_on:
        return arguments
    at = arguments.index("--")
    return [*arguments[:at], "--", *arguments[at:]]
