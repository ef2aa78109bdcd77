"""Which of rocprofv3's outputs a file is, by how it begins or by the names of its tables."""

from __future__ import annotations

import re
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from xsp_ingest.files.perfetto import PACKET
from xsp_ingest.files.sqlite import MAGIC, table_names
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Collection

    from xsp_ingest.files.content import Probe

__all__ = ["CATEGORIES", "Output", "OutputTable", "output_of", "plain_heading", "suffixes", "table_of"]

_JSON = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*\{\s*"rocprofiler-sdk-tool"\s*:\s*\[')
_OLDER = re.compile(rb'\A(?:\xef\xbb\xbf)?\s*(?:\{\s*"traceEvents"\s*:\s*)?\[\s*\{\}\s*,')
_GPU = re.compile(rb'"name"\s*:\s*"(?:GPU\d+|COPY|CPU HIP API)"')
_RPD = frozenset({"rocpd_api", "rocpd_op", "rocpd_api_ops", "rocpd_string"})
_ROCPROF = frozenset({"HIP", "OPS", "COPY"})
_DISPATCHES = (
    frozenset({"KernelName", "gpu-id", "BeginNs", "EndNs"}),
    frozenset({"Kernel_Name", "GPU_ID", "Dispatch_ID", "Start_Timestamp", "End_Timestamp"}),
)
_TABLE = re.compile(r"rocpd_(kernel_dispatch|region)(_[0-9a-fA-F_]+)?")
CATEGORIES = ("hip_api", "hsa_api", "rccl_api", "marker_api", "kernel_dispatch", "memory_copy")
"""The categories of slices that are read."""
_ANNOTATED = (b"begin_ns", b"delta_ns", b"corr_id")
_NAMED = re.compile(b"|".join(b"\x12" + re.escape(bytes([len(c)]) + c.encode()) for c in CATEGORIES))


class Output(IntEnum):
    """The outputs, those that say more first."""

    JSON = 0
    ROCPD = 1
    CSV = 2
    PERFETTO = 3
    RPD = 4  # the database of rocmProfileData
    EVENTS = 5  # its JSON, and that of the first rocprof
    ROCPROF = 6  # the database of the first rocprof
    DISPATCHES = 7  # its CSV, and that of rocprofv2


class OutputTable(Enum):
    """What a file holds, by columns that only it has."""

    KERNELS = frozenset({"Kind", "Agent_Id", "Kernel_Name", "Start_Timestamp", "Grid_Size_X"})
    COPIES = frozenset({"Kind", "Direction", "Source_Agent_Id", "Start_Timestamp"})
    CALLS = frozenset({"Domain", "Function", "Process_Id", "Thread_Id", "Start_Timestamp"})
    COUNTS = frozenset({"Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value"})
    AGENTS = frozenset({"Node_Id", "Logical_Node_Id", "Agent_Type"})


def table_of(text: bytes) -> OutputTable | None:
    """What the content that starts like this is; None where it is none of rocprofv3's traces."""
    columns = _columns(text)
    return next((table for table in OutputTable if table.value <= columns), None)


def _columns(text: bytes) -> frozenset[str]:
    head = text.lstrip(b"\xef\xbb\xbf \r\n").partition(b"\n")[0]
    return frozenset(plain_heading(name) for name in head.decode("utf-8", errors="replace").split(","))


def output_of(probe: Probe) -> Output | None:
    """Which of its outputs the file is; None where it is none."""
    if probe.head.startswith(MAGIC):
        return _database_of(probe)
    if _JSON.match(probe.text):
        return Output.JSON
    if _OLDER.match(probe.text) and _GPU.search(probe.text):
        return Output.EVENTS
    if table_of(probe.text) is not None:
        return Output.CSV
    if any(columns <= _columns(probe.text) for columns in _DISPATCHES):
        return Output.DISPATCHES
    return Output.PERFETTO if _is_perfetto(probe.text) else None


def _database_of(probe: Probe) -> Output | None:
    try:
        tables = table_names(probe.path)
    except XspError:  # damaged: rocprofv3's if the names of its tables stand in what can be read
        return Output.ROCPD if b"rocpd_kernel_dispatch_" in probe.head else None
    if suffixes(tables):
        return Output.ROCPD
    return Output.RPD if tables >= _RPD else Output.ROCPROF if tables >= _ROCPROF else None


def plain_heading(column: str) -> str:
    return column.strip(' "\r')


def suffixes(tables: Collection[str]) -> list[str]:
    """What stands behind the names of each process's tables; none where the database is not rocprofv3's."""
    endings = sorted({match[2] or "" for name in tables if (match := _TABLE.fullmatch(name))})
    return [suffix for suffix in endings if {f"rocpd_{n}{suffix}" for n in ("event", "string", "track")} <= set(tables)]


def _is_perfetto(text: bytes) -> bool:
    """Whether a content that begins so is a Perfetto trace with rocprofv3's categories and annotations."""
    return text[:1] == bytes([PACKET]) and all(name in text for name in _ANNOTATED) and bool(_NAMED.search(text))
