"""Closed sets of words that columns hold."""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "DEVICE_KINDS",
    "GRAPH_CAPTURE",
    "LEVELS",
    "Attribution",
    "AttributionBasis",
    "Kind",
    "LayerSource",
    "Level",
    "MemoryKind",
    "Phase",
    "Severity",
]


class Level(StrEnum):
    """Where in the stack a span was taken, outermost first."""

    APPLICATION = "application"
    MODEL = "model"
    LAYER = "layer"
    OPERATOR = "operator"
    LIBRARY = "library"
    RUNTIME = "runtime"
    KERNEL = "kernel"


LEVELS: tuple[Level, ...] = tuple(Level)
"""All levels; a level's rank is its index here."""


class Kind(StrEnum):
    """What a span is, within its level."""

    STEP = "step"  # model: one batch through the model
    MODULE = "module"  # layer: one call of a framework module
    RANGE = "range"  # model, layer or library: a named range (NVTX, annotation)
    OPERATOR = "operator"  # operator: a framework call
    CALL = "call"  # library or runtime: a call into a library or the driver
    SYNC = "sync"  # runtime: a wait of the device or the host, as the device reports it
    KERNEL = "kernel"  # kernel: a function run on a device
    MEMCPY = "memcpy"  # kernel: a copy
    MEMSET = "memset"  # kernel: a fill
    GRAPH = "graph"  # kernel: a whole graph replay, recorded as one activity


DEVICE_KINDS: tuple[Kind, ...] = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.GRAPH)
"""The kinds that occupy a device; their durations are device time."""


class Phase(StrEnum):
    """Which part of a step a span belongs to."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    OTHER = "other"


class MemoryKind(StrEnum):
    """What a block of memory is used for."""

    WEIGHTS = "weights"
    OPTIMIZER_STATE = "optimizer state"
    GRADIENTS = "gradients"
    ACTIVATIONS = "activations"
    INPUTS = "inputs"
    WORKSPACE = "workspace"
    OTHER = "other"  # in use outside of the model's own work
    BEFORE = "from before the recording"  # in use already when the recording began
    UNKNOWN = "unknown"


class Attribution(StrEnum):
    """Where the time of a device activity went; exactly one for each."""

    LAYER = "layer"
    MODEL_ONLY = "model_only"
    GRAPH_REPLAY = "graph_replay"
    ORPHAN_BEFORE_WINDOW = "orphan_before_window"
    ORPHAN_NO_LAUNCH = "orphan_no_launch"
    ORPHAN_NO_CORRELATION = "orphan_no_correlation"
    UNIFIED_MEMORY = "unified_memory"  # migrations, which nobody launches


class AttributionBasis(StrEnum):
    """How the layer of work is known that did not simply run, or was launched, in the layer's call."""

    GRAPH_NODE = "graph_node"  # the file says where the replayed graph's node was captured
    GRAPH_CAPTURE = "graph_capture"  # paired with the launches that were recorded when the graph was captured
    ALIGNED = "aligned"  # paired with the same work of a run without graphs
    ANNOTATION = "annotation"  # the framework wrote it beside the replayed work
    COMPILED_CODE = "compiled_code"  # the compiler says what its generated kernel stands for


GRAPH_CAPTURE = "graph_capture"
"""The role of runs in which graphs were captured: they say what replayed work is, and nothing is timed from them."""


class LayerSource(StrEnum):
    """What the layers of a trace were taken from."""

    MODULE = "module"
    RANGE = "range"
    OPERATOR = "operator"
    NONE = "none"


class Severity(StrEnum):
    """How much a ledger entry should worry its reader."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
