"""What a run was made on: from stand-ins for NVML and nvidia-smi, and with nothing private in it."""

from __future__ import annotations

import getpass
import json
import os
import platform
import socket
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.runners.fake_tool import write_tool
from xsp_runners import system
from xsp_runners.system import gpu_facts

if TYPE_CHECKING:
    import pytest


def _nvml(**more: object) -> Any:  # noqa: ANN401 (a module made up)
    module: Any = types.ModuleType("pynvml")
    module.NVMLError = type("NVMLError", (Exception,), {})
    answers: dict[str, object] = {
        "nvmlInit": None,
        "nvmlShutdown": None,
        "nvmlDeviceGetCount": 1,
        "nvmlDeviceGetHandleByIndex": 7,
        "nvmlDeviceGetName": b"Made-up GPU",
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
        "nvmlDeviceGetNumGpuCores": 16896,
        "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(total=1 << 37),
        "nvmlDeviceGetPowerManagementLimit": 700_000,
        "nvmlDeviceGetMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetMigMode": [0, 0],
        "nvmlSystemGetDriverVersion": "580.65",
        "nvmlSystemGetCudaDriverVersion": 13_020,
        **more,
    }
    for name, answer in answers.items():
        setattr(module, name, lambda *_, answer=answer: answer)
    module.NVML_CLOCK_SM, module.NVML_CLOCK_MEM = 1, 2
    module.nvmlDeviceGetMaxClockInfo = lambda _, kind: {1: 1980, 2: 2619}[kind]

    def not_told(*_: object) -> None:
        raise module.NVMLError

    module.nvmlDeviceGetClockInfo = not_told
    return module


def test_gpus_by_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _nvml())
    assert gpu_facts() == {
        "gpus": [
            {
                "name": "Made-up GPU",
                "compute_capability": "9.0",
                "multiprocessor_cores": 16896,
                "memory_bytes": 1 << 37,
                "power_limit_w": 700.0,
                "max_sm_clock_hz": 1_980_000_000,
                "max_memory_clock_hz": 2_619_000_000,
                "max_pcie_generation": 5,
                "max_pcie_lanes": 16,
                "mig": False,
            }
        ],
        "driver_version": "580.65",
        "cuda_version": "13.2",
    }


def test_gpus_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    write_tool(
        tmp_path / "nvidia-smi",
        "if 'compute_cap' in arguments[0]: sys.exit('Field \"compute_cap\" is not a valid field to query.')\n"
        "print('Tesla V100-SXM2-16GB, 418.67, 16130, 300.00, 1530, 877, 3, [N/A]')",
    )
    assert gpu_facts() == {
        "gpus": [
            {
                "name": "Tesla V100-SXM2-16GB",
                "memory_bytes": 16130 << 20,
                "power_limit_w": 300.0,
                "max_sm_clock_hz": 1_530_000_000,
                "max_memory_clock_hz": 877_000_000,
                "max_pcie_generation": 3,
            }
        ],
        "driver_version": "418.67",
    }


def test_without_a_gpu_the_rest_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("XSP_NSYS", raising=False)
    monkeypatch.delenv("XSP_NCU", raising=False)
    facts = system.system_facts()
    assert "gpus" not in facts
    assert facts["tools"] == {}
    assert facts["cpu"]["logical_cores"] == os.cpu_count()
    assert facts["cpu"].get("physical_cores", 1) <= facts["cpu"]["logical_cores"]
    assert facts["memory_bytes"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert facts["python"] == f"CPython {platform.python_version()}"
    assert facts["packages"]["numpy"]


def test_versions_of_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "XSP_NSYS", write_tool(tmp_path / "nsys", "print('NVIDIA Nsight Systems version 2025.3.1.90-1')")
    )
    monkeypatch.setenv(
        "XSP_NCU", write_tool(tmp_path / "ncu", "print('Version 2025.3.0.0 (build 1) (public-release)')")
    )
    assert system.system_facts()["tools"] == {"nsys": "2025.3.1", "ncu": "2025.3.0"}


def test_nothing_private_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[str] = []
    module = _nvml()

    def unexpected(name: str) -> object:  # UUID, serial number, bus and the like
        queries.append(name)
        raise AttributeError(name)

    module.__dict__["__getattr__"] = unexpected
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setenv("NCCL_ALGO", "/home/somebody/algorithms")
    monkeypatch.setenv("XSP_NSYS", str(tmp_path / "nsys"))
    assert system.main(["-o", str(tmp_path / "system.json")]) == 0
    text = (tmp_path / "system.json").read_text()
    facts = json.loads(text)
    assert facts["settings"] == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "4"}
    assert queries == []
    private = [socket.gethostname(), str(Path.home()), str(Path.cwd()), sys.prefix, str(tmp_path), "somebody"]
    private += [] if getpass.getuser() == "root" else [getpass.getuser()]
    assert [secret for secret in private if secret in text] == []
    assert '"/' not in text


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert system.main(["-o", str(tmp_path / "file" / "system.json")]) == 2
    assert capsys.readouterr().err.startswith("system: the run cannot be written to ")
