"""What other distributions bring: what to type where an extra of xsp is missing, and what plug-ins add to it.

xsp is on no package index, but what its extras bring is.
"""

from __future__ import annotations

import re
import traceback
from importlib import import_module
from importlib.metadata import PackageNotFoundError, entry_points, requires
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_model.errors import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PlugInError", "install_advice", "plug_in_fault", "plug_ins", "require"]

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
