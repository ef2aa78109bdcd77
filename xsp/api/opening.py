"""From what Python code names to an open trace: inputs mean the same in Python as on the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import EnumType
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

from xsp.api.open_trace import OpenTrace
from xsp.cache.cache import Cache
from xsp.opening import load
from xsp.reading import Option, as_declared, defaults, option_types, options, reading_of
from xsp_model.errors import XspError

if TYPE_CHECKING:
    import os

__all__ = ["open"]


def open(  # noqa: A001 (xsp.open is what people will type)
    *inputs: str | os.PathLike[str],
    cache: bool = True,
    progress: Callable[[str], None] | None = None,
    **reading: Any,  # noqa: ANN401 (of the types that `Reading` declares)
) -> OpenTrace:
    """The one trace of all inputs: files, folders, patterns (`"rank*.json.gz"`), a bundle, or a run set, merged.

    Args:
        inputs: What `xsp` takes as INPUT; several files are the ranks of one job. `~` is the home folder.
        cache: Keep what a large file was converted to, for the next time, where the command keeps it.
        progress: Called with a few words about what is being read.
        reading: The options of `xsp.reading.Reading`.

    Raises:
        XspError: An input is missing, of no known format, or damaged; one sentence says what to do.
        TypeError: There is no such option, or an argument is of another type; the latter is an XspError too.
    """
    _SIGNATURE.bind(*inputs, **reading)
    if not inputs:
        raise XspError("nothing to open", advice='Name a file: open("trace.json.gz")')
    texts = [str(as_declared(Path, "inputs", one)) for one in inputs]
    kept_in = Cache() if as_declared(bool, "cache", cache) else None
    progress = as_declared(Callable | None, "progress", progress)
    return OpenTrace(load(texts, reading_of(reading), progress or (lambda _: None), cache=kept_in))


def _signature() -> inspect.Signature:
    """That of `open`, with the options of reading by their names."""
    written = inspect.signature(open)
    *fixed, _ = written.parameters.values()
    types = option_types()
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
        for name, default in defaults().items()
    ]
    return written.replace(parameters=[*fixed, *named])


def _docstring_with_options() -> str:
    """The docstring of `open`, with a line for each option."""
    types = option_types()
    lines = [f"    {name}: {option.help}{_form(option, types[name])}" for name, option in options().items()]
    written = inspect.cleandoc(open.__doc__ or "")
    return written.replace("    reading: The options of `xsp.reading.Reading`.", "\n".join(lines))


def _form(option: Option, kind: Any) -> str:  # noqa: ANN401 (of any type)
    """What of the value its help does not say."""
    if get_origin(kind) is tuple:
        return f" A sequence of {option.metavar}."
    if isinstance(kind, EnumType):
        return f" One of {', '.join(map(str, kind.__members__.values()))}."
    return f" A path of a {option.metavar}." if Path in get_args(kind) else ""


_SIGNATURE = _signature()
_public: Any = open
_public.__signature__ = _SIGNATURE
_public.__doc__ = _docstring_with_options()
