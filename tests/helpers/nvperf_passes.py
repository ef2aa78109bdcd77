"""How often a kernel runs for a group of counters, as NVIDIA's own planner has it: libnvperf_host, without a GPU.

    python -m tests.helpers.nvperf_passes libnvperf_host.so < requests.json

takes `[[chip, [counter, ...]], ...]` and prints a number of passes for each, null where the library does not know the
chip or a counter. It is the library that CUPTI and ncu plan with: `nvperf_host.h` and `nvperf_cuda_host.h` of CUPTI.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any, ClassVar

_PROFILER = 1  # NVPA_ACTIVITY_KIND_PROFILER
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t


class _EvalRequest(ctypes.Structure):
    _fields_: ClassVar = [
        ("metricIndex", _SIZE),
        ("metricType", ctypes.c_uint8),
        ("rollupOp", ctypes.c_uint8),
        ("submetric", ctypes.c_uint16),
    ]


class _RawRequest(ctypes.Structure):
    _fields_: ClassVar = [
        ("structSize", _SIZE),
        ("pPriv", _POINTER),
        ("pMetricName", ctypes.c_char_p),
        ("isolated", ctypes.c_uint8),
        ("keepInstances", ctypes.c_uint8),
    ]


_EVAL_SIZE = 12  # up to and with the last field, as NVPA_STRUCT_SIZE counts
_RAW_SIZE = 26


class _NotKnownError(Exception):
    """The library refused."""


class _Library:
    """Calls take one structure: its size, a null pointer, and then the fields given here, which are read afterwards."""

    def __init__(self, path: str) -> None:
        self._functions = ctypes.CDLL(path)
        self.call("InitializeHost")

    def call(self, name: str, *fields: Any) -> list[Any]:  # noqa: ANN401
        typed = [("f0", _SIZE), ("f1", _POINTER), *((f"f{n + 2}", type(value)) for n, value in enumerate(fields))]
        structure = type("Params", (ctypes.Structure,), {"_fields_": typed})
        last = getattr(structure, typed[-1][0])
        params = structure(last.offset + last.size, None, *fields)
        if getattr(self._functions, f"NVPW_{name}")(ctypes.byref(params)):
            raise _NotKnownError(name)
        return [getattr(params, field) for field, _ in typed[2:]]


def passes(library: _Library, chip: str, metrics: list[str]) -> int:
    """Passes for these counters together; _NotKnownError where the chip or one of them is not known."""
    raw = _raw_counters(library, chip.encode(), metrics)
    create = (ctypes.c_int(_PROFILER), ctypes.c_char_p(chip.encode()), _POINTER(), _POINTER())
    config = _POINTER(library.call("CUDA_RawMetricsConfig_Create_V2", *create)[-1])
    library.call("RawMetricsConfig_BeginPassGroup", config, _SIZE(0))
    requests = (_RawRequest * len(raw))(*(_RawRequest(_RAW_SIZE, None, name, 1, 0) for name in raw))
    library.call("RawMetricsConfig_AddMetrics", config, ctypes.cast(requests, _POINTER), _SIZE(len(raw)))
    library.call("RawMetricsConfig_EndPassGroup", config)
    library.call("RawMetricsConfig_GenerateConfigImage", config, ctypes.c_uint8(0))
    pipelined, isolated = library.call("RawMetricsConfig_GetNumPasses", config, _SIZE(), _SIZE())[1:]
    library.call("RawMetricsConfig_Destroy", config)
    return int(pipelined) + int(isolated)


def _raw_counters(library: _Library, chip: bytes, metrics: list[str]) -> list[bytes]:
    """The hardware's own counters that these are made of."""
    name = ctypes.c_char_p(chip)
    size = library.call("CUDA_MetricsEvaluator_CalculateScratchBufferSize", name, _POINTER(), _SIZE())[-1]
    scratch = (ctypes.c_uint8 * size)()
    arguments = (ctypes.cast(scratch, _POINTER), _SIZE(size), name, _POINTER(), _POINTER(), _SIZE(0), _POINTER())
    evaluator = _POINTER(library.call("CUDA_MetricsEvaluator_Initialize", *arguments)[-1])
    raw_names: dict[bytes, None] = {}
    for metric in metrics:
        request = _EvalRequest()
        request_at = ctypes.cast(ctypes.byref(request), _POINTER)
        convert = "MetricsEvaluator_ConvertMetricNameToMetricEvalRequest"
        library.call(convert, evaluator, ctypes.c_char_p(metric.encode()), request_at, _SIZE(_EVAL_SIZE))
        sizes = (_SIZE(1), _SIZE(_EVAL_SIZE), _SIZE(ctypes.sizeof(_EvalRequest)))
        raw = "MetricsEvaluator_GetMetricRawDependencies"
        counts = library.call(raw, evaluator, request_at, *sizes, _POINTER(), _SIZE(0), _POINTER(), _SIZE(0))
        names = (ctypes.c_char_p * counts[6])()
        names_at = ctypes.cast(names, _POINTER)
        library.call(raw, evaluator, request_at, *sizes, names_at, _SIZE(counts[6]), _POINTER(), _SIZE(0))
        raw_names.update(dict.fromkeys(each for each in names if each))
    library.call("MetricsEvaluator_Destroy", evaluator)
    return list(raw_names)


def _passes_or_none(library: _Library, chip: str, metrics: list[str]) -> int | None:
    try:
        return passes(library, chip, metrics)
    except _NotKnownError:
        return None


if __name__ == "__main__":
    planner = _Library(sys.argv[1])
    answers = [_passes_or_none(planner, chip, metrics) for chip, metrics in json.load(sys.stdin)]
    sys.stdout.write(json.dumps(answers))
