"""Waiting for the devices of a process, with a stand-in for CUDA's driver library."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import pytest

from xsp_runners.tools.cupti_activities import wait_for_devices

if TYPE_CHECKING:
    from collections.abc import Callable


class _Driver:
    """Devices, some of which have a context; every call is written down, and may be refused by its name."""

    def __init__(self, *active: int, refused: str = "") -> None:
        self.active = active
        self.refused = refused
        self.log: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:  # noqa: ANN401 (as C has them)
            if name == self.refused:
                return 3
            if name == "cuDeviceGetCount":
                _at(arguments[0], ctypes.c_int).value = len(self.active)
            elif name == "cuDeviceGet":
                _at(arguments[0], ctypes.c_int).value = arguments[1]
            elif name == "cuDevicePrimaryCtxGetState":
                _at(arguments[2], ctypes.c_int).value = self.active[arguments[0].value]
            else:
                self.log.append(name)
            return 0

        return call


def _at(reference: Any, kind: type[ctypes.c_int]) -> ctypes.c_int:  # noqa: ANN401
    return ctypes.cast(reference, ctypes.POINTER(kind)).contents


_ONE_DEVICE = [
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuCtxSynchronize",
    "cuCtxPopCurrent_v2",
    "cuDevicePrimaryCtxRelease_v2",
]


@pytest.mark.parametrize(
    ("driver", "calls"),
    [
        (_Driver(1, 0, 1), [*_ONE_DEVICE, *_ONE_DEVICE]),
        (_Driver(0), []),
        (_Driver(1, refused="cuDeviceGetCount"), []),  # nobody initialised CUDA
        (_Driver(1, refused="cuCtxPushCurrent_v2"), [_ONE_DEVICE[0], _ONE_DEVICE[-1]]),
    ],
)
def test_each_device_with_work_of_this_process_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, driver: _Driver, calls: list[str]
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    wait_for_devices()
    assert driver.log == calls


def test_without_a_driver_there_is_nothing_to_wait_for() -> None:
    wait_for_devices()
