"""The model of XSP: one span tree in Arrow tables, with its ledger and its bundle on disk."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xsp_model.builder import TraceBuilder
    from xsp_model.errors import XspError
    from xsp_model.ledger import Finding
    from xsp_model.ledger_kinds import LedgerKind
    from xsp_model.trace import Trace
    from xsp_model.vocabulary import (
        GRAPH_CAPTURE,
        Attribution,
        AttributionBasis,
        Kind,
        LayerSource,
        Level,
        MemoryKind,
        Phase,
        Severity,
    )
else:  # errors and paths are needed where polars, which the tables take, would double the time
    _HOMES = {
        "TraceBuilder": "builder",
        "XspError": "errors",
        "Finding": "ledger",
        "LedgerKind": "ledger_kinds",
        "Trace": "trace",
    }

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'vocabulary')}"), name)
        return globals()[name]


__all__ = [
    "GRAPH_CAPTURE",
    "Attribution",
    "AttributionBasis",
    "Finding",
    "Kind",
    "LayerSource",
    "LedgerKind",
    "Level",
    "MemoryKind",
    "Phase",
    "Severity",
    "Trace",
    "TraceBuilder",
    "XspError",
]
