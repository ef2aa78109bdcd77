"""Jobs of many ranks whose true answers are known: what each rank does is played through, and written as its trace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.helpers.rank_traces import REDUCE, collective_args
from tests.helpers.synth import KinetoTrace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DataParallel", "Pipeline", "Work"]

Work = tuple[str, int, int]
"""Direction (F, B, I: backward of inputs, W: of weights), stage and micro-batch."""
_SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
_ELEMENTS = 250_000
_BACKWARD_THREAD = 77


@dataclass(frozen=True)
class Pipeline:
    """One step of a pipeline; a stage's work takes these times, times its slowness."""

    ranks: int
    batches: int
    schedule: str  # GPipe, 1F1B, interleaved 1F1B, zero bubble
    chunks: int = 1
    times_ns: Mapping[str, int] = field(
        default_factory=lambda: {"F": 100_000, "B": 200_000, "I": 100_000, "W": 100_000}
    )
    transfer_ns: int = 10_000
    slowness: Mapping[int, float] = field(default_factory=dict)  # by rank

    def orders(self) -> list[list[Work]]:
        """What each rank does, in its order."""
        return [self._order(rank) for rank in range(self.ranks)]

    def _order(self, rank: int) -> list[Work]:
        if self.schedule == "interleaved 1F1B":
            return self._interleaved(rank)
        forward: list[Work] = [("F", rank, n) for n in range(self.batches)]
        if self.schedule == "GPipe":
            return [*forward, *(("B", rank, n) for n in range(self.batches))]
        ahead = min(self.ranks - rank - 1, self.batches)
        out: list[Work] = forward[:ahead]
        late: list[Work] = []
        for number in range(self.batches):
            out += forward[ahead + number : ahead + number + 1]
            if self.schedule == "1F1B":
                out.append(("B", rank, number))
                continue
            out.append(("I", rank, number))
            late.append(("W", rank, number))
            if number >= rank or ahead + number >= self.batches:
                out.append(late.pop(0))
        return out + late

    def _interleaved(self, rank: int) -> list[Work]:
        total, group = self.batches * self.chunks, self.ranks * self.chunks

        def of(number: int, direction: str) -> Work:
            chunk = number % group // self.ranks
            chunk = chunk if direction == "F" else self.chunks - 1 - chunk
            return direction, chunk * self.ranks + rank, number // group * self.ranks + number % self.ranks

        ahead = min((self.ranks - rank - 1) * 2 + (self.chunks - 1) * self.ranks, total)
        out = [of(n, "F") for n in range(ahead)]
        for number in range(total - ahead):
            out += [of(ahead + number, "F"), of(number, "B")]
        return out + [of(n, "B") for n in range(total - ahead, total)]

    def played(self) -> tuple[dict[Work, tuple[int, int]], dict[Work, tuple[int, int, int]]]:
        """Start and end of all work; of what came from another rank when its transfer began and ended, and its rank.

        Receives are posted early, messages of two ranks go one after the other.
        """
        ran: dict[Work, tuple[int, int]] = {}
        came: dict[Work, tuple[int, int, int]] = {}
        link_ns: dict[tuple[int, int], int] = {}
        orders, at, free = self.orders(), [0] * self.ranks, [0] * self.ranks
        while any(at[r] < len(orders[r]) for r in range(self.ranks)):
            ready = [r for r in range(self.ranks) if at[r] < len(orders[r]) and self._is_ready(orders[r][at[r]], ran)]
            assert ready, "ranks wait for each other in a circle"
            for rank in ready:
                work = orders[rank][at[rank]]
                start = free[rank]
                before = self._before(work)
                if before is not None and before[1] % self.ranks == rank:
                    start = max(start, ran[before][1])
                elif before is not None:
                    link = (before[1] % self.ranks, rank)
                    begun = max(ran[before][1], link_ns.get(link, 0))
                    link_ns[link] = begun + self.transfer_ns
                    came[work] = (begun, link_ns[link], link[0])
                    start = max(start, link_ns[link])
                free[rank] = start + self._duration(work)
                ran[work] = (start, free[rank])
                at[rank] += 1
        return ran, came

    def _duration(self, work: Work) -> int:
        return round(self.times_ns[work[0]] * self.slowness.get(work[1] % self.ranks, 1.0))

    def _before(self, work: Work) -> Work | None:
        direction, stage, batch = work
        last = self.ranks * self.chunks - 1
        if direction == "W":
            return "I", stage, batch
        if direction == "F":
            return None if stage == 0 else ("F", stage - 1, batch)
        return ("F", stage, batch) if stage == last else (direction, stage + 1, batch)

    def _is_ready(self, work: Work, ran: Mapping[Work, tuple[int, int]]) -> bool:
        before = self._before(work)
        return before is None or before in ran

    def window_ns(self) -> int:
        """From the first work to the last."""
        ran, _ = self.played()
        return max(end for _, end in ran.values()) - min(start for start, _ in ran.values())

    def compute_ns(self, rank: int) -> int:
        """What the rank computes."""
        return sum(self._duration(work) for work in self.orders()[rank])

    def traces(self, marks: str = "", *, sends: bool = True, coalesced: bool = False) -> list[KinetoTrace]:
        """A trace for each rank; marks: torch, megatron, or none, so that phases and messages tell.

        `coalesced`: what a kernel sends or receives is said by the call before its launch, as of batched messages.
        """
        ran, came = self.played()
        out = []
        for rank, order in enumerate(self.orders()):
            trace = KinetoTrace(process_id=100 + rank, distributedInfo={"rank": rank, "world_size": self.ranks})
            length = 200_000 + max(end for _, end in ran.values())
            trace.step(0, 1_000, length)
            posted: dict[int, int] = {}
            for number, work in enumerate(order):
                host = 2_000 + number * 1_500
                if work in came:
                    _, end, peer = came[work]
                    start = posted.get(peer, 40_000)
                    posted[peer] = 50_000 + end
                    _message(trace, "recv", (rank, peer), host, (start, 50_000 + end), 20 + peer, coalesced)
                _compute(trace, work, host, (50_000 + ran[work][0], 50_000 + ran[work][1]), marks, number)
                for after, (begun, end, peer) in came.items():
                    if sends and self._before(after) == work and peer == rank and after[1] % self.ranks != rank:
                        to = after[1] % self.ranks
                        times = (50_000 + begun, 50_000 + end)
                        _message(trace, "send", (rank, to), host + 1_000, times, 60 + to, coalesced)
            out.append(trace)
        return out


