"""Computes where time, flops and bytes went, and renders the answers.

For Python and notebooks: `import xsp_analyze as xa; t = xa.open("trace.json.gz"); t.analyze("A10").to_pandas()`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xsp_analyze.api.advice import Findings
    from xsp_analyze.api.comparing import ComparedTraces
    from xsp_analyze.api.open_trace import OpenTrace
    from xsp_analyze.api.opening import open  # noqa: A004 (xa.open is what people will type)
    from xsp_analyze.api.overview import Info
    from xsp_analyze.core import Result
    from xsp_model.errors import XspError

__all__ = ["ComparedTraces", "Findings", "Info", "OpenTrace", "Result", "XspError", "open"]

_HOMES = {
    "ComparedTraces": "xsp_analyze.api.comparing",
    "Findings": "xsp_analyze.api.advice",
    "Info": "xsp_analyze.api.overview",
    "OpenTrace": "xsp_analyze.api.open_trace",
    "Result": "xsp_analyze.core",
    "XspError": "xsp_model.errors",
    "open": "xsp_analyze.api.opening",
}


def __getattr__(name: str) -> object:
    """What the API offers, imported when first used: polars takes half a second, and most modules need no API."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
