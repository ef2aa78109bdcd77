"""What the tags of MLModelScope's spans say of a layer, a kernel or a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from xsp_ingest.files.values import integer, text
from xsp_ingest.formats.jaeger.metrics import FRAMEWORK_MEMORY
from xsp_ingest.formats.jaeger.values import lists_as_json, sizes
from xsp_model import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xsp_ingest.formats.jaeger.document import JaegerSpan
    from xsp_ingest.staging.intervals import Rows

__all__ = ["add_copy", "add_kernel", "add_layer", "device_name"]

_ENDS = {"h": "Host", "d": "Device", "a": "Array", "p": "Peer"}
_UNKNOWN_MEMORY = ("unknown", "<unknown>")


def add_layer(rows: Rows, row: int, span: JaegerSpan, tags: Mapping[str, Any]) -> bool:
    """Adds what the file says of a layer; whether what it says of its memory could be read."""
    allocated, readable = _allocated(tags)
    rows.add(
        "layers",
        row=row,
        sequence_index=integer(tags.get("layer_sequence_index")),
        layer_type=text(tags.get("op_name")) or text(tags.get("static_op_name")) or span.operationName or None,
        shapes=lists_as_json(tags.get("shape")),
        allocated_bytes=allocated,
    )
    for tag, metric in FRAMEWORK_MEMORY.items():
        value = integer(tags.get(tag))
        if value is not None:
            rows.add("metrics", row=row, metric=metric, value=float(value), unit="byte", source="framework")
    return readable


def _allocated(tags: Mapping[str, Any]) -> tuple[int | None, bool]:
    """Bytes of all outputs of the layer, as TensorFlow's allocation descriptions give them."""
    allocated_bytes = integer(tags.get("allocated_bytes"))
    written = text(tags.get("output"))
    if allocated_bytes is not None or written is None:
        return allocated_bytes, True
    try:
        outputs = msgspec.json.decode(written.replace("\\", ""))
    except msgspec.DecodeError:
        return None, False
    allocations = [_allocation(output) for output in outputs] if isinstance(outputs, list) else []
    counts = [count for count in allocations if count is not None]
    return (sum(counts) if counts else None), True


def _allocation(output: Any) -> int | None:  # noqa: ANN401 (JSON of any shape)
    for key in ("tensor_description", "allocation_description", "allocated_bytes"):
        output = output.get(key) if isinstance(output, dict) else None
    return integer(output)


def device_name(kind: Kind, tags: Mapping[str, Any], launch: Mapping[str, Any]) -> str:
    """The kernel's demangled name, else its mangled one, else what its launch says; of a copy its direction."""
    if kind is Kind.MEMCPY:
        return f"Memcpy {_direction(tags).replace('2', 'to').upper().replace('TO', 'to')}".strip()
    if kind is Kind.MEMSET:
        return "Memset"
    named = (tags.get("kernel_name"), tags.get("name"), tags.get("kernel"), launch.get("kernel"))
    return next((name for value in named if (name := text(value)) is not None), "(no name)")


def _direction(tags: Mapping[str, Any]) -> str:
    return (text(tags.get("copy_kind")) or "").lower()


def add_kernel(rows: Rows, row: int, tags: Mapping[str, Any], launch: Mapping[str, Any]) -> None:
    """Adds how a kernel was launched, from its own tags or its launch's."""
    shape: dict[str, object] = {}
    for what in ("grid", "block"):
        axes = sizes(tags.get(f"{what}_dim")) or sizes(launch.get(f"{what}_dim")) or (None, None, None)
        shape |= {f"{what}_{axis}": size for axis, size in zip("xyz", axes, strict=True)}
    rows.add(
        "kernels",
        row=row,
        **shape,
        static_shared_bytes=integer(tags.get("static_sharedMemory")),
        dynamic_shared_bytes=integer(tags.get("dynamic_sharedMemory")),
    )


def add_copy(rows: Rows, row: int, tags: Mapping[str, Any], launch: Mapping[str, Any]) -> None:
    """Adds what a copy or fill moved."""
    source, _, destination = _direction(tags).partition("2")
    ends = [_ENDS.get(end) for end in (source, destination)]
    count = integer(tags.get("bytes"))
    rows.add(
        "copies",
        row=row,
        bytes=integer(launch.get("byte_count")) if count is None else count,
        copy_kind="-to-".join(end for end in ends if end) if all(ends) else None,
        source_kind=_memory(tags.get("src_kind")),
        destination_kind=_memory(tags.get("dst_kind") or tags.get("memory_kind")),
    )


def _memory(value: Any) -> str | None:  # noqa: ANN401
    label = text(value)
    return None if label is None or label.startswith(_UNKNOWN_MEMORY) else label.capitalize()
