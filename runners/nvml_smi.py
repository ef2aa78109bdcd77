"""What the program nvidia-smi tells of each GPU, again and again, where the package nvidia-ml-py is not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

from xsp_runners.nvml_readers import BYTES_PER_MIB, HZ_PER_MHZ, cuda_ordinals, reasons_of, scale, without_nulls
from xsp_runners.run_folder import RunnerError
from xsp_runners.tool import output_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["SmiReader"]

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
        fields = "name,power.limit,driver_version,uuid"
        status, text = output_of([self._path, f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
        rows = [
            [cell.strip() for cell in line.split(",")]
            for line in text.splitlines()
            if line.count(",") == fields.count(",")
        ]
        if status or not rows:
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
            name: scale(_number(cell), factor) for (name, factor), cell in zip(_SMI.values(), cells[2:], strict=True)
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
