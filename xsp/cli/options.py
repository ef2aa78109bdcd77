"""Options and arguments that commands share; those of reading inputs a command has by its decorator."""

from __future__ import annotations

import inspect
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import typer

from xsp.cache.cache import Cache
from xsp.cli.app import PANEL, HelpReading
from xsp.cli.output import note
from xsp.reading import Option, defaults, option_types, options, reading_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["IN_PART", "CsvRaw", "Inputs", "ServingPhase", "Steps", "analysis_ids", "format_names", "reads_input"]

# What a shell offers after Tab: ids of analyses and names of formats.


def analysis_ids(incomplete: str) -> list[tuple[str, str]]:
    """The ids that begin so, in any case, each with its title."""
    from xsp_analyze.catalog import all_analyses  # noqa: PLC0415 (--help must not wait for polars)

    return [(a.id, a.title) for a in all_analyses() if a.id.lower().startswith(incomplete.lower())]


def format_names(incomplete: str) -> list[tuple[str, str]]:
    """The names of formats that begin so, each with its title."""
    from xsp_ingest.registry import all_ingesters  # noqa: PLC0415 (--help must not wait for polars)

    return [(i.name, i.title) for i in all_ingesters() if i.name.startswith(incomplete)]


# The options of reading inputs, which a command has by its decorator; `--help-reading` tells of them.

_T = TypeVar("_T")
IN_PART = 4
"""The exit status where some of what was asked for is answered, and some not."""
_COMPLETED = {"format": format_names}  # what a shell offers after Tab
_CACHE = "cache"
_HELP = inspect.Parameter("help_reading", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=HelpReading)


def reads_input(
    *, only: Iterable[str] = (), without: Iterable[str] = (), also: Iterable[str] = (), answers: bool = True
) -> Callable[[Callable[..., _T]], Callable[..., _T | int]]:
    """Gives a command the options of `Reading` in place of its parameter `reading`, which gets what they say.

    `only` these of them, or all `without` some, and `also` some that few commands have. A command with a parameter
    `cache` gets the options of the cache as well. Where an answer is without something because that failed, it is said
    and the exit status tells it; not of a command that leaves what it `answers` to other processes.
    """
    names = [
        name
        for name, option in options().items()
        if name in {*only, *also} or not (only or option.on_request or name in without)
    ]
    types = option_types()
    reading = [_parameter(name, options()[name], types[name]) for name in names]

    def decorate(command: Callable[..., _T]) -> Callable[..., _T | int]:
        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name not in {"reading", _CACHE}]
        keeps = _CACHE in signature.parameters

        @wraps(command)
        def run(**arguments: Any) -> _T | int:  # noqa: ANN401 (options of any type)
            del arguments[_HELP.name]  # which has acted
            cache = {_CACHE: _cache(**{p.name: arguments.pop(p.name) for p in _CACHE_PARAMETERS})} if keeps else {}
            values = {name: arguments.pop(name) for name in names}
            call = partial(command, **arguments, **cache, reading=reading_of(values))
            return _tell_faults(call) if answers else call()

        parameters = [*own, _HELP, *reading, *(_CACHE_PARAMETERS if keeps else ())]
        described: Any = run
        described.__signature__ = signature.replace(parameters=parameters)
        described.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _tell_faults(command: Callable[[], _T]) -> _T | int:
    """What the command returns; IN_PART where its answer is without something that failed, which it tells on stderr."""
    from xsp_analyze.faults import noting_faults  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_model import XspError  # noqa: PLC0415

    with noting_faults() as faults:
        try:
            status = command()
        except XspError as error:
            _tell([fault for fault in faults if str(fault) != str(error)])
            raise
    _tell(faults)
    return status or IN_PART if faults else status


def _tell(faults: Iterable[Exception]) -> None:
    for fault in faults:
        note(f"error: {fault}")


def _parameter(name: str, option: Option, kind: Any) -> inspect.Parameter:  # noqa: ANN401 (of any type)
    """The option as typer takes it: one of several values is given several times."""
    several = get_origin(kind) is tuple
    offered = typer.Option(
        option.flag,
        metavar=option.metavar,
        autocompletion=_COMPLETED.get(name),
        help=f"{option.help} May be given several times." if several else option.help,
        show_default=option.metavar is None,
        rich_help_panel=None if option.on_request else PANEL,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if several else defaults()[name],
        annotation=Annotated[list[get_args(kind)[0]] | None if several else kind, offered],  # type: ignore[misc]
    )


def _cache(
    *,
    no_cache: Annotated[
        bool,
        typer.Option(
            "--no-cache",
            help="Convert the input anew, and keep nothing of it for the next command.",
            rich_help_panel=PANEL,
        ),
    ] = False,
    cache_dir: Annotated[
        Path | None,
        typer.Option(
            "--cache-dir",
            metavar="DIR",
            help="Where converted traces are kept for the next command; without it $XDG_CACHE_HOME/xsp or"
            " ~/.cache/xsp.",
            show_default=False,
            rich_help_panel=PANEL,
        ),
    ] = None,
) -> Cache | None:
    """The cache that the options ask for; None where none is."""
    return None if no_cache else Cache(cache_dir)


_CACHE_PARAMETERS = tuple(inspect.signature(_cache, eval_str=True).parameters.values())


# The arguments that several commands share, declared once.

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Profiler files, a folder of them, a quoted pattern such as 'trace_*.json.gz', or one .xsp bundle.",
        show_default=False,
    ),
]
CsvRaw = Annotated[
    bool,
    typer.Option(
        "--csv-raw",
        help="In CSV leave names that begin like a formula (= + - @) as they are, not behind an apostrophe.",
        show_default=False,
    ),
]
Steps = Annotated[
    str | None,
    typer.Option(
        "--steps",
        metavar="mean|all|N",
        help="mean: the trimmed mean over steps (what you get where the trace has steps); all: the trace as one; N: the"
        " step of that number.",
        show_default=False,
    ),
]
ServingPhase = Annotated[
    str | None,
    typer.Option(
        "--phase",
        metavar="prefill|decode|mixed|diffusion",
        help="Of a server's trace only the steps of this phase, by the names that the engine gave to its steps.",
        show_default=False,
    ),
]
