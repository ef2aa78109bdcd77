"""XSP in Python: `import xsp; trace = xsp.open("trace.json.gz"); trace.analyze("A10").to_pandas()`."""

from importlib import import_module

TYPE_CHECKING = False  # as type checkers read it: `python -m xsp` imports this before the current folder is off the way
if TYPE_CHECKING:
    from xsp import history as history
    from xsp.api.comparing import ComparedTraces
    from xsp.api.open_trace import Findings, OpenTrace, Result, open  # noqa: A004 (xsp.open is what people will type)
    from xsp.api.overview import Info
    from xsp_model.errors import XspError

__all__ = ["ComparedTraces", "Findings", "Info", "OpenTrace", "Result", "XspError", "open"]

_HOMES = {
    "ComparedTraces": "xsp.api.comparing",
    "Findings": "xsp.api.open_trace",
    "Info": "xsp.api.overview",
    "OpenTrace": "xsp.api.open_trace",
    "Result": "xsp.api.open_trace",
    "XspError": "xsp_model.errors",
    "open": "xsp.api.open_trace",
}


def __getattr__(name: str) -> object:
    """What the API offers, imported when first used: polars takes half a second, and most modules need no API."""
    if name == "history":
        return import_module("xsp.history")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
