"""What the driver says of the GPUs of this machine, without what tells one GPU from another of its kind."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from xsp_runners.tool import output_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["gpu_facts"]

_HZ_PER_MHZ = 1_000_000
_BYTES_PER_MIB = 1 << 20
_SMI: Mapping[str, tuple[str, float]] = {
    # field of nvidia-smi: name in the facts, factor
    "memory.total": ("memory_bytes", _BYTES_PER_MIB),
    "power.limit": ("power_limit_w", 1),
    "clocks.max.sm": ("max_sm_clock_hz", _HZ_PER_MHZ),
    "clocks.max.mem": ("max_memory_clock_hz", _HZ_PER_MHZ),
    "pcie.link.gen.max": ("max_pcie_generation", 1),
    "pcie.link.width.max": ("max_pcie_lanes", 1),
}


def gpu_facts() -> dict[str, Any]:
    """`gpus` in the driver's order, `driver_version` and `cuda_version`; empty where no driver answers."""
    return _of_nvml() or _of_smi()


def _of_nvml() -> dict[str, Any]:
    try:
        import pynvml  # noqa: PLC0415 (installed on machines with a GPU only)

        pynvml.nvmlInit()
    except Exception:  # noqa: BLE001 (not installed, or no driver: either way nothing is told)
        return {}

    def query(call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        with suppress(pynvml.NVMLError):
            return call(*arguments)
        return None

    count = query(pynvml.nvmlDeviceGetCount) or 0
    gpus = [_gpu(pynvml, query, pynvml.nvmlDeviceGetHandleByIndex(n)) for n in range(count)]
    cuda = query(pynvml.nvmlSystemGetCudaDriverVersion)
    facts = {
        "gpus": gpus,
        "driver_version": _text(query(pynvml.nvmlSystemGetDriverVersion)),
        "cuda_version": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
    }
    query(pynvml.nvmlShutdown)
    return _without_nulls(facts)


def _gpu(nvml: Any, query: Callable[..., Any], handle: object) -> dict[str, Any]:  # noqa: ANN401
    capability = query(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    memory = query(nvml.nvmlDeviceGetMemoryInfo, handle)
    limit = query(nvml.nvmlDeviceGetPowerManagementLimit, handle)
    clocks = {
        "max_sm_clock_hz": query(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
        "max_memory_clock_hz": query(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM),
        "sm_clock_hz": query(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        "memory_clock_hz": query(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
    }
    mode = query(nvml.nvmlDeviceGetMigMode, handle)
    return _without_nulls(
        {
            "name": _text(query(nvml.nvmlDeviceGetName, handle)),
            "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
            "multiprocessor_cores": query(nvml.nvmlDeviceGetNumGpuCores, handle),
            "memory_bytes": None if memory is None else memory.total,
            "power_limit_w": None if limit is None else limit / 1000,
            **{name: None if mhz is None else mhz * _HZ_PER_MHZ for name, mhz in clocks.items()},
            "max_pcie_generation": query(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            "max_pcie_lanes": query(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
            "mig": None if mode is None else bool(mode[0]),
        }
    )


def _of_smi() -> dict[str, Any]:
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return {}
    for first in ("name,driver_version,compute_cap", "name,driver_version"):  # drivers before 2021 lack the last
        status, text = output_of([smi, f"--query-gpu={first},{','.join(_SMI)}", "--format=csv,noheader,nounits"])
        fields = [*first.split(","), *_SMI]
        rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
        rows = [row for row in rows if len(row) == len(fields)]
        if status == 0 and rows:
            named = [dict(zip(fields, row, strict=True)) for row in rows]
            return {"gpus": [_of_row(row) for row in named], "driver_version": named[0]["driver_version"]}
    return {}


def _of_row(row: Mapping[str, str]) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": row["name"], "compute_capability": row.get("compute_cap")}
    for field, (name, factor) in _SMI.items():
        with suppress(ValueError):  # [N/A] and the like
            number = float(row[field]) * factor
            facts[name] = number if name.endswith("_w") else int(number)
    return _without_nulls(facts)


def _text(value: object) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else None if value is None else str(value)


def _without_nulls(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value is not None}
