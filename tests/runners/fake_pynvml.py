"""Stands in for the module pynvml of nvidia-ml-py: two GPUs, the second of which tells little.

It is copied as `pynvml.py` to where a sampler finds it, so it imports nothing of the project. Names are NVIDIA's.
"""

from __future__ import annotations

import itertools
import os
from types import SimpleNamespace

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
_power = itertools.count(100_000, 1_000)
_NAMES = ("Made-up GPU", "Made-up GPU")
_UUIDS = ("GPU-aaaa1111", "GPU-bbbb2222")


class NVMLError(Exception):
    """As NVML's."""


def _second_does_not_tell(handle: int) -> None:
    if handle == 1:
        raise NVMLError("Not Supported")


def nvmlInit() -> None:  # noqa: N802
    if os.environ.get("FAKE_NVML") == "absent":
        raise NVMLError("NVML Shared Library Not Found")


def nvmlShutdown() -> None:  # noqa: N802
    pass


def nvmlDeviceGetCount() -> int:  # noqa: N802
    return len(_NAMES)


def nvmlDeviceGetHandleByIndex(index: int) -> int:  # noqa: N802
    return index


def nvmlDeviceGetUUID(handle: int) -> bytes:  # noqa: N802
    return _UUIDS[handle].encode()  # older versions of the package give bytes


def nvmlDeviceGetName(handle: int) -> str:  # noqa: N802
    return _NAMES[handle]


def nvmlSystemGetDriverVersion() -> str:  # noqa: N802
    return "580.65"


def nvmlDeviceGetPowerManagementLimit(handle: int) -> int:  # noqa: N802
    _second_does_not_tell(handle)
    return 700_000


def nvmlDeviceGetPowerUsage(handle: int) -> int:  # noqa: N802
    _second_does_not_tell(handle)
    return next(_power)


def nvmlDeviceGetTotalEnergyConsumption(handle: int) -> int:  # noqa: N802
    _second_does_not_tell(handle)
    return 5_000_123


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:  # noqa: N802
    del handle
    return {NVML_CLOCK_SM: 1980, NVML_CLOCK_MEM: 2619}[kind]


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:  # noqa: N802
    assert sensor == NVML_TEMPERATURE_GPU
    return 40 + handle


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:  # noqa: N802
    return SimpleNamespace(used=(handle + 1) << 30, free=0, total=1 << 37)


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:  # noqa: N802
    _second_does_not_tell(handle)
    return SimpleNamespace(gpu=93, memory=31)


def nvmlDeviceGetCurrentClocksEventReasons(handle: int) -> int:  # noqa: N802
    return 0x4 if handle == 0 else 0x1
