"""The model of XSP: one span tree in Arrow tables, with its ledger and its bundle on disk."""

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
