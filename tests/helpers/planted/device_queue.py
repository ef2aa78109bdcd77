"""A rank as queues: a host that calls, and streams that run what was launched, each when it can."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.helpers.synth import KinetoTrace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["AUTOGRAD", "COMPUTE", "COPIES", "EPOCH_NS", "MAIN", "DeviceQueue"]

MAIN, AUTOGRAD = 100, 101
COMPUTE, COPIES = 7, 9
EPOCH_NS = 1_795_132_800_000_000_000
_CALL_NS = 5_000  # a launch on the host
_PASSES_NS = 6_000  # from the begin of a launch to the earliest start of its work
_OPERATOR_NS = 3_000  # of an operator around what it calls


class DeviceQueue:
    """One process with one device; every method moves the host's clock, and writes what the profiler would see.

    Work starts when its launch has passed, its stream is free, and what it waits for has ended.
    """

    def __init__(self, rank: int = 0, ranks: int = 1) -> None:
        job = {"backend": "nccl", "rank": rank, "world_size": ranks}
        self.trace = KinetoTrace(
            process_id=MAIN,
            thread_id=MAIN,
            deviceProperties=[{"id": rank, "name": "NVIDIA A100-SXM4-80GB (synthetic)", "numSms": 108}],
            baseTimeNanoseconds=EPOCH_NS,
        )
        if ranks > 1:
            self.trace.head["distributedInfo"] = job
        self.rank = rank
        self.ranks = ranks
        self.step = 0
        self.host_ns = 1_000_000
        self.thread_id = MAIN
        self.slowness = 1.0  # of the device's kernels
        self._ends_ns: dict[int, int] = {}

    def spend(self, duration_ns: int) -> None:
        """The host does something else."""
        self.host_ns += duration_ns

    @contextmanager
    def on_thread(self, thread_id: int) -> Iterator[None]:
        """Continues on another thread, while this one waits."""
        before, self.thread_id = self.thread_id, thread_id
        yield
        self.thread_id = before

    @contextmanager
    def operator(
        self,
        name: str,
        shapes: Sequence[Sequence[int]] = (),
        dtype: str = "float",
        sequence: int | None = None,
        *,
        backward: bool = False,
    ) -> Iterator[None]:
        """A framework call around what is called within."""
        start_ns = self.host_ns
        self.spend(_OPERATOR_NS)
        yield
        self.spend(_OPERATOR_NS)
        self.trace.operator(
            name,
            start_ns,
            self.host_ns - start_ns,
            thread_id=self.thread_id,
            shapes=shapes or None,
            dtypes=[dtype] * len(shapes),
            sequence_number=sequence,
            forward_thread_id=1 if backward else 0,
        )

    @contextmanager
    def module(self, name: str) -> Iterator[None]:
        """A call of a module."""
        start_ns = self.host_ns
        yield
        self.trace.module(name, start_ns, self.host_ns - start_ns, thread_id=self.thread_id)

    @contextmanager
    def annotation(self, name: str) -> Iterator[None]:
        """A range of the user's or the framework's."""
        start_ns = self.host_ns
        yield
        self.trace.annotation(name, start_ns, self.host_ns - start_ns, thread_id=self.thread_id)

    def call(self, name: str, duration_ns: int = _CALL_NS) -> int:
        """A runtime call; gives its correlation id."""
        correlation = self.trace.runtime(name, self.host_ns, duration_ns, thread_id=self.thread_id)
        self.host_ns += duration_ns
        return correlation

    def launched(self, stream_id: int) -> tuple[int, int]:
        """A launch: its correlation id, and when its work could start, were its stream to wait for nothing else."""
        passed_ns = self.host_ns + _PASSES_NS
        return self.call("cudaLaunchKernel"), max(passed_ns, self._ends_ns.get(stream_id, 0))

    def ran(self, name: str, span: tuple[int, int], correlation: int, stream_id: int, **args: object) -> None:
        """Work that ran from the one time to the other; its stream is busy until then."""
        start_ns, end_ns = span
        self.trace.kernel(
            name,
            start_ns,
            end_ns - start_ns,
            correlation=correlation,
            device_id=self.rank,
            stream_id=stream_id,
            grid=(256, 1, 1),
            args=args,
        )
        self._ends_ns[stream_id] = end_ns

    def kernel(self, name: str, duration_ns: int, stream_id: int = COMPUTE) -> None:
        """Launches a kernel."""
        correlation, start_ns = self.launched(stream_id)
        self.ran(name, (start_ns, start_ns + round(duration_ns * self.slowness)), correlation, stream_id)

    def copy(self, size: int, duration_ns: int, *, pageable: bool, stream_id: int = COMPUTE) -> None:
        """Copies to the device; from pageable memory the call returns when the data has left it."""
        start_ns = max(self.host_ns + _PASSES_NS, self._ends_ns.get(stream_id, 0))
        end_ns = start_ns + duration_ns
        correlation = self.call("cudaMemcpyAsync", end_ns - self.host_ns if pageable else _CALL_NS)
        memory = "Pageable" if pageable else "Pinned"
        args: Mapping[str, object] = {"bytes": size, "memory bandwidth (GB/s)": size / duration_ns}
        self.trace.device(
            "gpu_memcpy",
            f"Memcpy HtoD ({memory} -> Device)",
            start_ns,
            duration_ns,
            correlation=correlation,
            device_id=self.rank,
            stream_id=stream_id,
            args=args,
        )
        self._ends_ns[stream_id] = end_ns

    def after(self, stream_id: int, other_id: int) -> None:
        """What is put on the stream from here on waits for what the other holds now."""
        self.call("cudaStreamWaitEvent", 1_000)
        self._ends_ns[stream_id] = max(self._ends_ns.get(stream_id, 0), self._ends_ns.get(other_id, 0))

    def synchronize(self) -> None:
        """The host waits until the compute stream is empty, as `loss.item()` does."""
        end_ns = max(self.host_ns + 2_000, self._ends_ns.get(COMPUTE, 0) + 3_000)
        self.call("cudaStreamSynchronize", end_ns - self.host_ns)
