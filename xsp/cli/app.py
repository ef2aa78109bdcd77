"""The command line as typer has it: what goes before any command, and the commands, each imported when it is called."""

from __future__ import annotations

import inspect
import os
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, ParameterInfo

from xsp.cli.output import print_styled
from xsp.cli.table import ABOUT, COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["PANEL", "HelpReading", "ReadingCommand", "app", "command_named", "literal", "plain_values", "run"]

PANEL = "Reading the input"
"""The group of options that `--help` leaves to `--help-reading`."""
_ABOUT_READING = "How the input is read: options that the commands which read files share."


class ReadingCommand(TyperCommand):
    """Its help has its own options; `reading_help` has the others. A shell completes both."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:  # noqa: ANN401 (typer's own)
        super().__init__(*arguments, **attributes)
        for each in self.params:
            option: Any = each  # of a class whose module's name differs between versions of typer
            if getattr(option, "help", None):
                option.help = literal(option.help)

    def get_params(self, ctx: Any) -> Any:  # noqa: ANN401
        """Its options; help does not say of a flag that it is one."""
        params = super().get_params(ctx)
        for each in params:
            if getattr(each, "is_flag", False) and each.metavar is None:
                each.metavar = ""
        return params

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """What `--help` prints."""
        with self._hide_options(of_reading=True):
            super().format_help(ctx, formatter)

    def reading_help(self, ctx: Any) -> None:  # noqa: ANN401
        """Prints what `--help-reading` asks for."""
        own, self.help = self.help, _ABOUT_READING
        formatter = ctx.make_formatter()
        try:
            with self._hide_options(of_reading=False):
                super().format_help(ctx, formatter)
        finally:
            self.help = own
        print_styled(formatter.getvalue().rstrip("\n"))  # empty where rich has printed it

    @contextmanager
    def _hide_options(self, *, of_reading: bool) -> Iterator[None]:
        """Within it, either the options of reading or the others are hidden."""
        chosen: list[Any] = [p for p in self.params if _is_of_reading(p) is of_reading and not getattr(p, "hidden", 0)]
        for each in chosen:
            each.hidden = True
        try:
            yield
        finally:
            for each in chosen:
                each.hidden = False


def _is_of_reading(parameter: object) -> bool:
    return getattr(parameter, "rich_help_panel", None) == PANEL


def literal(text: str) -> str:
    r"""The text so that rich leaves brackets in it; where users want no rich, it is printed as it is."""
    return text.replace("[", r"\[") if typer.core.HAS_RICH else text


def _of_this_command(context: Any, wants_help: bool) -> None:  # noqa: ANN401
    if wants_help:
        context.command.reading_help(context)
        raise typer.Exit


HelpReading = Annotated[
    bool,
    typer.Option(
        "--help-reading",
        callback=_of_this_command,
        is_eager=True,
        help="Show how files are read (format, layers, ranges of time, devices, cache), and exit.",
    ),
]


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
    function = getattr(import_module(entry.module), entry.function)
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
    entry = next((each for each in COMMANDS if [each.name] == list(arguments[:1]) and not each.passes_on), None)
    if entry is not None and "_XSP_COMPLETE" not in os.environ:
        function = getattr(import_module(entry.module), entry.function)
        plain = plain_values(function, arguments[1:])
        if plain is not None:
            return function(**plain)
    return app(args=_with_both_dashes(list(arguments)), prog_name="xsp", standalone_mode=False)


# A command line that is beyond doubt. Whatever is not, typer reads, which imports pydantic to look at values and takes
# a tenth of what an answer over a small trace does.


def plain_values(function: Callable[..., object], arguments: Sequence[str]) -> dict[str, Any] | None:
    """What the function gets for the arguments, as typer has it; null where that takes more than a look at each."""
    parameters = inspect.signature(function).parameters
    flags: dict[str, str] = {}
    inputs: list[str] = []
    values: dict[str, Any] = {}
    for name, each in parameters.items():
        info, kind = _info_of(each), _kind_of(each)
        if info is None or (isinstance(info, ArgumentInfo) and kind != list[str]):
            return None
        if isinstance(info, ArgumentInfo) and any(value is inputs for value in values.values()):
            return None
        if kind is float and each.default is not None:
            return None
        names = (info.default, *(info.param_decls or ()))  # typer.Option("-n", ...) takes the first for its default
        flags |= dict.fromkeys((each for each in names if isinstance(each, str)), name)
        is_several = get_origin(kind) is list
        values[name] = inputs if isinstance(info, ArgumentInfo) else () if is_several else each.default
    left = list(arguments)
    while left:
        flag, has_value, value = left.pop(0).partition("=")
        if not flag.startswith("-"):
            inputs.append(f"{flag}{has_value}{value}")
            continue
        name = flags.get(flag, "")
        kind, info = (_kind_of(parameters[name]), _info_of(parameters[name])) if name else (None, None)
        if info is None or info.callback or (has_value and (kind is bool or not flag.startswith("--"))):
            return None
        try:
            one = kind is bool or _value(value if has_value else left.pop(0), kind, info)
        except (ValueError, IndexError):
            return None
        values[name] = [*values[name], one] if get_origin(kind) is list else one
    is_complete = bool(inputs) == any(each is inputs for each in values.values())
    return values if is_complete and inspect.Parameter.empty not in values.values() else None


def _info_of(parameter: inspect.Parameter) -> ParameterInfo | None:
    """What typer is told of it; null where that is more than names and types."""
    info = parameter.annotation.__metadata__[0] if get_origin(parameter.annotation) is Annotated else None
    is_more = info is None or info.envvar or info.parser or info.default_factory
    return None if is_more or not isinstance(info, ParameterInfo) else info


def _kind_of(parameter: inspect.Parameter) -> Any:  # noqa: ANN401 (a type, or a list of one)
    kind = next(iter(get_args(parameter.annotation)), None)
    kinds = [each for each in get_args(kind) if each is not NoneType] if get_origin(kind) is UnionType else [kind]
    return kinds[0] if len(kinds) == 1 else None


def _value(text: str, kind: Any, info: ParameterInfo) -> object:  # noqa: ANN401
    """The text as a value; ValueError where it is for typer to say what it is."""
    kind = get_args(kind)[0] if get_origin(kind) is list else kind
    if kind is int and text.isascii() and text.isdigit() and info.min in {None, 0, 1} and info.max is None:
        if int(text) >= (info.min or 0):
            return int(text)
    elif kind is Path and not (info.exists or info.resolve_path or info.writable or info.path_type) and text:
        if info.file_okay and info.dir_okay and not text.startswith("-"):
            return Path(text)
    elif not text.startswith("-") and (kind is str or (isinstance(kind, type) and issubclass(kind, StrEnum))):
        return kind(text)
    raise ValueError


def _with_both_dashes(arguments: list[str]) -> list[str]:
    """The command line so that the `--` before a script's own arguments is passed on as well: typer takes the first."""
    passes_on = {each.name for each in COMMANDS if each.passes_on}
    if "--" not in arguments or arguments[0] not in passes_on:
        return arguments
    at = arguments.index("--")
    return [*arguments[:at], "--", *arguments[at:]]
