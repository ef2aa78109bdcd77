"""Clocks of the GPUs and what holds them down, at a moment: read before the recorded steps of a run and after them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xsp_runners.nvml import open_reader
from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from xsp_runners.nvml_readers import Reader

__all__ = ["GpuStates"]


@dataclass
class GpuStates:
    """Moments of the GPUs that this process may see; empty where the driver does not answer."""

    _reader: Reader | None = None
    _refused: bool = False

    def now(self) -> list[dict[str, Any]]:
        """Power, clocks, temperature and throttle reasons of each GPU, with the Unix time in ns."""
        try:
            if self._refused:
                return []
            self._reader = self._reader or open_reader()
            time_ns, samples = self._reader.once()
        except Exception as error:  # noqa: BLE001 (a driver in trouble must not end the user's run)
            self._refused = True
            if not isinstance(error, RunnerError):
                self._reader = None
            return []
        return [{"time_ns": time_ns, **sample} for sample in samples]

    def close(self) -> None:
        """Lets go of the driver."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
