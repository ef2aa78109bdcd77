"""A simulated GPU on a time line of its own: launches return at once and queue on streams, and waiting takes time.

Nothing sleeps and nothing reads the machine's clock, so that no test depends on how busy it is. Times are ns.
`async_device_torch` has torch run on it, `async_device_profiler` records what ran.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["DEFAULT_STREAM", "AsyncDevice", "Clock", "DeviceEvent", "Graph", "Launch", "Span"]

DEFAULT_STREAM = 7
_EPOCH_NS = 1_700_000_000_000_000_000
_LAUNCH_NS = 5_000
_LATENCY_NS = 2_000
_S = 1e9


@dataclass
class Clock:
    """Stands in for the module `time`; it goes on where someone says so, and in `sleep`."""

    now_ns: int = 1_000_000

    def advance(self, duration_ns: int) -> None:
        """The host is at work for so long."""
        self.now_ns += duration_ns

    def wait_until(self, time_ns: int) -> None:
        """The host does nothing until then."""
        self.now_ns = max(self.now_ns, time_ns)

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def monotonic_ns(self) -> int:
        return self.now_ns

    def time_ns(self) -> int:
        return _EPOCH_NS + self.now_ns

    def perf_counter(self) -> float:
        return self.now_ns / _S

    def monotonic(self) -> float:
        return self.now_ns / _S

    def time(self) -> float:
        return self.time_ns() / _S

    def sleep(self, duration_s: float) -> None:
        self.advance(round(duration_s * _S))


@dataclass(frozen=True)
class Launch:
    """A kernel, with the call that launched it; `graph` is the replayed graph's number, `node` its place there.

    `ranges` it was launched in, as `ncu --nvtx-include` names them: `step` of the process, `step/` of its thread.
    """

    name: str
    call: str
    call_start_ns: int
    call_end_ns: int
    start_ns: int
    end_ns: int
    correlation: int
    device: int = 0
    stream: int = DEFAULT_STREAM
    thread: str = "main"
    ranges: tuple[str, ...] = ()
    graph: int | None = None
    node: int | None = None

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Span:
    """Something on the host: `kind` as a Kineto trace has it (`cpu_op`, `python_function`, `user_annotation`)."""

    kind: str
    name: str
    start_ns: int
    end_ns: int
    thread: str = "main"
    sequence_number: int | None = None
    backward: bool = False


@dataclass
class Graph:
    """What was launched while it was captured, in order; replaying runs it again."""

    number: int
    kernels: list[tuple[str, int]] = field(default_factory=list)


@dataclass
class DeviceEvent:
    """A point on a stream's time line, once it was recorded."""

    time_ns: int | None = None


