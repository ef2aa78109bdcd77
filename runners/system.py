"""What a run was made on: GPUs, driver, clocks, CPU, memory, versions, settings; nothing private.

    python -m xsp_runners.system --out system.json

Names of the machine and its user, folders, addresses, serial numbers and UUIDs are never asked for. What cannot be
found out is left out.
"""

from __future__ import annotations

import json
import os
import platform
import re
import runpy
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.ncu import VARIABLE as NCU_VARIABLE
from xsp_runners.nsys import VARIABLE as NSYS_VARIABLE
from xsp_runners.nvml import BYTES_PER_MIB, HZ_PER_MHZ
from xsp_runners.run_folder import RunnerError, put_json
from xsp_runners.tools.programs import Parser, answer, exit_status, find_tool, output_of, smi_rows, text_of, version_of
from xsp_runners.tools.sampling import without_nulls

__all__ = ["NAME", "gpu_facts", "main", "system_facts"]

_SMI: Mapping[str, tuple[str, float]] = {
    # field of nvidia-smi: name in the facts, factor
    "memory.total": ("memory_bytes", BYTES_PER_MIB),
    "power.limit": ("power_limit_w", 1),
    "clocks.max.sm": ("max_sm_clock_hz", HZ_PER_MHZ),
    "clocks.max.mem": ("max_memory_clock_hz", HZ_PER_MHZ),
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

    def query(call: Callable[..., Any], *arguments: object) -> Any:
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
    return without_nulls(facts)


def _gpu(nvml: Any, query: Callable[..., Any], handle: object) -> dict[str, Any]:
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
    return without_nulls(
        {
            "name": _text(query(nvml.nvmlDeviceGetName, handle)),
            "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
            "multiprocessor_cores": query(nvml.nvmlDeviceGetNumGpuCores, handle),
            "memory_bytes": None if memory is None else memory.total,
            "power_limit_w": None if limit is None else limit / 1000,
            **{name: None if mhz is None else mhz * HZ_PER_MHZ for name, mhz in clocks.items()},
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
        fields = [*first.split(","), *_SMI]
        if rows := smi_rows(smi, fields):
            named = [dict(zip(fields, row, strict=True)) for row in rows]
            return {"gpus": [_of_row(row) for row in named], "driver_version": named[0]["driver_version"]}
    return {}


def _of_row(row: Mapping[str, str]) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": row["name"], "compute_capability": row.get("compute_cap")}
    for field, (name, factor) in _SMI.items():
        with suppress(ValueError):  # [N/A] and the like
            number = float(row[field]) * factor
            facts[name] = number if name.endswith("_w") else int(number)
    return without_nulls(facts)


def _text(value: object) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else None if value is None else str(value)


NAME = "system.json"
"""The file beside run.json."""
SCHEMA_VERSION = 1
_PACKAGES = (
    *("torch", "torchvision", "torchaudio", "timm", "transformers", "triton", "accelerate", "deepspeed", "vllm"),
    *("tensorflow", "tensorflow-cpu", "keras", "jax", "jaxlib", "flax", "onnxruntime", "onnxruntime-gpu", "tensorrt"),
    *("numpy", "cupy-cuda12x", "cupy-cuda13x", "cupti-python", "nvidia-ml-py", "nvtx", "xsp"),
    *("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cublas-cu12"),
    *("nvidia-cuda-cupti-cu12", "nvidia-cuda-cupti", "nvidia-cublas"),
)
_SETTINGS = (
    *("CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING"),
    *("CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
    *("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCHINDUCTOR_MAX_AUTOTUNE", "NCCL_ALGO", "NCCL_PROTO"),
    *("TF_ENABLE_ONEDNN_OPTS", "TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC", "TF_FORCE_GPU_ALLOW_GROWTH"),
    *("XLA_PYTHON_CLIENT_PREALLOCATE", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY"),
)
_HARMLESS = re.compile(r"[\w.,:;=+ -]{0,120}\Z")  # a value with a folder or an address in it is not written
_MODEL_NAME = re.compile(r"(?m)^model name\s*:\s*(.+)$")
_CORE = re.compile(r"(?m)^physical id\s*:\s*(\d+)(?:\n(?!\n).*)*?\ncore id\s*:\s*(\d+)$")
_KB_IN_TOTAL = re.compile(r"(?m)^MemTotal:\s*(\d+) kB")
_BYTES_PER_KB = 1024


def system_facts(*, tools: bool = True) -> dict[str, Any]:
    """The facts as JSON has them, with or without versions of NVIDIA's tools; what is not known is left out."""
    facts: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **gpu_facts(), "cpu": _cpu()}
    if memory := _KB_IN_TOTAL.search(text_of(Path("/proc/meminfo"))):
        facts["memory_bytes"] = int(memory[1]) * _BYTES_PER_KB
    facts["os"] = {"system": platform.system(), "release": platform.release(), "machine": platform.machine()}
    facts["python"] = f"{platform.python_implementation()} {platform.python_version()}"
    facts["packages"] = _packages()
    if tools:
        facts["tools"] = _tools()
    facts["settings"] = {
        name: value for name in _SETTINGS if (value := os.environ.get(name)) is not None and _HARMLESS.match(value)
    }
    return facts


def _cpu() -> dict[str, Any]:
    text = text_of(Path("/proc/cpuinfo"))
    model = _MODEL_NAME.search(text)
    facts: dict[str, Any] = {"name": model[1].strip() if model else platform.processor() or platform.machine()}
    facts["logical_cores"] = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        facts["usable_cores"] = len(os.sched_getaffinity(0))
    if cores := set(_CORE.findall(text)):
        facts["physical_cores"] = len(cores)
    if governor := text_of(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")).strip():
        facts["frequency_governor"] = governor
    return facts


def _packages() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _tools() -> dict[str, str]:
    """Versions of NVIDIA's tools, where they are."""
    versions = {}
    for name, variable in (("nsys", NSYS_VARIABLE), ("ncu", NCU_VARIABLE)):
        with suppress(RunnerError):
            version = version_of(output_of([find_tool(name, variable=variable), "--version"])[1])
            if version:
                versions[name] = ".".join(map(str, version))
    return versions


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the facts, or writes them into a file; 0, or 2 after a sentence on stderr."""
    parser = Parser("system", description="What runs are made on here, as JSON; nothing private.")
    parser.add_argument("-o", "--out", type=Path, help=f"the file, as {NAME}; default: standard output")
    parser.add_argument("--no-tools", action="store_true", help="do not ask nsys and ncu for their versions")
    args = parser.parse_args(arguments)
    facts = system_facts(tools=not args.no_tools)
    if args.out is None:
        answer(json.dumps(facts, indent=2))
        return 0

    def write() -> int:
        put_json(args.out, facts)
        return 0

    return exit_status("system", write)


if __name__ == "__main__":
    sys.exit(main())
