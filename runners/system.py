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
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.answers import Parser, answer
from xsp_runners.ncu_command import VARIABLE as NCU_VARIABLE
from xsp_runners.nsys_command import VARIABLE as NSYS_VARIABLE
from xsp_runners.run_folder import RunnerError, put_json
from xsp_runners.system_gpus import gpu_facts
from xsp_runners.tool import find_tool, output_of, version_of

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["NAME", "SCHEMA_VERSION", "main", "system_facts"]

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
_USER_ERROR = 2


def system_facts(*, tools: bool = True) -> dict[str, Any]:
    """The facts as JSON has them, with or without versions of NVIDIA's tools; what is not known is left out."""
    facts: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **gpu_facts(), "cpu": _cpu()}
    if memory := _KB_IN_TOTAL.search(_text_of("/proc/meminfo")):
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


def _text_of(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace")
    return ""


def _cpu() -> dict[str, Any]:
    text = _text_of("/proc/cpuinfo")
    model = _MODEL_NAME.search(text)
    facts: dict[str, Any] = {"name": model[1].strip() if model else platform.processor() or platform.machine()}
    facts["logical_cores"] = os.cpu_count()
    if hasattr(os, "sched_getaffinity"):
        facts["usable_cores"] = len(os.sched_getaffinity(0))
    if cores := set(_CORE.findall(text)):
        facts["physical_cores"] = len(cores)
    if governor := _text_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip():
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
    try:
        put_json(args.out, facts)
    except RunnerError as error:
        print(f"system: {error}", file=sys.stderr)
        return _USER_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
