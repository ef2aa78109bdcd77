"""torch.profiler on a simulated GPU: the same calls and the same schedule, and a trace in Kineto's form."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from tests.helpers.synth import KinetoTrace
from tests.runners.async_device import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import FrameType

    from tests.runners.async_device import AsyncDevice, Launch

__all__ = ["SimulatedProfiler", "row"]

_MODULE_CALL = torch.nn.Module.__call__.__code__  # by which the real one knows a module's call, too
_THREADS = {"main": 100, "backward": 101}
_GRID = (64, 1, 1)


@contextmanager
def row(device: AsyncDevice, name: str) -> Iterator[None]:
    """`record_function` on the simulated device's clock."""
    start_ns = device.clock.now_ns
    try:
        yield
    finally:
        device.spans.append(Span("user_annotation", name, start_ns, device.clock.now_ns, device.thread))


class SimulatedProfiler:
    """Records what the device ran while its schedule says so; kernels only with the activity CUDA."""

    def __init__(
        self,
        device: AsyncDevice,
        activities: Iterable[Any],
        schedule: Callable[[int], Any] | None = None,
        **_options: object,
    ) -> None:
        self.record_steps = True
        self._device = device
        self._kernels = torch.profiler.ProfilerActivity.CUDA in set(activities)
        self._schedule = schedule or (lambda _: torch.profiler.ProfilerAction.RECORD)
        self._number = 0
        self._recording_from: int | None = None
        self._windows: list[tuple[int, int]] = []
        self._modules = _ModuleCalls(device)

    @classmethod
    def on(cls, device: AsyncDevice) -> Callable[..., SimulatedProfiler]:
        """What takes the place of `torch.profiler.profile`."""
        return lambda *, activities, **options: cls(device, activities, **options)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._act()

    def stop(self) -> None:
        self._end()

    def step(self) -> None:
        """The schedule's next step begins."""
        self._number += 1
        self._act()

    def _act(self) -> None:
        action = self._schedule(self._number)
        recording = action in (torch.profiler.ProfilerAction.RECORD, torch.profiler.ProfilerAction.RECORD_AND_SAVE)
        if not recording:
            self._end()
        elif self._recording_from is None:
            self._recording_from = self._device.clock.now_ns
            self._modules.start()

    def _end(self) -> None:
        if self._recording_from is not None:
            self._modules.stop()
            self._windows.append((self._recording_from, self._device.clock.now_ns))
            self._recording_from = None

    def export_chrome_trace(self, path: str) -> None:
        """Writes what was recorded in Kineto's form."""
        trace = KinetoTrace(deviceProperties=[{"id": 0, "name": torch.cuda.get_device_name()}] if self._kernels else [])
        for start_ns, end_ns in self._windows:
            for span in sorted(self._device.spans, key=lambda span: (span.start_ns, -span.end_ns)):
                if start_ns <= span.start_ns and span.end_ns <= end_ns:
                    _add_span(trace, span)
            if self._kernels:
                for calls in (self._device.launches, self._device.calls):
                    self._add_launches(trace, [each for each in calls if start_ns <= each.call_start_ns < end_ns])
        trace.write(Path(path))

    def _add_launches(self, trace: KinetoTrace, launches: Sequence[Launch]) -> None:
        if self._device.calls_are_recorded:
            for each in {each.correlation: each for each in launches}.values():
                _add_call(trace, each)
        if self._device.kernels_are_recorded:
            for each in launches:
                if each.end_ns:  # else it ran nothing
                    _add_kernel(trace, each)


def _add_call(trace: KinetoTrace, launch: Launch) -> None:
    trace.runtime(
        launch.call,
        launch.call_start_ns,
        launch.call_end_ns - launch.call_start_ns,
        correlation=launch.correlation,
        thread_id=_THREADS[launch.thread],
    )


def _add_kernel(trace: KinetoTrace, launch: Launch) -> None:
    trace.kernel(
        launch.name,
        launch.start_ns,
        launch.duration_ns,
        correlation=launch.correlation,
        device_id=launch.device,
        stream_id=launch.stream,
        grid=_GRID,
        args={} if launch.graph is None else {"graph id": launch.graph, "graph node id": launch.node},
    )


def _add_span(trace: KinetoTrace, span: Span) -> None:
    duration_ns, thread = span.end_ns - span.start_ns, _THREADS[span.thread]
    if span.kind == "cpu_op":
        trace.operator(
            span.name,
            span.start_ns,
            duration_ns,
            thread_id=thread,
            sequence_number=span.sequence_number,
            forward_thread_id=1 if span.backward and span.sequence_number is not None else None,
        )
    elif span.kind == "python_function":
        trace.module(span.name, span.start_ns, duration_ns, thread_id=thread)
    else:
        trace.annotation(span.name, span.start_ns, duration_ns, thread_id=thread)


class _ModuleCalls:
    """Rows of modules' calls, by the frames of `Module.__call__` as the real profiler has them, hooks included."""

    def __init__(self, device: AsyncDevice) -> None:
        self._device = device
        self._numbers: dict[str, dict[int, int]] = {}
        self._open: list[tuple[str, int]] = []
        self._before: Any = None

    def start(self) -> None:
        self._before = sys.getprofile()
        sys.setprofile(self._seen)

    def stop(self) -> None:
        sys.setprofile(self._before)

    def _seen(self, frame: FrameType, event: str, _argument: object) -> None:
        if frame.f_code is not _MODULE_CALL:
            return
        if event == "call":
            self._open.append((self._name_of(frame.f_locals["self"]), self._device.clock.now_ns))
        elif event == "return" and self._open:
            name, start_ns = self._open.pop()
            self._device.spans.append(Span("python_function", name, start_ns, self._device.clock.now_ns))

    def _name_of(self, module: object) -> str:
        kind = type(module).__name__
        numbers = self._numbers.setdefault(kind, {})
        return f"{kind}_{numbers.setdefault(id(module), len(numbers))}"
