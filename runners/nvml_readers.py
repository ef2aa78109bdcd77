"""What the driver tells of each GPU at a moment: through the package nvidia-ml-py.

A sample is a dict with `device` and what is known of: power_w, energy_j, sm_clock_hz, memory_clock_hz, temperature_c,
memory_used_bytes, gpu_utilization and memory_utilization (shares of the driver's last sampling period), throttle
(reasons for clocks below their highest, as words). What a GPU does not tell is left out.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = [
    "BYTES_PER_MIB",
    "HZ_PER_MHZ",
    "NvmlReader",
    "Reader",
    "cuda_ordinals",
    "reasons_of",
    "scale",
    "without_nulls",
]

HZ_PER_MHZ = 1_000_000
BYTES_PER_MIB = 1 << 20

_REASONS: Mapping[int, str] = {  # NVML's bits
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


def reasons_of(bits: int) -> list[str]:
    """NVML's reasons for clocks below the highest, as words."""
    return [reason for bit, reason in _REASONS.items() if bits & bit]


class Reader(Protocol):
    """Where samples come from."""

    source: str
    devices: list[dict[str, Any]]
    driver_version: str | None

    def samples(self, interval_s: float) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Unix time in ns, and a sample of each device, again and again, as near to the interval as can be."""

    def once(self) -> tuple[int, list[dict[str, Any]]]:
        """Unix time in ns, and a sample of each device."""

    def close(self) -> None:
        """Ends it."""


def cuda_ordinals(uuids: Sequence[str], visible: str | None) -> dict[int, int]:
    """What CUDA programs number the GPUs by, for each of the driver's that they see; `visible`: CUDA_VISIBLE_DEVICES.

    Without it they are numbered as the driver has them, which holds where all GPUs are alike.
    """
    if visible is None:
        return {index: index for index in range(len(uuids))}
    ordinals: dict[int, int] = {}
    for ordinal, prefix in enumerate(part.strip() for part in visible.split(",")):
        fitting = [n for n, uuid in enumerate(uuids) if prefix and (uuid.startswith(prefix) or prefix == str(n))]
        if len(fitting) != 1:
            break  # CUDA, too, sees none after one that it cannot find
        ordinals[fitting[0]] = ordinal
    return ordinals


class NvmlReader:
    """Samples through nvidia-ml-py; RunnerError where it is not installed or finds no driver."""

    source = "nvidia-ml-py"

    def __init__(self) -> None:
        try:
            import pynvml  # noqa: PLC0415 (installed on machines with a GPU only)
        except ImportError as error:
            raise RunnerError("nvidia-ml-py is not installed") from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
            uuids = [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        except pynvml.NVMLError as error:
            raise RunnerError(f"NVML says: {error}") from error
        ordinals = cuda_ordinals(uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._handles = {ordinal: handles[index] for index, ordinal in ordinals.items()}
        if not self._handles:
            raise RunnerError("there is no GPU that this process may see")
        self.devices = [self._device(ordinal, handle) for ordinal, handle in self._handles.items()]
        self.driver_version: str | None = _text(self._query(pynvml.nvmlSystemGetDriverVersion))

    def _query(self, call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """The call's answer; None where this GPU or driver does not tell."""
        with suppress(self._nvml.NVMLError):
            return call(*arguments)
        return None

    def _device(self, ordinal: int, handle: object) -> dict[str, Any]:
        limit = self._query(self._nvml.nvmlDeviceGetPowerManagementLimit, handle)
        name = _text(self._query(self._nvml.nvmlDeviceGetName, handle))
        return without_nulls({"device": ordinal, "name": name, "power_limit_w": scale(limit, 1e-3)})

    def samples(self, interval_s: float) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """A moment of all devices each interval; one that is late is not made up for."""
        following = time.monotonic()
        while True:
            yield self.once()
            following = max(following + interval_s, time.monotonic())
            time.sleep(max(0.0, following - time.monotonic()))

    def once(self) -> tuple[int, list[dict[str, Any]]]:
        """All devices at this moment."""
        return time.time_ns(), [self._sample(ordinal, handle) for ordinal, handle in self._handles.items()]

    def _sample(self, ordinal: int, handle: object) -> dict[str, Any]:
        nvml, query = self._nvml, self._query
        used = query(nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = query(nvml.nvmlDeviceGetUtilizationRates, handle)
        bits = query(_reasons_call(nvml), handle)
        return without_nulls(
            {
                "device": ordinal,
                "power_w": scale(query(nvml.nvmlDeviceGetPowerUsage, handle), 1e-3),
                "energy_j": scale(query(nvml.nvmlDeviceGetTotalEnergyConsumption, handle), 1e-3),
                "sm_clock_hz": scale(query(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM), HZ_PER_MHZ),
                "memory_clock_hz": scale(query(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM), HZ_PER_MHZ),
                "temperature_c": query(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
                "memory_used_bytes": None if used is None else used.used,
                "gpu_utilization": None if rates is None else rates.gpu / 100,
                "memory_utilization": None if rates is None else rates.memory / 100,
                "throttle": None if bits is None else reasons_of(bits),
            }
        )

    def close(self) -> None:
        """Lets go of the driver."""
        self._query(self._nvml.nvmlShutdown)


def _reasons_call(nvml: Any) -> Any:  # noqa: ANN401
    """NVIDIA renamed the call with driver 535."""
    return (
        getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def scale(value: float | None, factor: float) -> float | None:
    """The value in the unit wanted, at the three decimals that NVML has at most."""
    return None if value is None else round(value * factor, 3)


def without_nulls(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if value is not None}
