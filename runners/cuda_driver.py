"""Waits for the GPUs of this process by CUDA's driver itself, whichever framework gave them work."""

from __future__ import annotations

import ctypes

__all__ = ["wait_for_devices"]

_LIBRARY = "libcuda.so.1"


def wait_for_devices() -> None:
    """Returns when every GPU with a context of this process is done; at once where there is no driver or no context."""
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError:
        return
    count = ctypes.c_int(0)
    if driver.cuDeviceGetCount(ctypes.byref(count)):  # not initialised: nothing ran
        return
    for number in range(count.value):
        _wait_for(driver, number)


def _wait_for(driver: ctypes.CDLL, number: int) -> None:
    """Waits in the device's primary context, which is the one that frameworks use; nothing where it has none."""
    device, flags, active = ctypes.c_int(0), ctypes.c_uint(0), ctypes.c_int(0)
    if driver.cuDeviceGet(ctypes.byref(device), number):
        return
    state = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    context = ctypes.c_void_p()
    if state or not active.value or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
        return
    try:
        if not driver.cuCtxPushCurrent_v2(context):
            driver.cuCtxSynchronize()
            driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
    finally:
        driver.cuDevicePrimaryCtxRelease_v2(device)
