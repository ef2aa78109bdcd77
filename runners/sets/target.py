"""What the Python that will run the work has for it: the framework, and the GPUs that the framework sees.

    python runners/sets/target.py torch

The framework is asked, not the driver: it honours CUDA_VISIBLE_DEVICES, it numbers GPUs as the work will, and it may be
built for the CPU on a machine that has a GPU. `probe` starts this file under the Python that `--python` names.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).parents[1] / "by_path.py"))

from xsp_runners.run_folder import RunnerError
from xsp_runners.tools.programs import find_gpu

__all__ = ["ASSUMED", "Target", "probe"]

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_PACKAGES = {"torch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-cpu"), "jax": ("jax",)}
_SECONDS = 300  # a first import from a slow disk takes minutes


@dataclass(frozen=True)
class Target:
    """A framework and what it runs on: `platform` is cuda, rocm, xpu, mps or cpu."""

    framework: str
    version: str = ""
    platform: str = "cpu"
    built_for: str = ""  # such as CUDA 13.0; empty where it is the CPU or nobody told
    gpus: Sequence[Mapping[str, Any]] = ()  # name, capability, memory_bytes, multiprocessors, as far as they are told
    unused_gpu: str | None = None  # one that the driver names and the framework does not see

    def on_gpu(self, device: str) -> bool:
        """Whether work for this `--device` will be on a GPU that `cuda` names, AMD's among them."""
        return device != "cpu" and self.platform in ("cuda", "rocm")

    @property
    def gpu(self) -> tuple[str | None, str | None] | None:
        """Name and compute capability of the GPU that work runs on unless it chooses another one."""
        return (self.gpus[0].get("name"), self.gpus[0].get("capability")) if self.gpus else None

    def check(self, device: str, *, tools: Sequence[str]) -> None:
        """RunnerError where the device is not there, or a tool of NVIDIA's is asked for without a GPU of theirs."""
        if device == "cuda" and not self.on_gpu(device):
            built = " (it is built for the CPU)" if self.unused_gpu else ""
            raise RunnerError(f"{self.framework} sees no GPU here{built}: choose --device cpu")
        nvidia_tools = [tool for tool in ("nsys", "cupti", "ncu") if tool in tools]
        if self.platform == "rocm" and nvidia_tools and device != "cpu":
            raise RunnerError(
                f"{nvidia_tools[0]} is of NVIDIA's GPUs and this torch is of AMD's ({self.built_for}): choose --kernels"
                " framework or --kernels rocprof"
            )
        if self.platform == "cuda" and "rocprof" in tools and device != "cpu":
            raise RunnerError("rocprofv3 is of AMD's GPUs, and this one is of NVIDIA's: choose --kernels nsys or cupti")

    def sentences(self, device: str) -> list[str]:
        """What the user should know before anything runs."""
        lines = [self._head(device)]
        if device != "cpu" and self.platform in ("xpu", "mps"):
            kind = "an Intel GPU (XPU)" if self.platform == "xpu" else "an Apple GPU (MPS)"
            lines.append(f"{self.framework} sees {kind}, which the runners do not measure: runs are on the CPU")
        if device == "auto" and self.unused_gpu:
            lines.append(f"{self.framework} does not see the GPU here ({self.unused_gpu}): runs are on the CPU")
        if self.on_gpu(device) and "MIG" in str(self.gpus[0].get("name", "")).split():
            lines.append(
                "the GPU is a MIG instance: peaks of the whole GPU are not its own (give device.peaks in run.json), and"
                " power is that of the whole GPU"
            )
        return lines

    def _head(self, device: str) -> str:
        built = f" ({self.built_for})" if self.built_for else ""
        if not self.on_gpu(device):
            return f"{self.framework} {self.version}{built}, on the CPU"
        name, capability = self.gpu or (None, None)
        seen = f", the first of {len(self.gpus)} visible" if len(self.gpus) > 1 else ""
        visible = "".join(f", {name}={os.environ[name]}" for name in _VISIBLE if os.environ.get(name))
        return f"{self.framework} {self.version}{built}, on {name} ({capability}){seen}{visible}"


ASSUMED = Target("", platform="cuda")
"""What a dry run takes for granted where nothing was said: the commands are for another machine, with a GPU."""


def probe(python: str, framework: str) -> Target:
    """What that Python has; RunnerError where the framework is not installed there, or the Python does not answer."""
    command = [python, str(Path(__file__).resolve()), framework]
    try:
        done = subprocess.run(  # noqa: S603 (the user's own Python)
            command, check=False, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunnerError(f"{python} could not say what it has: {error}") from error
    answer = next((line for line in reversed(done.stdout.splitlines()) if line.startswith("{")), None)
    if answer is None:
        last = next(iter(reversed(done.stderr.strip().splitlines())), f"it ended with status {done.returncode}")
        raise RunnerError(f"{framework} cannot be used in {python}: {last}")
    facts = json.loads(answer)
    if "missing" in facts:
        package = _PACKAGES[framework][0]
        raise RunnerError(f"{package} is not installed in {python}: {python} -m pip install {package}")
    return Target(framework, **facts)


def _of_torch() -> dict[str, Any]:
    torch: Any = importlib.import_module("torch")
    facts: dict[str, Any] = {"version": str(torch.__version__)}
    hip = getattr(torch.version, "hip", None)
    if hip or torch.version.cuda:
        facts["built_for"] = f"ROCm {hip}" if hip else f"CUDA {torch.version.cuda}"
    if torch.cuda.is_available():
        gpus = [_gpu(torch.cuda.get_device_properties(n)) for n in range(torch.cuda.device_count())]
        return {**facts, "platform": "rocm" if hip else "cuda", "gpus": gpus}
    xpu, mps = getattr(torch, "xpu", None), getattr(torch.backends, "mps", None)
    if xpu is not None and xpu.is_available():
        return {**facts, "platform": "xpu", "gpus": [{"name": torch.xpu.get_device_name()}]}
    if mps is not None and mps.is_available():
        return {**facts, "platform": "mps"}
    return {**facts, "unused_gpu": _of_driver()}


def _gpu(properties: Any) -> dict[str, Any]:
    return {
        "name": str(properties.name),
        "capability": f"{properties.major}.{properties.minor}",
        "memory_bytes": int(properties.total_memory),
        "multiprocessors": int(properties.multi_processor_count),
    }


def _of_driver() -> str | None:
    """The GPU that the driver names and that nothing hides."""
    if shutil.which("nvidia-smi") is None or os.environ.get(_VISIBLE[0]) in ("", "-1"):
        return None
    with suppress(RunnerError):
        return find_gpu()[0]
    return None


def _of_another(framework: str) -> dict[str, Any]:
    """What can be had of TensorFlow and JAX without the minute that importing them may take: the driver's word."""
    versions = []
    for package in _PACKAGES[framework]:
        with suppress(metadata.PackageNotFoundError):
            versions.append(metadata.version(package))
    facts: dict[str, Any] = {"version": next(iter(versions), "")}
    if _of_driver() is not None:
        name, capability = find_gpu()
        facts |= {"platform": "cuda", "gpus": [{"name": name, "capability": capability}]}
    return facts


def main(arguments: Sequence[str]) -> int:
    """Prints what this Python has of the framework, as JSON."""
    (framework,) = arguments
    if find_spec(framework) is None:
        facts: dict[str, Any] = {"missing": True}
    else:
        facts = _of_torch() if framework == "torch" else _of_another(framework)
    print(json.dumps(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
