"""Small PyTorch profiler (Kineto) traces built from literals, so that a test shows its whole input."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["HOST_THREAD", "PROCESS", "KinetoTrace", "microseconds"]

PROCESS = 100
HOST_THREAD = 100
_TIMES = ("ts", "dur")
_MEMORY_OF_DEVICE = {True: 1, False: 0}


def microseconds(time_ns: int) -> str:
    """The time as Kineto writes it: microseconds, exact to the nanosecond, never through a float."""
    integer, rest = divmod(abs(time_ns), 1000)
    text = f"{integer}.{rest:03d}" if rest else str(integer)
    return f"-{text}" if time_ns < 0 else text


class KinetoTrace:
    """Collects events in the order of the calls; all times are int64 nanoseconds of the file's own clock.

    Every method that makes an event takes the start and the duration first. Event names and argument
    keys are those of torch 2.x; `list_form` and `raw` give the older and the odd ones.
    """

    def __init__(
        self,
        *,
        process_id: int = PROCESS,
        thread_id: int = HOST_THREAD,
        first_correlation: int = 1,
        **head: object,
    ) -> None:
        self.process_id = process_id
        self.thread_id = thread_id
        self.head: dict[str, object] = {"schemaVersion": 1, **head}
        self.events: list[dict[str, object]] = []
        self._correlation = first_correlation - 1
        self._external = 0
        self._flow = 0

    def raw(self, **event: object) -> None:
        """Any event at all; `ts` and `dur` given as int are nanoseconds, as text they are written as they stand."""
        self.events.append(event)

    def span(
        self,
        category: str,
        name: str,
        start_ns: int,
        duration_ns: int,
        *,
        thread_id: int | None = None,
        process_id: int | None = None,
        args: Mapping[str, object] | None = None,
    ) -> None:
        """A complete event of any category."""
        self.raw(
            ph="X",
            cat=category,
            name=name,
            pid=self.process_id if process_id is None else process_id,
            tid=self.thread_id if thread_id is None else thread_id,
            ts=start_ns,
            dur=duration_ns,
            args=dict(args or {}),
        )

    def step(self, number: int, start_ns: int, duration_ns: int, *, thread_id: int | None = None) -> None:
        """A step of the profiler's schedule."""
        self.annotation(f"ProfilerStep#{number}", start_ns, duration_ns, thread_id=thread_id)

    def annotation(self, name: str, start_ns: int, duration_ns: int, *, thread_id: int | None = None) -> None:
        """A range of the user's, as `record_function` makes it."""
        self.span("user_annotation", name, start_ns, duration_ns, thread_id=thread_id, args=self._next_external())

    def module(self, name: str, start_ns: int, duration_ns: int, *, thread_id: int | None = None) -> None:
        """A call of a module instance; `name` is as the profiler numbers it, `Linear_3`."""
        self.span("python_function", f"nn.Module: {name}", start_ns, duration_ns, thread_id=thread_id)

    def operator(
        self,
        name: str,
        start_ns: int,
        duration_ns: int,
        *,
        thread_id: int | None = None,
        shapes: Sequence[Sequence[int]] | None = None,
        dtypes: Sequence[str] | None = None,
        sequence_number: int | None = None,
        forward_thread_id: int | None = None,
    ) -> int:
        """A framework call; gives its external id. A `forward_thread_id` marks a backward operator."""
        args: dict[str, object] = self._next_external()
        if shapes is not None:
            args |= {"Input Dims": shapes, "Input type": ["float"] * len(shapes) if dtypes is None else dtypes}
        if sequence_number is not None:
            args |= {"Sequence number": sequence_number, "Fwd thread id": forward_thread_id or 0}
        self.span("cpu_op", name, start_ns, duration_ns, thread_id=thread_id, args=args)
        return self._external

    def runtime(
        self,
        name: str,
        start_ns: int,
        duration_ns: int,
        *,
        correlation: int | None = None,
        thread_id: int | None = None,
        category: str = "cuda_runtime",
    ) -> int:
        """A runtime (or, by `category`, driver) call; gives its correlation id, a fresh one if none is given."""
        correlation = self._next_correlation() if correlation is None else correlation
        args = {"cbid": 211, "correlation": correlation}
        self.span(category, name, start_ns, duration_ns, thread_id=thread_id, args=args)
        return correlation

    def device(
        self,
        category: str,
        name: str,
        start_ns: int,
        duration_ns: int,
        *,
        correlation: int | None,
        device_id: int = 0,
        stream_id: int = 7,
        args: Mapping[str, object] | None = None,
    ) -> None:
        """A device activity; with correlation None the argument is left out."""
        link = {} if correlation is None else {"correlation": correlation}
        where = {"device": device_id, "context": 1, "stream": stream_id, **link}
        self.span(
            category,
            name,
            start_ns,
            duration_ns,
            process_id=device_id,
            thread_id=stream_id,
            args={**where, **(args or {})},
        )

    def kernel(
        self,
        name: str,
        start_ns: int,
        duration_ns: int,
        *,
        correlation: int | None,
        device_id: int = 0,
        stream_id: int = 7,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (128, 1, 1),
        registers: int = 32,
        shared_bytes: int = 0,
        args: Mapping[str, object] | None = None,
    ) -> None:
        """A kernel's execution, without its launch."""
        shape = {"registers per thread": registers, "shared memory": shared_bytes, "grid": grid, "block": block}
        self.device(
            "kernel",
            name,
            start_ns,
            duration_ns,
            correlation=correlation,
            device_id=device_id,
            stream_id=stream_id,
            args={**shape, **(args or {})},
        )

    def launch(
        self,
        name: str,
        launch_ns: int,
        start_ns: int,
        duration_ns: int,
        *,
        thread_id: int | None = None,
        device_id: int = 0,
        stream_id: int = 7,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (128, 1, 1),
    ) -> int:
        """A 5 us cudaLaunchKernel at `launch_ns`, its kernel at `start_ns` and their flow; gives the correlation id."""
        correlation = self.runtime("cudaLaunchKernel", launch_ns, 5_000, thread_id=thread_id)
        self.kernel(
            name,
            start_ns,
            duration_ns,
            correlation=correlation,
            device_id=device_id,
            stream_id=stream_id,
            grid=grid,
            block=block,
        )
        self.launch_flow(
            correlation, launch_ns, start_ns, thread_id=thread_id, device_id=device_id, stream_id=stream_id
        )
        return correlation

    def copy(
        self,
        direction: str,
        launch_ns: int,
        start_ns: int,
        duration_ns: int,
        *,
        size: int,
        memory: tuple[str, str] = ("Pinned", "Device"),
        thread_id: int | None = None,
        stream_id: int = 7,
    ) -> int:
        """A 5 us cudaMemcpyAsync and its copy of `size` bytes; `direction` as HtoD, DtoH or DtoD."""
        correlation = self.runtime("cudaMemcpyAsync", launch_ns, 5_000, thread_id=thread_id)
        name = f"Memcpy {direction} ({memory[0]} -> {memory[1]})"
        args = {"bytes": size, "memory bandwidth (GB/s)": size / max(duration_ns, 1)}
        self.device("gpu_memcpy", name, start_ns, duration_ns, correlation=correlation, stream_id=stream_id, args=args)
        return correlation

    def memset(
        self,
        launch_ns: int,
        start_ns: int,
        duration_ns: int,
        *,
        size: int,
        thread_id: int | None = None,
        stream_id: int = 7,
    ) -> int:
        """A 5 us cudaMemsetAsync and its fill of `size` bytes."""
        correlation = self.runtime("cudaMemsetAsync", launch_ns, 5_000, thread_id=thread_id)
        args = {"bytes": size, "memory bandwidth (GB/s)": size / max(duration_ns, 1)}
        self.device(
            "gpu_memset",
            "Memset (Device)",
            start_ns,
            duration_ns,
            correlation=correlation,
            stream_id=stream_id,
            args=args,
        )
        return correlation

    def launch_flow(
        self,
        correlation: int,
        launch_ns: int,
        start_ns: int,
        *,
        thread_id: int | None = None,
        device_id: int = 0,
        stream_id: int = 7,
    ) -> None:
        """The arrow from a launch to its device activity."""
        self._arrow("ac2g", correlation, (self.process_id, thread_id, launch_ns), (device_id, stream_id, start_ns))

    def backward_flow(
        self, forward_ns: int, backward_ns: int, *, forward_thread: int | None = None, backward_thread: int
    ) -> None:
        """The arrow from a forward operator's start to its backward operator's start."""
        self._flow += 1
        forward = (self.process_id, forward_thread, forward_ns)
        self._arrow("fwdbwd", self._flow, forward, (self.process_id, backward_thread, backward_ns))

    def memory(
        self,
        time_ns: int,
        change: int,
        *,
        allocated: int,
        reserved: int,
        device_id: int | None = 0,
        thread_id: int | None = None,
    ) -> None:
        """A change of memory in use by `change` bytes, to `allocated`; device None is the host."""
        args = {
            "Total Reserved": reserved,
            "Total Allocated": allocated,
            "Bytes": change,
            "Addr": 140_000_000_000_000,
            "Device Id": -1 if device_id is None else device_id,
            "Device Type": _MEMORY_OF_DEVICE[device_id is not None],
        }
        tid = self.thread_id if thread_id is None else thread_id
        self.raw(
            ph="i", cat="cpu_instant_event", s="t", name="[memory]", pid=self.process_id, tid=tid, ts=time_ns, args=args
        )

    def to_bytes(self, *, list_form: bool = False) -> bytes:
        """The file's content: the object form, or the bare list of events."""
        events = "[\n" + ",\n".join(_event_text(event) for event in self.events) + "\n]"
        if list_form:
            return events.encode()
        head = "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in self.head.items())
        return f'{{\n{head}"traceEvents": {events}\n}}\n'.encode()

    def write(self, path: Path, *, list_form: bool = False) -> Path:
        """Writes the file, compressed (the same bytes each time) where its name ends in .gz; gives the path."""
        content = self.to_bytes(list_form=list_form)
        path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
        return path

    def _arrow(
        self, name: str, flow: int, tail: tuple[int, int | None, int], head: tuple[int, int | None, int]
    ) -> None:
        for ph, (pid, tid, ts) in (("s", tail), ("f", head)):
            end = {"bp": "e"} if ph == "f" else {}
            thread = self.thread_id if tid is None else tid
            self.raw(ph=ph, id=flow, cat=name, name=name, pid=pid, tid=thread, ts=ts, **end)

    def _next_correlation(self) -> int:
        self._correlation += 1
        return self._correlation

    def _next_external(self) -> dict[str, object]:
        self._external += 1
        return {"External id": self._external}


def _event_text(event: Mapping[str, object]) -> str:
    return "{" + ", ".join(f"{json.dumps(key)}: {_value_text(key, value)}" for key, value in event.items()) + "}"


def _value_text(key: str, value: object) -> str:
    if key in _TIMES and isinstance(value, int):
        return microseconds(value)
    if key in _TIMES and isinstance(value, str):
        return value
    return json.dumps(value)