def _message(
    trace: KinetoTrace, name: str, ranks: tuple[int, int], host: int, times: tuple[int, int], stream: int,
    coalesced: bool,  # noqa: FBT001
) -> None:  # fmt: skip
    args = collective_args(name, "pp", sorted(ranks), (_ELEMENTS, _ELEMENTS))
    args |= {"Src Rank" if name == "recv" else "Dst Rank": ranks[1]}
    if coalesced:
        trace.span("cpu_op", "record_param_comms", host + 20, 30, args=args)
        args = {}
    correlation = trace.runtime("cudaLaunchKernel", host + 100, 50)
    trace.kernel(_SEND_RECV, times[0], times[1] - times[0], correlation=correlation, stream_id=stream, args=args)


def _compute(trace: KinetoTrace, work: Work, host: int, times: tuple[int, int], marks: str, number: int) -> None:
    direction, stage, batch = work
    start, duration = host + 200, 700
    back = direction != "F"
    if marks == "torch":
        trace.annotation(f"PP:{stage}{direction}{batch}", start, duration)
    elif marks == "megatron":
        trace.annotation("backward_step" if back else "forward_step", start, duration)
    thread = _BACKWARD_THREAD if back and not marks else None
    sequence = stage * 1000 + batch
    trace.operator(
        "AddmmBackward0" if back else "aten::addmm", start + 50, 500, thread_id=thread, sequence_number=sequence,
        forward_thread_id=1 if back else None,
    )  # fmt: skip
    correlation = trace.runtime("cudaLaunchKernel", start + 60 + number % 2, 50, thread_id=thread)
    trace.kernel("gemm", times[0], times[1] - times[0], correlation=correlation)


@dataclass(frozen=True)
class DataParallel:
    """Steps of one product and one all-reduce; `compute_ns` by rank and step, `late_ns` idle before the product."""

    compute_ns: Sequence[Sequence[int]]
    late_ns: Sequence[Sequence[int]] = ()
    transfer_ns: int = 500_000
    world_size: int | None = None
    kernels: Mapping[int, int] = field(default_factory=dict)  # by rank, of which a product is made
    loading: bool = False  # whether the late ones fetch their input meanwhile

    def waits_ns(self) -> list[int]:
        """What each rank waits in all steps."""
        arrivals = [[own + late for own, late in zip(*pair, strict=True)] for pair in self._pairs()]
        return [sum(max(each) - each[rank] for each in zip(*arrivals, strict=True)) for rank in range(len(arrivals))]

    def _pairs(self) -> list[tuple[Sequence[int], Sequence[int]]]:
        late = self.late_ns or [[0] * len(own) for own in self.compute_ns]
        return list(zip(self.compute_ns, late, strict=True))

    def traces(self) -> list[KinetoTrace]:
        """A trace for each rank; steps are as long as the slowest rank's."""
        out = []
        ranks = list(range(len(self.compute_ns)))
        for rank, (compute, late) in enumerate(self._pairs()):
            head = {"rank": rank, "world_size": self.world_size or len(ranks)}
            trace, at = KinetoTrace(process_id=100 + rank, distributedInfo=head), 0
            for number, (own, idle) in enumerate(zip(compute, late, strict=True)):
                slowest = max(pair[0][number] + pair[1][number] for pair in self._pairs())
                end = at + 20_000 + slowest + self.transfer_ns
                trace.step(number, at, end + 10_000 - at)
                launch, start = at + 1_000 + idle, at + 20_000 + idle
                if idle and self.loading:
                    trace.operator("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 500, idle)
                trace.operator("aten::mm", launch - 500, 9_000)
                parts = self.kernels.get(rank, 1)
                for part in range(parts):
                    trace.launch("gemm", launch + 100 * part, start + own * part // parts, own // parts)
                reduce = trace.runtime("cudaLaunchKernel", launch + 6_000, 1_000)
                args = collective_args("allreduce", "dp", ranks, (1000, 1000))
                trace.kernel(REDUCE, start + own, end - start - own, correlation=reduce, stream_id=20, args=args)
                at = end + 20_000
            out.append(trace)
        return out
