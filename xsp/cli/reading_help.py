"""The help of a command that reads files: its own options; those of reading, which all share, on request."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from xsp.cli.output import print_styled

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PANEL", "HelpReading", "ReadingCommand", "literal"]

PANEL = "Reading the input"
"""The group of options that `--help` leaves to `--help-reading`."""

_ABOUT = "How the input is read: options that the commands which read files share."


class ReadingCommand(TyperCommand):
    """Its help has its own options; `reading_help` has the others. A shell completes both."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:  # noqa: ANN401 (typer's own)
        super().__init__(*arguments, **attributes)
        for each in self.params:
            option: Any = each  # of a class whose module's name differs between versions of typer
            if getattr(option, "help", None):
                option.help = literal(option.help)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """What `--help` prints."""
        with self._hide_options(of_reading=True):
            super().format_help(ctx, formatter)

    def reading_help(self, ctx: Any) -> None:  # noqa: ANN401
        """Prints what `--help-reading` asks for."""
        own, self.help = self.help, _ABOUT
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