@dataclass
class AsyncDevice:
    """One or more GPUs and the host that feeds them.

    `durations_ns` is how long the kernels of an operator take (`aten::addmm`), `kernel_ns` those of all others;
    `operator_ns` is what the host needs for an operator besides its launch. Where `blocking`, every launch waits for
    its kernel, as with CUDA_LAUNCH_BLOCKING=1. Without `kernels_are_recorded` or `calls_are_recorded` a profiler sees
    none of these, as where another one has the device. `memory_bytes` is what a program has taken at most.
    """

    durations_ns: Mapping[str, int] = field(default_factory=dict)
    kernel_ns: int = 100_000
    operator_ns: int = 10_000
    count: int = 1
    blocking: bool = False
    kernels_are_recorded: bool = True
    calls_are_recorded: bool = True
    memory_bytes: int = 64 << 20
    clock: Clock = field(default_factory=Clock)
    launches: list[Launch] = field(default_factory=list)
    calls: list[Launch] = field(default_factory=list)  # that run nothing: captured launches, waits
    spans: list[Span] = field(default_factory=list)
    waits: int = 0
    capturing: Graph | None = None
    current_device: int = 0
    thread: str = "main"
    _stream: int = DEFAULT_STREAM
    _streams: int = DEFAULT_STREAM
    _graphs: int = 0
    _correlation: int = 0
    _ends_ns: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))
    _pushed: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _started: dict[int, str] = field(default_factory=dict)

    # Work

    def launch(self, operator: str, call: str = "cudaLaunchKernel") -> None:
        """Queues the operator's kernel on the current stream and returns; into a graph while one is captured."""
        duration_ns = self.durations_ns.get(operator, self.kernel_ns)
        name = f"{operator.rpartition(':')[2]}_kernel"
        start_ns = self.clock.now_ns
        self.clock.advance(_LAUNCH_NS)
        self._correlation += 1
        if self.capturing is not None:
            self.capturing.kernels.append((name, duration_ns))
            self.calls.append(self._launch_of(name, call, start_ns, 0, 0))
            return
        self._run(name, call, start_ns, duration_ns)

    def replay(self, graph: Graph) -> None:
        """Launches the graph as a whole."""
        start_ns = self.clock.now_ns
        self.clock.advance(_LAUNCH_NS)
        self._correlation += 1
        for node, (name, duration_ns) in enumerate(graph.kernels):
            self._run(name, "cudaGraphLaunch", start_ns, duration_ns, graph=graph.number, node=node)

    def _run(
        self,
        name: str,
        call: str,
        called_ns: int,
        duration_ns: int,
        *,
        graph: int | None = None,
        node: int | None = None,
    ) -> None:
        where = (self.current_device, self._stream)
        start_ns = max(self._ends_ns[where], self.clock.now_ns + _LATENCY_NS)
        self._ends_ns[where] = start_ns + duration_ns
        launch = self._launch_of(name, call, called_ns, start_ns, start_ns + duration_ns)
        self.launches.append(replace(launch, graph=graph, node=node))
        if self.blocking:
            self.clock.wait_until(start_ns + duration_ns)

    def _launch_of(self, name: str, call: str, called_ns: int, start_ns: int, end_ns: int) -> Launch:
        return Launch(
            name,
            call,
            called_ns,
            self.clock.now_ns,
            start_ns,
            end_ns,
            self._correlation,
            self.current_device,
            self._stream,
            self.thread,
            (*(f"{name}/" for name in self._pushed[self.thread]), *self._started.values()),
        )

    def new_graph(self) -> Graph:
        self._graphs += 1
        return Graph(self._graphs)

    def begin_capture(self, graph: Graph) -> None:
        """What is launched from now on goes into the graph."""
        self.capturing = graph
        self._call("cudaStreamBeginCapture")

    def end_capture(self) -> None:
        self._call("cudaStreamEndCapture")
        self.capturing = None

    def _call(self, name: str, until_ns: int = 0) -> None:
        """A call that launches nothing, and returns when it has waited until then."""
        start_ns = self.clock.now_ns
        self.clock.advance(_LAUNCH_NS)
        self.clock.wait_until(until_ns)
        self._correlation += 1
        self.calls.append(self._launch_of("", name, start_ns, 0, 0))

    # Waiting

    def synchronize(self, device: int | None = None) -> None:
        """The host waits for all streams of the device; the current one by default."""
        self._refuse_while_capturing()
        self.waits += 1
        number = self.current_device if device is None else device
        ends = (end for (of, _), end in self._ends_ns.items() if of == number)
        self._call("cudaDeviceSynchronize", max(ends, default=0))

    def wait_for_stream(self, stream: int) -> None:
        """The host waits for one stream of the current device."""
        self._refuse_while_capturing()
        self.waits += 1
        self._call("cudaStreamSynchronize", self._ends_ns[self.current_device, stream])

    def _refuse_while_capturing(self) -> None:
        if self.capturing is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    # Streams

    @property
    def stream(self) -> int:
        """The current stream."""
        return self._stream

    def new_stream(self) -> int:
        self._streams += 1
        return self._streams

    def set_stream(self, stream: int) -> int:
        """Makes the stream the current one; the one that was."""
        before, self._stream = self._stream, stream
        return before

    def end_ns(self, stream: int) -> int:
        """When all that is queued on the stream will have ended."""
        return max(self._ends_ns[self.current_device, stream], self.clock.now_ns)

    def hold(self, stream: int, until_ns: int) -> None:
        """What is queued on the stream from now on waits until then; the host does not."""
        self._ends_ns[self.current_device, stream] = max(self._ends_ns[self.current_device, stream], until_ns)

    # NVTX

    def push(self, name: str) -> None:
        """Opens a range of the running thread, as `nvtxRangePush` does."""
        self._pushed[self.thread].append(name)

    def pop(self) -> None:
        self._pushed[self.thread].pop()

    def start_range(self, name: str) -> int:
        """Opens a range of the process, as `nvtxRangeStart` does; its handle."""
        self._correlation += 1
        self._started[self._correlation] = name
        return self._correlation

    def end_range(self, handle: int) -> None:
        del self._started[handle]

    # What happened

    def between(self, start_ns: int, end_ns: int) -> Iterator[Launch]:
        """Kernels whose calls began in this interval."""
        return (each for each in self.launches if start_ns <= each.call_start_ns < end_ns)
