"""The JSON that `rocprofv3 --output-format json` writes, as far as it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from xsp_ingest.content import cut_off, whole
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Agent", "Process", "load"]

_MOST_BYTES = 1 << 30


class _Handle(msgspec.Struct, frozen=True):
    handle: int = 0


class _Size(msgspec.Struct, frozen=True):
    x: int | None = None
    y: int | None = None
    z: int | None = None


class _Correlation(msgspec.Struct, frozen=True):
    internal: int = 0


class _Dispatch(msgspec.Struct, frozen=True):
    agent_id: _Handle = _Handle()
    queue_id: _Handle = _Handle()
    kernel_id: int = 0
    group_segment_size: int | None = None
    workgroup_size: _Size = _Size()
    grid_size: _Size = _Size()


class Record(msgspec.Struct, frozen=True):
    """A record of any kind; those that are no dispatch or copy lack most of the fields."""

    start_timestamp: int | None = None
    end_timestamp: int | None = None
    kind: int = 0
    operation: int = 0
    thread_id: int | None = None
    correlation_id: _Correlation = _Correlation()
    stream_id: _Handle | None = None
    dispatch_info: _Dispatch = _Dispatch()
    src_agent_id: _Handle = _Handle()
    dst_agent_id: _Handle = _Handle()
    bytes: int | None = None


class _Records(msgspec.Struct, frozen=True):
    kernel_dispatch: list[Record] = []
    memory_copy: list[Record] = []
    hip_api: list[Record] = []
    hsa_api: list[Record] = []
    rccl_api: list[Record] = []
    marker_api: list[Record] = []


class _Symbol(msgspec.Struct, frozen=True):
    kernel_id: int = 0
    kernel_name: str = ""
    demangled_kernel_name: str = ""
    arch_vgpr_count: int | None = None
    group_segment_size: int | None = None


class _Bank(msgspec.Struct, frozen=True):
    heap_type: int = 0
    size_in_bytes: int = 0


class Agent(msgspec.Struct, frozen=True):
    """A processor: type 1 is a CPU, 2 a GPU."""

    id: _Handle = _Handle()
    type: int = 0
    node_id: int = 0
    logical_node_id: int | None = None
    name: str = ""
    product_name: str = ""
    cu_count: int | None = None
    max_engine_clk_fcompute: int | None = None
    mem_banks: list[_Bank] = []


class _Kind(msgspec.Struct, frozen=True):
    operations: list[str] = []


class _Text(msgspec.Struct, frozen=True):
    key: int = 0
    value: str = ""


class _Strings(msgspec.Struct, frozen=True):
    buffer_records: list[_Kind] = []
    marker_api: list[_Text] | dict[str, Any] = []


class _Metadata(msgspec.Struct, frozen=True):
    pid: int | None = None


class Process(msgspec.Struct, frozen=True):
    """What the tool wrote of one process."""

    metadata: _Metadata = _Metadata()
    agents: list[Agent] = []
    strings: _Strings = _Strings()
    kernel_symbols: list[_Symbol] = []
    buffer_records: _Records = _Records()


class _Document(msgspec.Struct, frozen=True):
    tool: list[Process] = msgspec.field(name="rocprofiler-sdk-tool")


def load(path: Path) -> list[Process]:
    """The processes of the file; XspError where it is cut off, no such JSON, or more than 1 GiB of it."""
    content = whole(path, _MOST_BYTES)
    try:
        return _decoded(content)
    except msgspec.ValidationError as error:
        raise XspError(f"the rocprofv3 JSON is not as its tool writes it ({error})", path=path) from error
    except (msgspec.DecodeError, RecursionError) as error:
        if "truncated" in str(error):
            raise cut_off(path, "its JSON does not end") from error
        raise XspError("the rocprofv3 output is no valid JSON", path=path, advice="Write or copy it again") from error


def _decoded(content: bytes) -> list[Process]:
    try:
        return msgspec.json.decode(content, type=_Document).tool
    except UnicodeDecodeError:  # a second copy only where it must be
        return msgspec.json.decode(content.decode("utf-8", errors="replace"), type=_Document).tool
