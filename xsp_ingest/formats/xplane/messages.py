"""The protobuf messages of a profile, described at run time: no generated code, no TensorFlow.

Only what XSP uses is described; protobuf passes over the rest. Lines are scanned by `scan`, so a plane is parsed
without them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from xsp_ingest.files.protobuf import Messages

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["message"]

_PACKAGE = "xsp.xplane"
# message: field: number, type; `*` marks a repeated field, `?` one of the alternatives of a value
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Stat": {
        "metadata_id": (1, "int64"),
        "double_value": (2, "double?"),
        "uint64_value": (3, "uint64?"),
        "int64_value": (4, "int64?"),
        "str_value": (5, "bytes?"),  # a string, which need not be UTF-8
        "bytes_value": (6, "bytes?"),
        "ref_value": (7, "uint64?"),
    },
    "EventMetadata": {
        "id": (1, "int64"),
        "name": (2, "bytes"),
        "display_name": (4, "bytes"),
        "stats": (5, "Stat*"),
    },
    "StatMetadata": {"id": (1, "int64"), "name": (2, "bytes")},
    "EventEntry": {"key": (1, "int64"), "value": (2, "EventMetadata")},
    "StatEntry": {"key": (1, "int64"), "value": (2, "StatMetadata")},
    "Plane": {
        "id": (1, "int64"),
        "name": (2, "bytes"),
        "event_metadata": (4, "EventEntry*"),
        "stat_metadata": (5, "StatEntry*"),
        "stats": (6, "Stat*"),
    },
    "HloProto": {"hlo_module": (1, "HloModule")},
    "HloModule": {
        "name": (1, "bytes"),
        "computations": (3, "HloComputation*"),
        "schedule": (7, "HloSchedule"),
        "device_assignment": (15, "HloDeviceAssignment"),
        "stack_frame_index": (17, "bytes"),  # HloStackFrames
    },
    "HloDeviceAssignment": {"replica_count": (1, "int32"), "computation_count": (2, "int32")},
    "HloSchedule": {"sequences": (1, "HloScheduleEntry*")},
    "HloScheduleEntry": {"key": (1, "int64"), "value": (2, "HloSequence")},  # by a computation's id
    "HloSequence": {"instruction_ids": (1, "int64*")},
    "HloComputation": {"instructions": (2, "HloInstruction*"), "id": (5, "int64"), "root_id": (6, "int64")},
    # what only some instructions have is kept as bytes: parsed where it is used, so that damage stays there
    "HloInstruction": {
        "name": (1, "bytes"),
        "opcode": (2, "bytes"),
        "shape": (3, "bytes"),  # HloShape
        "metadata": (7, "HloMetadata"),
        "parameter_number": (9, "int64"),
        "window": (15, "bytes"),  # HloWindow
        "convolution_dimensions": (16, "bytes"),  # HloConvolutionDimensions
        "custom_call_target": (28, "bytes"),
        "dot_dimensions": (30, "bytes"),  # HloDotDimensions
        "id": (35, "int64"),
        "operand_ids": (36, "int64*"),
        "called_computation_ids": (38, "int64*"),
        "backend_config": (43, "bytes"),  # JSON
        "replica_groups": (49, "HloReplicaGroup*"),  # before 2024
        "feature_group_count": (50, "int64"),
        "batch_group_count": (58, "int64"),
        "collective_devices": (87, "bytes"),  # HloCollectiveDevices
    },
    "HloMetadata": {
        "op_type": (1, "bytes"),
        "op_name": (2, "bytes"),
        "source_file": (3, "bytes"),
        "source_line": (4, "int32"),
        "stack_frame_id": (15, "int32"),
    },
    "HloShape": {"element_type": (2, "int64"), "dimensions": (3, "int64*"), "tuple_shapes": (4, "HloShape*")},
    "HloWindow": {"dimensions": (1, "HloWindowDimension*")},
    "HloWindowDimension": {
        "size": (1, "int64"),
        "stride": (2, "int64"),
        "padding_low": (3, "int64"),
        "padding_high": (4, "int64"),
        "window_dilation": (5, "int64"),
        "base_dilation": (6, "int64"),
    },
    "HloConvolutionDimensions": {
        "input_batch": (7, "int64"),
        "input_spatial": (11, "int64*"),
        "kernel_output_feature": (4, "int64"),
        "output_feature": (10, "int64"),
        "output_spatial": (12, "int64*"),
    },
    "HloDotDimensions": {"lhs_contracting": (1, "int64*"), "lhs_batch": (3, "int64*")},
    "HloReplicaGroup": {"replica_ids": (1, "int64*")},
    "HloCollectiveDevices": {"groups": (1, "HloReplicaGroup*"), "regular_groups": (2, "HloRegularGroups")},
    "HloRegularGroups": {"group_count": (1, "int64"), "devices_per_group": (2, "int64")},
    "HloStackFrames": {
        "file_names": (1, "bytes*"),
        "function_names": (2, "bytes*"),
        "locations": (3, "HloFileLocation*"),
        "frames": (4, "HloStackFrame*"),
    },
    "HloFileLocation": {"file": (1, "int32"), "function": (2, "int32"), "line": (3, "int32")},
    "HloStackFrame": {"location": (1, "int32"), "parent": (2, "int32")},
}


_XPLANE = Messages(_PACKAGE, _MESSAGES)


@cache
def message(name: str) -> Any:  # noqa: ANN401 (a class that protobuf makes)
    """The class of the message."""
    return _XPLANE.of(name)
