"""Errors that users read, and the plain text that they are made of."""

from __future__ import annotations

import re
import traceback
from importlib import import_module
from importlib.metadata import PackageNotFoundError, entry_points, requires
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "AGAIN",
    "PlugInError",
    "WrongTypeError",
    "XspError",
    "clean",
    "closest",
    "install_advice",
    "on_terminal",
    "plug_in_fault",
    "plug_ins",
    "readable",
    "require",
]

# Text out of files as it may be put before a person: nothing in it moves the cursor or turns a line around.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_UNSEEN = (  # directions of writing, joiners, separators of lines, marks of byte order, halves of characters
    *(0x00AD, 0x061C, 0xFEFF),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xD800, 0xE000),
)
_TABLE = _CONTROLS | {code: f"\\u{code:04x}" for code in _UNSEEN} | {ord("\t"): " ", ord("\n"): " "}
_ON_TERMINAL = {code: f"\\u{code:04x}" for code in (*_CONTROLS, *_UNSEEN) if chr(code) not in "\n\t"}
"""As JSON writes them, so that what is JSON stays it."""


def clean(text: str) -> str:
    """The text on one line, with the code of each character that is not seen but acts in place of it."""
    return text if text.isascii() and text.isprintable() else text.translate(_TABLE)


def on_terminal(text: str) -> str:
    """Lines as a terminal may have them, of any format: of what acts one sees the code; line ends and tabs stay."""
    return text if text.isascii() and text.replace("\n", "").isprintable() else text.translate(_ON_TERMINAL)


def readable(name: str) -> str:
    """A file's name as text that can be written as UTF-8: bytes of it that are none stand as their codes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") if not name.isascii() else name


AGAIN = "Convert the source files again"


class XspError(Exception):
    """What happened, in which file, and what to do: one line; the command prints it and exits with 2."""

    def __init__(self, what: str, *, path: Path | str | None = None, advice: str = "") -> None:
        self.what = clean(what)
        self.path = path
        self.advice = clean(advice)
        super().__init__(str(self))

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path is not None else ""
        message = f"{where}{self.what}{'. ' + self.advice if self.advice else ''}"
        return clean(" ".join(message.split()))


class WrongTypeError(XspError, TypeError):
    """An argument of a type that it cannot have: a TypeError, as Python has it, with the sentence of an XspError."""


# What a user may have meant: the known names nearest to one that is not known.
_MAX_NAMES = 3
_MIN_CHARACTERS = 3
_CUTOFF = 0.6


def closest(unknown: str, names: Iterable[str]) -> list[str]:
    """At most three of the known names, best first: spelled alike, or with the wanted text in them, in any case."""
    import difflib  # noqa: PLC0415 (only an unknown name needs it)

    lowered = {name.lower(): name for name in names}
    text = unknown.lower()
    alike = difflib.get_close_matches(text, lowered, _MAX_NAMES, _CUTOFF)
    within = [name for name in lowered if len(text) >= _MIN_CHARACTERS and text in name]
    return [lowered[name] for name in dict.fromkeys([*alike, *within])][:_MAX_NAMES]


# What other distributions bring: what to type where an extra of xsp is missing, and what plug-ins add to it.
#
# xsp is on no package index, but what its extras bring is.

_MAX_WHY = 300
_NEED = re.compile(r"(?P<need>[^;]+?)\s*;.*\bextra\s*==\s*['\"](?P<extra>[^'\"]+)['\"]")


def install_advice(extra: str) -> str:
    """A sentence that says how to install what the extra brings: by its packages, and from a checkout or a wheel."""
    packages = " ".join(f"'{need}'" for need in _needs(extra))
    from_checkout = f"`pip install '.[{extra}]'` in a checkout of xsp (of its wheel: `pip install 'FILE.whl[{extra}]'`)"
    return f"Type `pip install {packages}`, or {from_checkout}" if packages else f"Type {from_checkout}"


def require(module: str, *, purpose: str, extra: str) -> Any:  # noqa: ANN401 (an extra)
    """The module; XspError, which says what needs it, where it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        message = f"{purpose} needs {module}, which is not installed"
        raise XspError(message, advice=install_advice(extra)) from error


def _needs(extra: str) -> list[str]:
    """What the installed xsp says that the extra needs; nothing where it is not installed, or older than the extra."""
    try:
        requirements = requires("xsp") or []
    except PackageNotFoundError:
        return []
    matches = filter(None, map(_NEED.match, requirements))
    return [match["need"] for match in matches if match["extra"] == extra]


class PlugInError(XspError):
    """A plug-in does not do what it is asked for: whatever the files are, no answer can be relied upon."""


def plug_ins(group: str) -> Iterator[tuple[str, object]]:
    """What installed distributions have under the entry point group, in order of the names; XspError of what fails."""
    for point in sorted(entry_points(group=group), key=lambda each: (each.name, each.value)):
        try:
            loaded: object = point.load()
        except (Exception, SystemExit) as error:
            raise plug_in_fault(f"the entry point {point.name} of {group} cannot be loaded", error) from error
        yield point.name, loaded


def plug_in_fault(what: str, error: BaseException) -> PlugInError:
    """The error for what a plug-in does not do, with why and where in it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    why = f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno}: {error}"
    return PlugInError(
        f"{what} ({' '.join(why.split())[:_MAX_WHY]})",
        advice="It is no part of xsp: mend or remove the distribution that has it",
    )
