"""Samples the GPUs' power, clocks, temperature, memory and utilisation beside a run, 20 times a second by default.

    python -m xsp_runners.nvml --out runs/mlg/nvml.jsonl -- python train.py      while a program runs
    python -m xsp_runners.nvml --out nvml.jsonl --seconds 10                     for some time

`beside` is a context manager for code of one's own: it samples in a process of its own, so that the work is not
disturbed. The file is listed in run.json (`"format": "nvml_samples"`), and joins the run by Unix time.

A sample is a dict with `device` and what is known of: power_w, energy_j, sm_clock_hz, memory_clock_hz, temperature_c,
memory_used_bytes, gpu_utilization and memory_utilization (shares of the driver's last sampling period), throttle
(reasons for clocks below their highest, as words). What a GPU does not tell is left out.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.run_folder import RunnerError
from xsp_runners.tools import sampling
from xsp_runners.tools.programs import exit_status, output_of, smi_rows
from xsp_runners.tools.sampling import sample_while, sampling_options, without_nulls, write_samples

__all__ = [
    "BYTES_PER_MIB",
    "FORMAT",
    "HZ_PER_MHZ",
    "NAME",
    "NvmlReader",
    "Reader",
    "SmiReader",
    "beside",
    "cuda_ordinals",
    "main",
    "open_reader",
    "reasons_of",
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

    def _query(self, call: Callable[..., Any], *arguments: object) -> Any:
        """The call's answer; None where this GPU or driver does not tell."""
        with suppress(self._nvml.NVMLError):
            return call(*arguments)
        return None

    def _device(self, ordinal: int, handle: object) -> dict[str, Any]:
        limit = self._query(self._nvml.nvmlDeviceGetPowerManagementLimit, handle)
        name = _text(self._query(self._nvml.nvmlDeviceGetName, handle))
        return without_nulls({"device": ordinal, "name": name, "power_limit_w": _scale(limit, 1e-3)})

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
                "power_w": _scale(query(nvml.nvmlDeviceGetPowerUsage, handle), 1e-3),
                "energy_j": _scale(query(nvml.nvmlDeviceGetTotalEnergyConsumption, handle), 1e-3),
                "sm_clock_hz": _scale(query(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM), HZ_PER_MHZ),
                "memory_clock_hz": _scale(query(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM), HZ_PER_MHZ),
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


