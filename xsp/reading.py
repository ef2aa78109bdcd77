"""How inputs are read: each option declared once, for the command, Python, batches, the cache and the readers."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum, StrEnum
from functools import wraps
from numbers import Real
from pathlib import Path
from reprlib import repr  # noqa: A004 (of what is passed, which may be long)
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ParamSpec, SupportsIndex, TypeVar, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Frames",
    "LayerSource",
    "Option",
    "Reading",
    "as_declared",
    "defaults",
    "option_types",
    "options",
    "reading_of",
    "takes",
]

_NUMBERS = {int: SupportsIndex, float: Real}  # of NumPy, too
_ADVICE = "See help(xsp.open) and help(xsp.OpenTrace)"


class LayerSource(StrEnum):
    """What may count as a layer."""

    AUTO = "auto"
    MODULE = "module"
    RANGE = "range"
    OPERATOR = "operator"


class Frames(StrEnum):
    """What is kept of frames of Python functions."""

    LINES = "lines"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Option:
    """How an option is offered, and who takes it.

    `decides`: what a conversion gives depends on it, so traces that were kept are told apart by it.
    `reader_specific`: only some readers take it, from `Options.extra`.
    `on_request`: only those commands have it that ask for it.
    `of_bundles`: it decides what becomes of a bundle too; the others that decide are refused there.
    """

    flag: str
    help: str
    metavar: str | None = None
    decides: bool = True
    reader_specific: bool = False
    on_request: bool = False
    of_bundles: bool = False


def _option(flag: str, text: str, metavar: str | None = None, **use: bool) -> dict[str, Option]:
    return {"option": Option(flag, text, metavar, **use)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How the user wants inputs read; what is declared here the command offers, in this order, and `xsp.open` takes."""

    format: str | None = field(
        default=None,
        metadata=_option(
            "--format",
            "Read the files as this format, whatever they look like (`xsp formats` lists the names).",
            "NAME",
        ),
    )
    layer_source: LayerSource = field(
        default=LayerSource.AUTO,
        metadata=_option(
            "--layer-source",
            "What counts as a layer: framework modules, named ranges or outermost operators; auto takes the best that"
            " the trace has.",
            of_bundles=True,
        ),
    )
    model_ranges: tuple[str, ...] = field(
        default=(), metadata=_option("--model-range", "Named ranges that match are steps of the model.", "REGEX")
    )
    layer_ranges: tuple[str, ...] = field(
        default=(), metadata=_option("--layer-range", "Named ranges that match are layers.", "REGEX")
    )
    nsys: str | None = field(
        default=None,
        metadata=_option(
            "--nsys",
            "The nsys that opens .nsys-rep files; without it $XSP_NSYS, else the one on PATH.",
            "PATH",
            decides=False,  # its version does, which the cache asks of it
            reader_specific=True,
        ),
    )
    os_runtime: bool = field(
        default=False,
        metadata=_option(
            "--os-runtime",
            "Keep the calls of the operating system's runtime (OSRT) that Nsight Systems traced, with device work too.",
            reader_specific=True,
        ),
    )
    keep_private: bool = field(
        default=False,
        metadata=_option(
            "--keep-private",
            "Keep host and user names and environment variables, where files hold any.",
            on_request=True,
        ),
    )
    frames: Frames = field(
        default=Frames.LINES,
        metadata=_option(
            "--frames",
            "What to keep of Python's frames, where they were recorded: the user's innermost lines that called each"
            " operator, or none.",
        ),
    )
    time_range: str | None = field(
        default=None,
        metadata=_option(
            "--range",
            "Read only this time since the first span, such as 10s..20s, 1500ms.. or ..2min: device work that starts in"
            " it, its launches, and what the host did meanwhile.",
            "FROM..TO",
        ),
    )
    process_ids: tuple[int, ...] = field(
        default=(), metadata=_option("--pid", "Read only what this process did and launched.", "N")
    )
    device_ids: tuple[int, ...] = field(
        default=(), metadata=_option("--device-id", "Of device work read only that of this device.", "N")
    )
    graph_captures: tuple[Path, ...] = field(
        default=(),
        metadata=_option(
            "--graph-capture",
            "A trace of the capture of the graphs that the input replays, or a folder of such: gives replayed kernels"
            " the layers and operators that they were captured in.",
            "PATH",
        ),
    )
    align_clocks: bool = field(
        default=False,
        metadata=_option(
            "--align-clocks",
            "Of several ranks, move the times of each to the first's clock: by the median difference of when the"
            " collectives ended that both ran.",
        ),
    )
    strict_json: bool = field(
        default=False,
        metadata=_option(
            "--strict-json",
            "Refuse files whose JSON is broken or cut off; without it what can be read is read, and the ledger says the"
            " rest.",
        ),
    )
    device: Path | None = field(
        default=None,
        metadata=_option(
            "--device",
            "Peak rates of devices; they go before what the files and xsp itself know (see `xsp devices`).",
            "FILE.toml",
            decides=False,  # its rates are put in after conversion
        ),
    )

    gpu: str | None = field(
        default=None,
        metadata=_option(
            "--gpu",
            "What the devices are that the files do not name, by a name of `xsp devices` or as a driver writes it:"
            " gives them that device's peak rates.",
            "NAME",
            decides=False,  # likewise
        ),
    )

    system: str | None = field(
        default=None,
        metadata=_option(
            "--system",
            "Of runs of several models, frameworks and devices those of the one whose name holds this text.",
            "TEXT",
            decides=False,  # runs are chosen after conversion
        ),
    )

    work_models: tuple[Path, ...] = field(
        default=(),
        metadata=_option(
            "--work-models",
            "Your own models of what operators have to do at least; they go before those of xsp (docs/work-models.md).",
            "FILE.toml",
            decides=False,  # what they tell is put in after conversion
        ),
    )

    @property
    def files(self) -> tuple[Path, ...]:
        """What is read beside the inputs."""
        return (*self.graph_captures, *((self.device,) if self.device else ()), *self.work_models)

    def deciding(self) -> dict[str, object]:
        """What of it decides what a conversion gives, as JSON has it."""
        values = {name: getattr(self, name) for name, option in options().items() if option.decides}
        return {name: _as_json(value) for name, value in values.items()}

    def digest(self) -> str:
        """The same for all readings that convert the same inputs to the same trace."""
        return hashlib.sha256(json.dumps(self.deciding(), sort_keys=True).encode()).hexdigest()


