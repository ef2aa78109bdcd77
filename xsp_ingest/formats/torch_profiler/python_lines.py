"""Which lines of Python are the user's, and how they are told: `file:line function`, without private folders."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import PurePosixPath

__all__ = ["DEPTH", "SEPARATOR", "lines_of_stack", "user_line"]

DEPTH = 3
"""So many of the user's innermost lines are kept of an operator."""

SEPARATOR = "; "

_NAME = re.compile(r"(.+)\((\d+)\): (.+)", re.DOTALL)
_INSTALLED = re.compile(r".*(?:site|dist)-packages/")
_STANDARD = re.compile(r"/[Ll]ib/python[\d.]*/")
_GENERATED = re.compile(r"/torchinductor_[^/]*/|/\.triton/")
_OUTSIDE = re.compile(r"/|[A-Za-z]:/|(?:.*/)?\.\./|~")
_CELL = "<ipython-input"
# What calls the user's code for the user: the framework, the compiler of kernels, wrappers of the standard library.
_FRAMEWORK = frozenset({"torch", "functorch", "torchgen", "triton"})
_WRAPPERS = frozenset(
    (
        *(
            "_collections_abc",
            "_weakrefset",
            "abc",
            "asyncio",
            "collections",
            "concurrent",
            "contextlib",
            "contextvars",
        ),
        *("copy", "copyreg", "dataclasses", "enum", "functools", "importlib", "inspect", "json", "logging", "os", "re"),
        *("multiprocessing", "pickle", "pkgutil", "runpy", "selectors", "socketserver", "subprocess", "tempfile"),
        *("threading", "traceback", "typing", "typing_extensions", "unittest", "warnings", "weakref"),
    )
)


@lru_cache(1 << 12)
def user_line(name: str, *, keep_private: bool) -> str | None:
    """A frame named `file(line): function` as `file:line function`; None where it is not the user's.

    Of a file outside the folders that Python finds modules in only its own name stays, unless private ones are kept.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    path, line, function = match.groups()
    path = path.replace("\\", "/")
    module = _INSTALLED.sub("", path)
    if not _is_users(path, module):
        return None
    if not keep_private:
        path = PurePosixPath(module).name if _OUTSIDE.match(module) else module
    return f"{path}:{line} {function}"


def _is_users(path: str, module: str) -> bool:
    """`module`: the path from the folder of installed packages on."""
    if path.startswith("<"):
        return path.startswith(_CELL)
    if _GENERATED.search(path) or (module == path and _STANDARD.search(path)):
        return False
    package = module.partition("/")[0].removesuffix(".py")
    return package not in _FRAMEWORK and package not in _WRAPPERS


@lru_cache(1 << 12)
def lines_of_stack(stack: str, *, keep_private: bool) -> str | None:
    """The user's innermost lines of frames joined by `;` or line ends, innermost first; None where there are none."""
    frames = (each.strip() for each in re.split(r"[;\n]", stack))
    lines = [line for each in frames if (line := user_line(each, keep_private=keep_private))]
    return SEPARATOR.join(lines[:DEPTH]) or None
