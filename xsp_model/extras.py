"""What to type where an extra of xsp is missing: xsp is on no package index, but what its extras bring is."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

from xsp_model.errors import XspError

__all__ = ["install_advice", "require"]

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