def _as_json(value: object) -> object:
    if isinstance(value, tuple):
        return [_as_json(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def options() -> dict[str, Option]:
    """Every option by its name, in the order of declaration."""
    return {each.name: each.metadata["option"] for each in fields(Reading)}


def option_types() -> dict[str, Any]:
    """The type of every option, by its name."""
    return get_type_hints(Reading)


def defaults() -> Mapping[str, object]:
    """What holds where an option is not named, by its name."""
    return {each.name: each.default for each in fields(Reading)}


def reading_of(values: Mapping[str, object]) -> Reading:
    """The reading that these options say, None or absent: the default; sequences and texts become what is declared.

    Raises:
        WrongTypeError: A value is of another type than its option.
        XspError: A value is none of those that its option has.
    """
    types = option_types()
    converted: dict[str, Any] = {n: as_declared(types[n], n, value) for n, value in values.items() if value is not None}
    return Reading(**converted)


def as_declared(kind: Any, name: str, value: Any) -> Any:  # noqa: ANN401 (of any type)
    """The value that was passed under the name, as the type declares it: a tuple of any sequence, a path of a text.

    Raises:
        WrongTypeError: It is of another type.
        XspError: It is of the type, and none of its values.
    """
    kinds = [each for each in get_args(kind) if each is not NoneType] if get_origin(kind) is UnionType else [kind]
    if value is None and kind not in kinds and NoneType in get_args(kind):
        return None
    if get_origin(kinds[0]) is tuple:
        each_kind = get_args(kinds[0])[0]
        return tuple(as_declared(each_kind, name, each) for each in _several(name, value))
    if isinstance(kinds[0], type) and issubclass(kinds[0], Enum):
        return _member(kinds[0], name, value)
    if Path in kinds and isinstance(value, str | os.PathLike):
        return _path(name, value)
    if not isinstance(value, bool) and any(isinstance(value, _NUMBERS.get(each, ())) for each in kinds):
        return _int64(name, int(value)) if int in kinds else _seconds(name, value)
    if not isinstance(value, tuple(kinds)) or (isinstance(value, bool) and bool not in kinds):
        from xsp_model.errors import WrongTypeError  # noqa: PLC0415 (imports the whole model)

        expected = " or ".join(each.__name__ for each in kinds)
        raise WrongTypeError(f"{name} takes values of type {expected}, not {repr(value)}", advice=_ADVICE)
    return value


def _path(name: str, value: str | os.PathLike[str]) -> Path:
    """A path that a file can have, whether there is one or not."""
    text = os.fspath(value)
    if not isinstance(text, str):
        from xsp_model.errors import WrongTypeError  # noqa: PLC0415 (imports the whole model)

        raise WrongTypeError(f"{name} takes a path that is text, not {repr(text)}", advice=_ADVICE)
    try:
        if text and b"\0" not in os.fsencode(text):
            return Path(text).expanduser()
        reason = "a path has no NUL in it" if text else "it is empty"
    except UnicodeEncodeError:
        reason = "it has half a character in it"
    except RuntimeError:
        reason = "there is no home folder of that name"
    raise _no_value(name, text, reason)


def _int64(name: str, value: int) -> int:
    if -(1 << 63) <= value < 1 << 63:
        return value
    raise _no_value(name, value, "nothing in a trace has a number as large")


def _seconds(name: str, value: Real) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not number >= 0:
        raise _no_value(name, value, "it is a time in seconds")
    return number


def _no_value(name: str, value: object, reason: str) -> Exception:
    from xsp_model.errors import XspError  # noqa: PLC0415 (imports the whole model)

    return XspError(f"{repr(value)} cannot be used for {name}: {reason}", advice=_ADVICE)


def _several(name: str, value: object) -> tuple[object, ...]:
    """The values of an option that takes several; one text is no list of its characters."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        from xsp_model.errors import WrongTypeError  # noqa: PLC0415 (imports the whole model)

        raise WrongTypeError(f"{name} takes a list, not {repr(value)}", advice=f"Write {name}=[{repr(value)}]")
    return tuple(value)


def _member(kind: type[Enum], name: str, value: object) -> Enum:
    try:
        return kind(value)
    except ValueError as error:
        from xsp_model.errors import XspError  # noqa: PLC0415 (imports the whole model)

        advice = f"Choose of {', '.join(str(each) for each in kind)}"
        raise XspError(f"{repr(value)} is no {name.replace('_', ' ')}", advice=advice) from error


# What callers pass to the API, held to the types that are declared.

_P = ParamSpec("_P")
_T = TypeVar("_T")


def takes(**kinds: Any) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:  # noqa: ANN401 (types, and unions of them)
    """Decorates a function that gets these parameters as `as_declared` makes them of what was passed.

    Their annotations are for type checkers alone: most name what is not imported when the program runs.
    """

    def wrap(function: Callable[_P, _T]) -> Callable[_P, _T]:
        signature = inspect.signature(function)

        @wraps(function)
        def with_arguments_declared(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            passed = signature.bind(*args, **kwargs)
            for name in kinds.keys() & passed.arguments.keys():
                passed.arguments[name] = as_declared(kinds[name], name, passed.arguments[name])
            return function(*passed.args, **passed.kwargs)

        return with_arguments_declared

    return wrap
