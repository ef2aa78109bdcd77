"""Has torch run on a simulated GPU: `torch.cuda` is the simulation's, and every operator launches a kernel on it.

Results are computed on the CPU, so that programs go on as they would; only time is the simulation's. A tensor made on
`cuda` is one of the CPU's. The backward pass runs on a thread of its own, as torch has it for GPUs, by name only.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from tests.runners.async_device import DEFAULT_STREAM, AsyncDevice, DeviceEvent, Span
from tests.runners.async_device_profiler import SimulatedProfiler, row
from xsp_runners import torch_profiler
from xsp_runners.sets import observed
from xsp_runners.tools.nvtx_ranges import NvtxCalls, providing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.runners.async_device import Graph

__all__ = ["DEVICE_NAME", "simulated"]

DEVICE_NAME = "NVIDIA H100 80GB HBM3"
_BLOCKING = "CUDA_LAUNCH_BLOCKING"
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_NO_NUMBER = 1 << 63
_ON_THE_HOST = ("aten::empty", "aten::new_empty", "aten::resize_", "aten::set_", "aten::is_same_size")
_MIB = 1 << 20
_ACTIVITIES = (torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA)


class _Operators(TorchDispatchMode):  # type: ignore[misc]
    """Every operator takes time on the host and, if it is no view, launches a kernel."""

    def __init__(self, device: AsyncDevice) -> None:
        super().__init__()
        self._device = device
        self._numbers = torch._C._autograd._get_sequence_nr()
        self._node: tuple[str, int, int] | None = None  # backward node under way: name, sequence number, start

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 (torch's own)
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        named, device = dict(kwargs or {}), self._device
        node = torch._C._current_autograd_node()
        self.enter_node(node)
        sequence = self._next_number() if node is None and torch.is_grad_enabled() else None
        start_ns, name = device.clock.now_ns, func._schema.name
        if func.has_kernel_for_dispatch_key(_COMPOSITE):
            with self:
                result = func.decompose(*args, **named)
        else:
            result = func(*args, **named)
            device.clock.advance(device.operator_ns)
            if not func.is_view and not name.startswith(_ON_THE_HOST):
                device.launch(name, "cudaMemcpyAsync" if name == "aten::_local_scalar_dense" else "cudaLaunchKernel")
            if name == "aten::_local_scalar_dense":  # `item()`
                device.wait_for_stream(device.stream)
        end_ns = device.clock.now_ns
        device.spans.append(Span("cpu_op", name, start_ns, end_ns, device.thread, sequence))
        return result

    def _next_number(self) -> int:
        """The number of the node that autograd has just made for this operator, else that of the next one."""
        number: int = torch._C._autograd._get_sequence_nr()
        made, self._numbers = number > self._numbers, number
        return number - 1 if made else number

    def enter_node(self, node: Any) -> None:  # noqa: ANN401
        """A node of the backward pass runs from its first operator to that of another one."""
        entered = None if node is None else (node.name(), node._sequence_nr())
        if self._node is not None and self._node[:2] != entered:
            name, sequence, start_ns = self._node
            title = f"autograd::engine::evaluate_function: {name}"
            of_forward = sequence if sequence < _NO_NUMBER else None  # AccumulateGrad is of no operator
            span = Span("cpu_op", title, start_ns, self._device.clock.now_ns, "backward", of_forward, backward=True)
            self._device.spans.append(span)
            self._node = None
        if entered is not None and self._node is None:
            self._node = (*entered, self._device.clock.now_ns)
        self._device.thread = "main" if node is None else "backward"


class _OnTheCpu(TorchFunctionMode):  # type: ignore[misc]
    """What is asked for on `cuda` is made on the CPU."""

    def __init__(self, operators: _Operators) -> None:
        super().__init__()
        self._operators = operators

    def __torch_function__(
        self,
        func: Any,  # noqa: ANN401 (torch's own)
        types: Any,  # noqa: ANN401
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        named = {key: _cpu(value) for key, value in (kwargs or {}).items()}
        if func is torch.Tensor.cuda:
            return args[0]
        result = func(*(_cpu(each) for each in args), **named)
        if func is torch.Tensor.backward:
            self._operators.enter_node(None)
        return result


def _cpu(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")) else value


class _Stream:
    def __init__(self, device: AsyncDevice, number: int | None = None) -> None:
        self._device = device
        self.number = device.new_stream() if number is None else number

    def synchronize(self) -> None:
        self._device.wait_for_stream(self.number)

    def wait_stream(self, other: _Stream) -> None:
        self._device.hold(self.number, self._device.end_ns(other.number))

    def wait_event(self, event: _Event) -> None:
        self._device.hold(self.number, event.time_ns)

    def record_event(self, event: _Event | None = None) -> _Event:
        event = event or _Event(self._device)
        event.record(self)
        return event

    def query(self) -> bool:
        return self._device.end_ns(self.number) <= self._device.clock.now_ns


class _Event:
    def __init__(self, device: AsyncDevice, **_: object) -> None:
        self._device = device
        self._event = DeviceEvent()

    @property
    def time_ns(self) -> int:
        if self._event.time_ns is None:
            raise RuntimeError("the event was not recorded")
        return self._event.time_ns

    def record(self, stream: _Stream | None = None) -> None:
        number = self._device.stream if stream is None else stream.number
        self._event.time_ns = self._device.end_ns(number)

    def synchronize(self) -> None:
        self._device.waits += 1
        self._device.clock.wait_until(self.time_ns)

    def query(self) -> bool:
        return self.time_ns <= self._device.clock.now_ns

    def elapsed_time(self, later: _Event) -> float:
        return (later.time_ns - self.time_ns) / 1e6


class _Graph:
    def __init__(self, device: AsyncDevice) -> None:
        self._device = device
        self.graph: Graph = device.new_graph()

    def replay(self) -> None:
        self._device.replay(self.graph)


def _cuda(device: AsyncDevice) -> dict[str, object]:
    """What `torch.cuda` is on the simulated device."""

    @contextmanager
    def capture(graph: _Graph, **_: object) -> Iterator[None]:
        device.synchronize()
        before = device.set_stream(device.new_stream())
        device.begin_capture(graph.graph)
        try:
            yield
        finally:
            device.end_capture()
            device.set_stream(before)

    @contextmanager
    def stream_of(stream: _Stream) -> Iterator[None]:
        before = device.set_stream(stream.number)
        try:
            yield
        finally:
            device.set_stream(before)

    def set_device(number: int) -> None:
        device.current_device = int(number)

    return {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "device_count": lambda: device.count,
        "current_device": lambda: device.current_device,
        "set_device": set_device,
        "get_device_name": lambda *_: DEVICE_NAME,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: SimpleNamespace(name=DEVICE_NAME, multi_processor_count=132),
        "synchronize": device.synchronize,
        "is_current_stream_capturing": lambda: device.capturing is not None,
        "current_stream": lambda *_: _Stream(device, device.stream),
        "default_stream": lambda *_: _Stream(device, DEFAULT_STREAM),
        "Stream": lambda *_, **__: _Stream(device),
        "stream": stream_of,
        "Event": lambda **options: _Event(device, **options),
        "CUDAGraph": lambda: _Graph(device),
        "graph": capture,
        "max_memory_allocated": lambda *_: device.memory_bytes,
        "memory_allocated": lambda *_: device.memory_bytes,
        "memory_reserved": lambda *_: device.memory_bytes,
        "mem_get_info": lambda *_: (79 * 1024 * _MIB, 80 * 1024 * _MIB),
        "reset_peak_memory_stats": lambda *_: None,
        "empty_cache": lambda: None,
    }


@contextmanager
def simulated(
    device: AsyncDevice | None = None, *, clocks: tuple[Any, ...] = (torch_profiler, observed)
) -> Iterator[AsyncDevice]:
    """What runs inside sees this GPU while open. The modules `clocks` read its time instead of the machine's.

    A level process in this process (`torch_levels.main`) then runs as on a machine with a GPU. The environment and
    torch's settings are afterwards what they were.
    """
    device = device or AsyncDevice()
    operators = _Operators(device)
    provided = SimulatedProfiler.on(device)
    with ExitStack() as around:
        around.enter_context(mock.patch.dict(os.environ))
        around.enter_context(_settings_kept())
        for name, value in _cuda(device).items():
            around.enter_context(mock.patch.object(torch.cuda, name, value))
        around.enter_context(mock.patch.object(torch.profiler, "profile", provided))
        around.enter_context(mock.patch.object(torch.profiler, "supported_activities", _supported))
        for module in (torch.profiler, torch.autograd.profiler):
            around.enter_context(mock.patch.object(module, "record_function", lambda name: row(device, name)))
        around.enter_context(mock.patch("torch.optim.adam._get_capturable_supported_devices", _capturable))
        around.enter_context(mock.patch("torch.optim.adam._get_value", _host_value))
        for module in clocks:
            around.enter_context(mock.patch.object(module, "time", device.clock))
        around.enter_context(providing(NvtxCalls(device.push, device.pop, device.start_range, device.end_range)))
        around.enter_context(_read_at_launch(device))
        around.enter_context(_OnTheCpu(operators))
        around.enter_context(operators)
        yield device


def _supported() -> set[Any]:
    return set(_ACTIVITIES)


def _capturable() -> list[str]:
    return ["cpu"]


def _host_value(value: Any) -> Any:  # noqa: ANN401
    """AdamW keeps its step count on the host, where reading it waits for nothing."""
    with _disable_current_modes():
        return value.item() if isinstance(value, torch.Tensor) else value


@contextmanager
def _read_at_launch(device: AsyncDevice) -> Iterator[None]:
    """CUDA reads the environment when it is first used."""
    launch = device.launch
    always = device.blocking

    def first(operator: str, call: str = "cudaLaunchKernel") -> None:
        device.blocking = always or os.environ.get(_BLOCKING) == "1"
        launch(operator, call)

    with mock.patch.object(device, "launch", first):
        yield


@contextmanager
def _settings_kept() -> Iterator[None]:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32, torch.get_num_threads()
    state = torch.random.get_rng_state()
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, matmul.allow_tf32 = before[:4]
        torch.set_num_threads(before[4])
        torch.random.set_rng_state(state)
