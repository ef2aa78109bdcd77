"""A run of a small model with graphs and one without: the same kernels, launched one by one or replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.helpers.synth import KinetoTrace

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["KERNELS", "DeviceKernel", "eager_run", "replayed_run"]


class DeviceKernel(NamedTuple):
    """A kernel of the model: its name, the module that launches it, its grid's x, and ns in a graph."""

    name: str
    module: str
    grid: int
    duration_ns: int
    stream_id: int = 7


KERNELS = (
    DeviceKernel("gemm", "Linear_0", 4, 1_000),
    DeviceKernel("bias", "Linear_0", 4, 300),
    DeviceKernel("gemm", "Linear_1", 4, 1_200),
    DeviceKernel("relu", "ReLU_0", 2, 400),
)
"""Two products of one name and grid: order alone tells which is whose."""

_CALL_NS, _LAUNCH_NS, _GAP_NS = 30_000, 6_000, 50


def eager_run(
    kernels: Sequence[DeviceKernel] = KERNELS, *, steps: int = 3, marked: bool = True, concurrent: bool = False
) -> KinetoTrace:
    """Each module's call with an operator and its launches; kernels take twice their time in a graph.

    `concurrent`: streams run side by side.
    """
    trace = KinetoTrace()
    modules = list(dict.fromkeys(kernel.module for kernel in kernels))
    length = len(modules) * _CALL_NS + 30_000
    for step in range(steps):
        start = step * 2 * length
        if marked:
            trace.step(step + 1, start, length)
        free: dict[int, int] = {}
        for n, module in enumerate(modules):
            at = start + 1_000 + n * _CALL_NS
            trace.module(module, at, _CALL_NS - 1_000)
            trace.operator(f"aten::{module.lower()}", at + 100, _CALL_NS - 2_000, shapes=[[4, 8]])
            own = [kernel for kernel in kernels if kernel.module == module]
            for k, kernel in enumerate(own):
                launch = at + 200 + k * _LAUNCH_NS
                stream = kernel.stream_id if concurrent else 0
                device = max(free.get(stream, 0), launch + 5_000)
                trace.launch(kernel.name, launch, device, 2 * kernel.duration_ns,
                             grid=(kernel.grid, 1, 1), stream_id=kernel.stream_id)  # fmt: skip
                free[stream] = device + 2 * kernel.duration_ns + _GAP_NS
    return trace


def replayed_run(
    kernels: Sequence[DeviceKernel] = KERNELS,
    *,
    steps: int = 3,
    marked: bool = True,
    copied: bool = True,
    concurrent: bool = False,
) -> KinetoTrace:
    """A graph launch a step, whose kernels run one after the other, or `concurrent` one after the other on each stream.

    Before it, `copied`, a copy of the input.
    """
    trace = KinetoTrace()
    for step in range(steps):
        start = step * 100_000
        if marked:
            trace.step(step + 1, start, 60_000)
        if copied:
            trace.copy("HtoD", start + 500, start + 6_000, 200, size=64)
        correlation = trace.runtime("cudaGraphLaunch", start + 8_000, 5_000)
        free: dict[int, int] = {}
        for node, kernel in enumerate(kernels, start=1):
            stream = kernel.stream_id if concurrent else 0
            device = free.get(stream, start + 15_000)
            ids = {"graph id": 3, "graph node id": (3 << 32) + node}
            trace.kernel(kernel.name, device, kernel.duration_ns, correlation=correlation, grid=(kernel.grid, 1, 1),
                         stream_id=kernel.stream_id, args=ids)  # fmt: skip
            free[stream] = device + kernel.duration_ns + _GAP_NS
    return trace