def _reasons_call(nvml: Any) -> Any:
    """NVIDIA renamed the call with driver 535."""
    return (
        getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def _scale(value: float | None, factor: float) -> float | None:
    """The value in the unit wanted, at the three decimals that NVML has at most."""
    return None if value is None else round(value * factor, 3)


_SMI: Mapping[str, tuple[str, float]] = {
    # field of nvidia-smi: name in a sample, factor
    "power.draw": ("power_w", 1),
    "clocks.sm": ("sm_clock_hz", HZ_PER_MHZ),
    "clocks.mem": ("memory_clock_hz", HZ_PER_MHZ),
    "temperature.gpu": ("temperature_c", 1),
    "memory.used": ("memory_used_bytes", BYTES_PER_MIB),
    "utilization.gpu": ("gpu_utilization", 0.01),
    "utilization.memory": ("memory_utilization", 0.01),
}
_SMI_REASONS = "clocks_throttle_reasons.active"
_MS_PER_S = 1000
_ONCE_S = 10


class SmiReader:
    """Samples through a running nvidia-smi; RunnerError where it names no GPU."""

    source = "nvidia-smi"

    def __init__(self) -> None:
        self._path = shutil.which("nvidia-smi") or "nvidia-smi"
        self._process: subprocess.Popen[str] | None = None
        rows = smi_rows(self._path, ("name", "power.limit", "driver_version", "uuid"))
        if not rows:
            raise RunnerError("nvidia-smi names no GPU here")
        ordinals = cuda_ordinals([row[3] for row in rows], os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._ordinals = ordinals
        if not ordinals:
            raise RunnerError("there is no GPU that this process may see")
        self.devices = [
            without_nulls({"device": ordinal, "name": rows[index][0], "power_limit_w": _number(rows[index][1])})
            for index, ordinal in ordinals.items()
        ]
        self.driver_version: str | None = rows[0][2]

    def samples(self, interval_s: float) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """One device at a time, as nvidia-smi prints them; times are those of arrival."""
        command = [*self._query, f"--loop-ms={max(1, round(interval_s * _MS_PER_S))}"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 (NVIDIA's own program)
        assert self._process.stdout is not None  # noqa: S101 (piped above)
        for line in self._process.stdout:
            sample = self._sample([cell.strip() for cell in line.split(",")])
            if sample:
                yield time.time_ns(), [sample]
        raise RunnerError("nvidia-smi ended by itself")

    def once(self) -> tuple[int, list[dict[str, Any]]]:
        """All devices, in one answer; RunnerError where nvidia-smi gives none."""
        moment = time.time_ns()
        status, text = output_of(self._query, seconds=_ONCE_S)
        samples = [self._sample([cell.strip() for cell in line.split(",")]) for line in text.splitlines()]
        if status:
            raise RunnerError("nvidia-smi does not answer")
        return moment, [sample for sample in samples if sample]

    @property
    def _query(self) -> list[str]:
        fields = f"--query-gpu=index,{_SMI_REASONS},{','.join(_SMI)}"
        return [self._path, fields, "--format=csv,noheader,nounits"]

    def _sample(self, cells: Sequence[str]) -> dict[str, Any] | None:
        """None for a line that is no sample, or of a GPU that this process does not see."""
        if len(cells) != len(_SMI) + 2 or not cells[0].isdecimal() or int(cells[0]) not in self._ordinals:
            return None
        values = {
            name: _scale(_number(cell), factor) for (name, factor), cell in zip(_SMI.values(), cells[2:], strict=True)
        }
        bits = cells[1]
        reasons = reasons_of(int(bits, 16)) if bits.startswith("0x") else None
        return without_nulls({"device": self._ordinals[int(cells[0])], **values, "throttle": reasons})

    def close(self) -> None:
        """Ends nvidia-smi."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()


def _number(text: str) -> float | None:
    """The number, or None for `[N/A]` and the like."""
    try:
        return float(text)
    except ValueError:
        return None


NAME = "nvml.jsonl"
"""The file beside run.json."""

FORMAT = "nvml_samples"
"""What run.json calls its format."""

_HEADER = "xsp nvml samples"
_DEFAULT_HZ = 20.0
_MAX_HZ = 200.0


def open_reader() -> Reader:
    """The package's reader, else the program's; RunnerError where there is neither, or no GPU."""
    try:
        return NvmlReader()
    except RunnerError as first:
        if shutil.which("nvidia-smi") is None:
            raise RunnerError(
                f"the GPU's power cannot be sampled: {first}, and nvidia-smi is not there (pip install nvidia-ml-py)"
            ) from first
    return SmiReader()


def beside(path: str | Path, *, hertz: float = _DEFAULT_HZ) -> AbstractContextManager[None]:
    """Samples into the file while open, in a process of its own; RunnerError where nothing can be sampled."""
    return sampling.beside(path, Path(__file__), hertz=hertz)


def _sample(args: argparse.Namespace, stop: Callable[[], bool], ready: Callable[[], None]) -> tuple[int, str]:
    with closing(open_reader()) as reader:
        header: dict[str, Any] = {"format": _HEADER, "version": 1, "clock": "CLOCK_REALTIME", "source": reader.source}
        header |= {"interval_ns": round(1e9 / args.hertz), "driver_version": reader.driver_version}
        moments = ([{"time_ns": at, **each} for each in samples] for at, samples in reader.samples(1 / args.hertz))
        header |= {"devices": reader.devices}
        count = write_samples(args.out, header, moments, stop=stop, ready=ready)
        return count, f" of {len(reader.devices)} GPUs"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 or the program's status, 2 after a sentence on stderr."""
    what = "Samples power, clocks, temperature, memory and utilisation of the GPUs."
    args = sampling_options("nvml", what, hertz=_DEFAULT_HZ, file=NAME).parse_args(arguments)
    return exit_status("nvml", lambda: sample_while("nvml", args, partial(_sample, args), max_hz=_MAX_HZ))


if __name__ == "__main__":
    sys.exit(main())
