"""Each finding fires on its case, with the gain worked out by hand, and is silent on the opposite."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.hand import US, Hand
from tests.helpers.job_simulator import Pipeline
from tests.helpers.launched import Launched
from tests.helpers.rank_traces import write_ranks
from xsp_analyze.findings import RULES, Advice, advise, thresholds
from xsp_analyze.findings.__main__ import pages
from xsp_analyze.findings.facts import HostTime
from xsp_analyze.findings.registry import ANYWHERE, OF
from xsp_analyze.frames import coverage
from xsp_analyze.render.findings import as_json, as_markdown, as_text
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import Trace, TraceBuilder
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_STEP = 10_000  # ns
_STEPS = 5


def _trace(fill: Any, *, lengths: Sequence[int] = (_STEP,) * _STEPS, finish: Any = None, **run: Any) -> Trace:  # noqa: ANN401
    hand = Hand()
    hand.run(0, source_path="hand.json", layer_source="module", **run)
    start = 0
    for number, length in enumerate(lengths):
        step = hand.step(number, start, length)
        fill(hand, number, start, step)
        start += length
    if finish is not None:
        finish(hand)
    return hand.build()


def _fired(trace: Trace) -> dict[str, Advice]:
    """What is advised, by rule; and no gain, of whatever trace, is more than the step."""
    advice = advise(StepView.of(trace))
    assert all(one.gain_share is None or 0 <= one.gain_share <= 1 for one in advice)
    return {one.rule.id: one for one in advice}


def _kernels(*works: tuple[str, int, int], **columns: Any) -> Any:  # noqa: ANN401
    """Fills a step with device work: name, start within the step, duration."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        for name, at, duration in works:
            hand.work(name, start + at, duration, launch=start + at - 10, parent=step, step=number, **columns)

    return fill


def _on_host(*operators: tuple[str, int]) -> Any:  # noqa: ANN401
    """Fills a step with operators one after the other: name and duration."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        at = start
        for name, duration in operators:
            hand.span("operator", "operator", name, at, duration, parent_id=step, step=number, thread_id=1)
            at += duration

    return fill


def _cut_last(launches: int) -> Any:  # noqa: ANN401
    """Fills steps with the three kernels of `_BUSY`, the last with so many of them."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        _kernels(*(_BUSY[:launches] if number == _STEPS - 1 else _BUSY))(hand, number, start, step)

    return fill


_BUSY = (("a", 20, 3_000), ("b", 3_020, 3_000), ("c", 6_020, 3_900))  # 9,900 of 10,000 ns, no kernel leads by much


def _many(count: int, duration: int, launch_ns: int) -> Any:  # noqa: ANN401
    """A step of many kernels, each launched by a call that takes so long."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        for i in range(count):
            at = start + 100 + i * 150
            columns: dict[str, Any] = {"step": number, "parent_id": step}
            call = hand.span("runtime", "call", "cudaLaunchKernel", at - 60, launch_ns, **columns)
            hand.span("kernel", "kernel", f"k{i % 7}", at, duration, device_id=0, stream_id=7,
                      attribution="model_only", step=number, parent_id=call)  # fmt: skip

    return fill


def _sync(idle_ns: int) -> Any:  # noqa: ANN401
    """Work up to 5,000; a wait until 5,000; work again after so much idle time, to the end of the step."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        hand.work("a", start + 20, 4_980, launch=start + 1, parent=step, step=number)
        hand.span("runtime", "call", "cudaStreamSynchronize", start + 100, 4_900, parent_id=step, step=number)
        again = start + 5_000 + idle_ns
        hand.work("b", again, _STEP - 5_000 - idle_ns, launch=again - 6, parent=step, step=number)

    return fill


def _loader(idle_ns: int) -> Any:  # noqa: ANN401
    """The next batch is fetched in the first 2,000 ns; devices are idle for the first so many."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        hand.span("operator", "operator", name, start, 2_000, parent_id=step, step=number)
        hand.work("a", start + idle_ns, _STEP - idle_ns, launch=start + 1, parent=step, step=number)

    return fill


def _unlaunched(*, is_open: bool, until: int = 7_000) -> Any:  # noqa: ANN401
    """From 3,000 the device waits for a copy without a launch; a range of the host may be open meanwhile."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        context: dict[str, Any] = {"parent": step, "step": number, "thread_id": 1}
        hand.work("a", start + 20, 2_980, launch=start + 1, **context)
        attribution = "orphan_no_correlation"
        hand.work(
            "[CUDA memcpy Host-to-Device]", start + until, 100, kind="memcpy", attribution=attribution, step=number
        )
        hand.work("b", start + until + 100, 9_900 - until, launch=start + until - 9, **context)
        if is_open:
            columns: dict[str, Any] = {"parent_id": step, "step": number, "thread_id": 1}
            hand.span("application", "range", "make batch", start + 3_000, until - 3_000, **columns)

    return fill


def _two_devices(second_ns: int) -> Any:  # noqa: ANN401
    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        hand.work("a", start + 20, 9_000, launch=start + 5, parent=step, step=number, device_id=0)
        hand.work("a", start + 20, second_ns, launch=start + 6, parent=step, step=number, device_id=1)

    return fill


def _copies(memory: str, alone_ns: int) -> Any:  # noqa: ANN401
    """A copy of 1,000 ns, the last so many of it with nothing beside it."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        context: dict[str, Any] = {"launch": start + 1, "parent": step, "step": number}
        span = hand.work("[CUDA memcpy Host-to-Device]", start + 20, 1_000, kind="memcpy", **context)
        hand.work("a", start + 20, 1_000 - alone_ns, stream_id=8, **context) if alone_ns < 1_000 else None
        hand.work("b", start + 1_020, 8_000, stream_id=8, **context)
        hand.extra.setdefault("copies", []).append(
            {"span_id": span, "bytes": 4096, "copy_kind": "Host-to-Device", "source_kind": memory,
             "destination_kind": "Device"}
        )  # fmt: skip

    return fill


def _paged(alone_ns: int, *, fault: bool = False) -> Any:  # noqa: ANN401
    """Pages move to and fro for so long, the second half of it beside a kernel; a fill of 300 ns meets the first.

    With `fault` the kernel waits for pages for 400 ns more, when none moves.
    """

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        half = alone_ns // 2
        moves = ("Host-to-Device", start + 20, half), ("Device-to-Host", start + 1_020, half)
        for way, at, length in moves:
            columns: dict[str, Any] = {"kind": "memcpy", "stream_id": None, "attribution": "unified_memory"}
            span = hand.work(f"[CUDA memcpy Unified {way}]", at, length, step=number, **columns)
            hand.extra.setdefault("copies", []).append(
                {"span_id": span, "bytes": 4096, "copy_kind": f"Unified {way}", "virtual_address": 1 << 20}
            )
        hand.work(
            "[CUDA memset]", start + 20 + half - 1, 300, kind="memset", launch=start + 1, parent=step, step=number
        )
        hand.work("a", start + 1_020, 8_900, stream_id=8, launch=start + 1, parent=step, step=number)
        if fault:
            page = {"run_id": 0, "process_id": 1, "device_id": 0, "address": 1 << 20, "count": 3}
            hand.extra.setdefault("page_faults", []).append({**page, "time_ns": start + 3_000, "duration_ns": 400})

    return fill


def _with_peaks(hand: Hand) -> None:
    device = {"run_id": 0, "device_id": 0, "name": "A device", "peak_source": "its data sheet"}
    hand.extra["devices"].append({**device, "fp32_flop_per_s": 1e12, "dram_byte_per_s": 1e11})
    peak = {
        "run_id": 0,
        "device_id": 0,
        "quantity": "tf32",
        "value": 4e12,
        "unit": "flop/s",
        "source": "its data sheet",
    }
    hand.extra.setdefault("peaks", []).append(peak)


def _counted(bytes_read: float, flop: float) -> Any:  # noqa: ANN401
    """One layer with a kernel of 8,000 ns a step, with counters; peak 1 TFLOP/s and 100 GB/s: ridge at 10."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        layer = hand.module("Linear_0", start + 5, 9_000, 0, parent_id=step, step=number)
        at: dict[str, Any] = {"launch": start + 10, "parent": layer, "layer": layer, "step": number}
        span = hand.work("gemm", start + 20, 8_000, grid=4, **at)
        for metric, value in (("flop_count_sp", flop), ("dram_read_bytes", bytes_read), ("dram_write_bytes", 0.0)):
            hand.metric(span, metric, value)

    return fill


def _grid(blocks: int, duration: int, *beside: str, after: int = 0) -> Trace:
    """Five steps of 100 us on 80 multiprocessors, in each a kernel of which 4 blocks fit on each, others beside it.

    Or so long after it began.
    """
    launched = Launched()
    for number in range(_STEPS):
        launched.at = number * 10 * _STEP
        launched.step(number, launched.at, 10 * _STEP)
        for name in beside:
            launched.work(name, launched.at + after, duration, step=number, stream_id=9)
        launched.kernel("gemm", duration, (blocks, 1, 1), registers=64, step=number)
    return launched.build()


def _low(registers: int, name: str, blocks: int = 640, beside: int = 20_000) -> Trace:
    """A kernel of blocks of 256 threads, each with so many registers, for 60,000 ns, and another beside it."""
    launched = Launched()
    launched.step(0, 0, 10 * _STEP)
    launched.kernel(name, 60_000, (blocks, 1, 1), registers=registers, step=0)
    launched.kernel("add", beside, (640, 1, 1), registers=32, step=0)
    return launched.build()


def _phase(phase: str, count: int, duration: int) -> Any:  # noqa: ANN401
    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        hand.work("a", start + 20, 4_000, launch=start + 1, parent=step, step=number, phase="forward")
        for i in range(count):
            at = start + 4_100 + i * 50
            hand.work("x", at, duration, launch=at - 9, parent=step, step=number, phase=phase)

    return fill


def _updating(busy: int) -> Any:  # noqa: ANN401
    """The optimizer's range takes 5,800 ns of the host, for 100 kernels of 20 ns; the device computes for so long."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        shared: dict[str, Any] = {"step": number, "phase": "optimizer"}
        name = "Optimizer.step#SGD.step"
        columns: dict[str, Any] = {"parent_id": step, "thread_id": 1, **shared}
        update = hand.span("application", "range", name, start + 4_050, 5_800, **columns)
        hand.span("operator", "operator", "aten::add_", start + 4_060, 20, **{**columns, "parent_id": update})
        hand.work("a", start + 20, busy, launch=start + 1, parent=step, step=number, stream_id=8, thread_id=1)
        for i in range(100):
            at = start + 4_100 + i * 55
            hand.work("x", at, 20, launch=at - 9, parent=update, thread_id=1, **shared)

    return fill


def _operator_layers(source: str) -> Trace:
    hand = Hand()
    hand.run(0, layer_source=source)
    hand.work("a", 10, 100, launch=1)
    return hand.build()


def _layers(*durations: int) -> Any:  # noqa: ANN401
    """Layers whose device work takes so long each."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        at = 100
        for index, duration in enumerate(durations):
            layer = hand.module(f"Linear_{index}", start + at - 50, 40, index, parent_id=step, step=number)
            context: dict[str, Any] = {"launch": start + at - 45, "parent": layer, "layer": layer, "step": number}
            hand.work(f"k{index}", start + at, duration, **context)
            at += duration + 100

    return fill


def _kernels_alone() -> Trace:
    hand = Hand()
    hand.run(0)
    hand.work("a", 10, 100, attribution="orphan_no_correlation")
    return hand.build()


def _longer_first(duration: int) -> Any:  # noqa: ANN401
    """One more kernel that takes the first step to its end."""
    return lambda hand: hand.work("b", 20, duration, launch=15, step=0, stream_id=8)


def _queued(period: int) -> Any:  # noqa: ANN401
    """Each step launches work of so long, which begins when that of the step before has ended."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        hand.work("a", number * period + 20, period, launch=start + 10, parent=step, step=number)

    return fill


def _ranks(collective: tuple[str, int, int], compute: tuple[int, int] = (6_000, 6_600)) -> Trace:
    """Two ranks, each of whose 3 steps computes, then communicates alone for so long."""
    hand = Hand()
    for rank in range(2):
        hand.run(rank, rank=rank, world_size=2, source_path=f"{rank}.json", layer_source="module")
        for number in range(3):
            start = number * _STEP
            context: dict[str, Any] = {"parent": hand.step(number, start, _STEP, run_id=rank), "run_id": rank}
            context |= {"step": number, "device_id": rank}
            hand.work("a", start + 20, compute[rank], launch=start + 5, **context)
            name, duration = f"ncclDevKernel_{collective[0]}_Sum_f32_RING_LL", collective[1:][rank]
            hand.work(name, start + 20 + compute[rank], int(duration), launch=start + 10, **context)
    return hand.build()


def _pipeline(batches: int) -> Trace:
    """Two stages in one step, whose forward takes 100 us and backward 200 us of a micro-batch, one after the other."""
    with TemporaryDirectory() as folder:
        return convert(write_ranks(Path(folder), Pipeline(2, batches, "GPipe", transfer_ns=1).traces()), Options())


def _small(calls: int) -> Any:  # noqa: ANN401
    """So many collectives of 20 ns with nothing beside them."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        hand.work("a", start + 20, 4_000, launch=start + 1, parent=step, step=number)
        for i in range(calls):
            at = start + 5_000 + i * 60
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
            hand.work(name, at, 20, launch=at - 9, parent=step, step=number)

    return fill


def _compiled(step: int) -> Any:  # noqa: ANN401
    """In that step 2,000 ns of compilation, then the work."""

    def fill(hand: Hand, number: int, start: int, parent: int) -> None:
        at = start + (2_000 if number == step else 0)
        if number == step:
            name = "_compile.compile_inner (dynamo_timed)"
            hand.span("application", "range", name, start, 2_000, parent_id=parent, step=number)
        hand.work("a", at + 20, 7_900, launch=at + 5, parent=parent, step=number)

    return fill


def _attention(operator: str) -> Any:  # noqa: ANN401
    """Products that this operator launches, with a mask and softmax between, and softmax once more before a sort."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        at = start + 50
        for name, duration in (
            ("sm80_xmma_gemm_bf16_tn", 2_000), ("void at::native::elementwise_kernel<4, add>", 100),
            ("softmax_warp_forward", 1_000), ("sm80_xmma_gemm_bf16_nn", 1_500), ("softmax_warp_forward", 900),
            ("void cub::DeviceRadixSortKernel", 2_000), ("sm80_xmma_gemm_bf16_nn", 2_000),
        ):  # fmt: skip
            columns: dict[str, Any] = {"parent_id": step, "step": number, "thread_id": 1}
            caller = hand.span("operator", "operator", operator, at - 30, 20, **columns) if "gemm" in name else step
            hand.work(name, at, duration, launch=at - 20, parent=caller, step=number, thread_id=1)
            at += duration

    return fill


def _regions(*, is_break: bool) -> Any:  # noqa: ANN401
    """Compiled code runs to 2,000, the device too; it goes on at 3,000, with 100 ns of work launched between.

    In a region of its own, as after a graph break, or in the same region, as where a backend splits a graph.
    """

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        columns: dict[str, Any] = {"thread_id": 1, "step": number}

        def host(name: str, at: int, duration: int, parent: int, kind: str = "operator") -> int:
            level = "application" if kind == "range" else "operator"
            return hand.span(level, kind, name, start + at, duration, parent_id=parent, **columns)

        outer = host("Torch-Compiled Region: 0/0", 5, 5_000, step)
        first = host("## Call CompiledFxGraph fa ##", 10, 1_990, outer, "range")
        host("aten::mm", 20, 50, first)
        item = host("aten::item", 2_050, 500, outer)
        host("aten::_local_scalar_dense", 2_060, 400, item)
        host("TorchDynamo Cache Lookup", 3_000, 10, outer)
        inner = host("Torch-Compiled Region: 1/0", 3_010, 1_900, outer) if is_break else outer
        second = host("## Call CompiledFxGraph fb ##", 3_020, 1_800, inner, "range")
        hand.work("a", start + 30, 1_970, launch=start + 25, parent=first, step=number)
        hand.work("c", start + 2_100, 100, launch=start + 2_070, parent=item, step=number)
        hand.work("b", start + 3_040, 6_960, launch=start + 3_025, parent=second, step=number)

    return fill


def _replayed(duration: int) -> Any:  # noqa: ANN401
    """Of 9,900 ns of work so much is of a replay."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        layer = hand.module("Net_0", start + 1, 60, 0, parent_id=step, step=number)
        rest = 9_900 - duration
        hand.work("a", start + 20, duration, launch=start + 2, parent=step, step=number, attribution="graph_replay")
        hand.work("b", start + 20 + duration, rest, launch=start + 10, parent=layer, layer=layer, step=number)

    return fill


def _product(duration: int) -> Trace:
    """Three steps of one product of 1,000 x 1,000 and 1,000 x 500 in FP32, which is all that the device does."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        call = hand.span("operator", "operator", "aten::mm", start + 1, 50, parent_id=step, step=number)
        described = {"input_shapes": "[[1000, 1000], [1000, 500]]", "input_dtypes": '["float", "float"]'}
        hand.extra.setdefault("operators", []).append({"span_id": call, **described})
        hand.work("gemm", start + 20, duration, launch=start + 5, parent=call, step=number)

    def finish(hand: Hand) -> None:
        device = {"run_id": 0, "device_id": 0, "name": "A device", "peak_source": "its data sheet"}
        hand.extra["devices"].append({**device, "fp32_flop_per_s": 1e12, "dram_byte_per_s": 1e12})

    return _trace(fill, lengths=(duration + 100,) * 3, finish=finish)


def _traffic(moved: float, duration: int = 5_000, columns: int = 50) -> Trace:
    """A step in which a ReLU of 1,000 x 50 elements in FP32 moves so many bytes; memory has 100 GB/s."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        layer = hand.module("Block_0", start + 1, 9_000, 0, parent_id=step, step=number)
        call = hand.span("operator", "operator", "aten::relu", start + 2, 50, parent_id=layer, step=number)
        described = {"input_shapes": f"[[1000, {columns}]]", "input_dtypes": '["float"]'}
        hand.extra.setdefault("operators", []).append({"span_id": call, **described})
        at: dict[str, Any] = {"launch": start + 5, "parent": call, "layer": layer, "step": number}
        span = hand.work("relu", start + 20, duration, **at)
        for metric, value in (("dram_read_bytes", moved / 2), ("dram_write_bytes", moved / 2)):
            hand.metric(span, metric, value)

    return _trace(fill, finish=_with_peaks)


def _orphans(lost_ns: int) -> Trace:
    return _trace(
        _kernels(*_BUSY), finish=lambda hand: hand.work("early", 1, lost_ns, attribution="orphan_before_window")
    )


def _in_layer(attribution: str) -> Any:  # noqa: ANN401
    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        layer = hand.module("Linear_0", start + 5, 9_000, 0, parent_id=step, step=number)
        of_layer: dict[str, Any] = {"layer": layer} if attribution == "layer" else {}
        hand.work("a", start + 20, 8_000, launch=start + 10, parent=layer, step=number, **of_layer)

    return fill


def _waiting(part: float) -> Any:  # noqa: ANN401
    """A layer whose warps wait for memory in that part of their cycles."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        layer = hand.module("Linear_0", start + 5, 9_000, 0, parent_id=step, step=number)
        span = hand.work("a", start + 20, 8_000, launch=start + 10, parent=layer, step=number, layer=layer)
        hand.metric(span, "memory_dependency_stall_share", part)
        hand.metric(span, "other_stall_share", 1 - part if part > 0.5 else part / 2)

    return fill


def _sweep(*latencies: tuple[int, int]) -> Trace:
    """A run a batch size: batch size and duration of its steps."""
    hand = Hand()
    for run, (batch, length) in enumerate(latencies):
        hand.run(run, batch_size=batch)
        for number in range(3):
            hand.step(number, number * length, length, run_id=run)
    return hand.build()


def _leveled(without_ns: int, with_ns: int) -> Trace:
    hand = Hand()
    for run, (role, length) in enumerate((("model", without_ns), ("layers", with_ns), ("kernels", with_ns))):
        hand.run(run, role=role, source_path=f"{role}.json", layer_source="module")
        for number in range(3):
            start = number * length
            step = hand.step(number, start, length, run_id=run)
            if role == "model":
                continue
            layer = hand.module("Linear_0", start + 1, 500, 0, parent_id=step, run_id=run, step=number)
            if role == "kernels":
                hand.work("a", start + 20, 400, launch=start + 5, parent=layer, layer=layer, run_id=run, step=number)
    return hand.build()


def _matched(severity: str, kind: str = "match_layers") -> Trace:
    hand = Hand()
    hand.run(0)
    hand.work("a", 10, 100, launch=1)
    row = {
        "run_id": None,
        "kind": kind,
        "severity": severity,
        "count": 1,
        "duration_ns": 100,
        "detail": "layers of a and b match",
    }
    hand.extra["ledger"] = [{**row, "advice": ""}]
    return hand.build()


def _recorded(*steps: int) -> Trace:
    """Of three steps that each launch a kernel those whose kernels were recorded."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        if number in steps:
            hand.work("a", start + 20, 9_000, launch=start + 10, parent=step, step=number)
        else:
            hand.span("runtime", "call", "cudaLaunchKernel", start + 10, 5, parent_id=step, step=number)

    return _trace(fill, lengths=(_STEP,) * 3)


_THREE = ("vectorized_elementwise_kernel<4>", "unrolled_elementwise_kernel<2>", "elementwise_kernel<128>")
_CHAIN = ((_THREE[0], 20, 1_000), (_THREE[1], 1_020, 3_000), (_THREE[2], 4_020, 500), ("gemm", 5_000, 4_900))
_INTERRUPTED = ((_THREE[0], 20, 1_000), ("gemm", 1_020, 3_000), (_THREE[2], 4_020, 500), ("gemm", 5_000, 4_900))


def _cold(first_us: int) -> Trace:
    """Without steps: a context is made until the first kernel begins at `first_us`; two more until 10,000 us."""
    hand = Hand()
    hand.run(0)
    hand.span("runtime", "call", "cudaFree", 0, (first_us - 100) * 1_000, thread_id=1)
    hand.work("a", first_us * 1_000, 1_000_000, launch=(first_us - 50) * 1_000, thread_id=1)
    hand.work("b", 4_000_000, 3_000_000, launch=3_900_000, thread_id=1)
    hand.work("c", 8_000_000, 2_000_000, launch=7_900_000, thread_id=1)
    return hand.build()


def _of_world(size: int) -> Trace:
    """Ranks 0 and 1 of a job of so many."""
    hand = Hand()
    for rank in range(2):
        hand.run(rank, rank=rank, world_size=size)
        hand.work("a", 10, 100, launch=1, run_id=rank)
    return hand.build()


_CASES: dict[str, tuple[Callable[[], Trace], Callable[[], Trace], float | None]] = {
    # rule: a trace on which it fires, one on which it is silent, the gain in ns a step
    "work-not-recorded": (lambda: _recorded(0, 1), lambda: _recorded(0, 1, 2), None),
    "impossible-times": (lambda: _matched("error", "stream_overlap"), lambda: _matched("error", "bad_line"), None),
    "counted-twice": (lambda: _matched("warning", "same_rank_again"), lambda: _matched("error", "bad_line"), None),
    "ranks-missing": (lambda: _of_world(4), lambda: _of_world(2), None),
    "orphans": (lambda: _orphans(600), lambda: _orphans(100), None),
    "unattributed": (lambda: _trace(_in_layer("model_only")), lambda: _trace(_in_layer("layer")), None),
    "unexplained-idle": (
        lambda: _trace(_unlaunched(is_open=False)),
        lambda: _trace(_unlaunched(is_open=True)),
        None,
    ),
    "no-modules": (lambda: _operator_layers("operator"), lambda: _operator_layers("module"), None),
    "profiling-overhead": (lambda: _leveled(1_000, 1_100), lambda: _leveled(1_000, 1_090), None),
    "runs-disagree": (lambda: _leveled(1_050, 1_000), lambda: _leveled(1_040, 1_000), None),
    "steps-left-out": (lambda: _trace(_cut_last(1)), lambda: _trace(_cut_last(2)), None),
    "few-steps": (
        lambda: _trace(_kernels(*_BUSY), lengths=(_STEP, _STEP)),
        lambda: _trace(_kernels(*_BUSY), lengths=(_STEP,) * 3),
        None,
    ),
    "start-up": (lambda: _cold(900), lambda: _cold(400), None),
    "unmatched": (lambda: _matched("warning"), lambda: _matched("info"), None),
    "gpu-idle": (lambda: _trace(_kernels(("a", 20, 7_000))), lambda: _trace(_kernels(*_BUSY)), 3_000),
    # 60 kernels of 40 ns every 150 ns: 59 gaps of 110 ns in each of 5 steps, and 4 of 1,110 ns between steps
    # of the steps that the mean keeps, which have work on both sides
    "launch-bound": (lambda: _trace(_many(60, 40, 50)), lambda: _trace(_many(49, 40, 50)), 59 * 110 + 1_110),
    "host-sync": (lambda: _trace(_sync(400)), lambda: _trace(_sync(100)), 400),
    "data-wait": (lambda: _trace(_loader(1_500)), lambda: _trace(_loader(300)), 1_500),
    # From end of work to end of work the steps take 9,920, 9,000 and thrice 10,000: a trimmed mean of 9,973 1/3; less
    # the fastest.
    "uneven-steps": (
        lambda: _trace(_kernels(*_BUSY), lengths=(9_000, 10_000, 10_000, 10_000, 11_000)),
        lambda: _trace(_kernels(*_BUSY), lengths=(9_600, 10_000, 10_000, 10_000, 10_400)),
        973 + 1 / 3,
    ),
    # 9,000 and 7,000: 9,000 less the mean of 8,000
    "uneven-devices": (lambda: _trace(_two_devices(7_000)), lambda: _trace(_two_devices(8_000)), 1_000),
    "exposed-communication": (
        lambda: _trace(_kernels(("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 600), ("a", 620, 9_000))),
        lambda: _trace(_kernels(("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 300), ("a", 320, 9_000))),
        600,
    ),
    "host-dominant": (
        lambda: _trace(_on_host(("aten::mm", 700), ("aten::addmm", 300))),
        lambda: _trace(_on_host(("aten::mm", 700), ("aten::sort", 300))),
        1_000,
    ),
    "short-operators": (
        lambda: _trace(_on_host(*((f"aten::op{i}", 2) for i in range(1_000)))),
        lambda: _trace(_on_host(*((f"aten::op{i}", 2) for i in range(999)))),
        2_000,
    ),
    # half of 800 ns alone, half beside a kernel, and all but one of a fill of 300 ns; or 499
    "page-migrations": (lambda: _trace(_paged(800)), lambda: _trace(_paged(200)), 800 + 299),
    "copies-in-step": (lambda: _trace(_copies("Pinned", 600)), lambda: _trace(_copies("Pinned", 400)), 600),
    "pageable-copies": (lambda: _trace(_copies("Pageable", 0)), lambda: _trace(_copies("Pinned", 0)), 1_000),
    "dominant-kernel": (
        lambda: _trace(_kernels(("a", 20, 3_000), ("b", 3_020, 2_000), ("c", 5_020, 2_000), ("d", 7_020, 2_000))),
        lambda: _trace(_kernels(*((f"k{i}", 20 + i * 1_500, 1_500) for i in range(6)))),
        None,
    ),
    "dominant-layer": (lambda: _trace(_layers(3_000, 2_900)), lambda: _trace(_layers(*(1_000,) * 5)), None),
    # 60 % of the cycles of the layer's warps; or 39 %
    "stalled-layer": (lambda: _trace(_waiting(0.6)), lambda: _trace(_waiting(0.39)), None),
    "device-only": (_kernels_alone, lambda: _trace(_kernels(*_BUSY)), None),
    # 15,000 ns, then 10,000, which is where latency settles; 10,900 are less than 10 % more
    "ramp-up": (
        lambda: _trace(_kernels(("a", 20, 9_000)), lengths=(15_000, *(_STEP,) * 4), finish=_longer_first(14_000)),
        lambda: _trace(_kernels(("a", 20, 9_000)), lengths=(10_900, *(_STEP,) * 4), finish=_longer_first(9_900)),
        None,
    ),
    # the device takes 12,000 ns a step, the host 10,000: behind by 10,000 at the end of the fifth; or by 2,000
    "host-ahead": (lambda: _trace(_queued(12_000)), lambda: _trace(_queued(10_400)), None),
    # rank 0 waits 600 of 700 ns for rank 1: 300 in the mean of two, 600 for the other than the last
    "straggler": (lambda: _ranks(("AllReduce", 700, 100)), lambda: _ranks(("AllReduce", 200, 100)), 600),
    # 7,000 and 5,000 ns of compute: a seventh of 10,000 is above the mean of 6,000
    "unbalanced-pipeline": (
        lambda: _ranks(("SendRecv", 2_000, 2_000), compute=(7_000, 5_000)),
        lambda: _ranks(("SendRecv", 2_000, 2_000), compute=(6_200, 6_000)),
        _STEP / 7,
    ),
    # (2 - 1) / (4 + 2 - 1) of two stages and four micro-batches is a fifth: 300 us beside 1,200, and two transfers
    "pipeline-bubble": (lambda: _pipeline(4), lambda: _pipeline(8), 300_002),
    # 40 calls of 20 ns with nothing beside them, of which one is needed
    "small-collectives": (lambda: _trace(_small(40)), lambda: _trace(_small(31)), 780),
    # of 5 steps the second compiles for 2,000 ns, while the device is idle
    "recompilation": (lambda: _trace(_compiled(step=1)), lambda: _trace(_compiled(step=0)), 400),
    # from 2,000 to 3,000 the device works 100 ns, on what is launched there
    "graph-breaks": (lambda: _trace(_regions(is_break=True)), lambda: _trace(_regions(is_break=False)), 1_000),
    "graph-replays": (lambda: _trace(_replayed(495)), lambda: _trace(_replayed(494)), None),
    # 50,000 elements are read and written in 400,000 bytes; 1,000,000 in 5,000 ns are above half of the bandwidth
    "excess-traffic": (lambda: _traffic(1e6), lambda: _traffic(7.9e5), 3_000),
    # 1e9 flop at 1 TFLOP/s would take 1,000,000 of 4,000,000 ns; in 2,000,000 they reach half
    "far-from-peak": (lambda: _product(4_000_000), lambda: _product(2_000_000), 3_000_000),
    # 80,000 bytes and 1.6 Mflop in 8 us: intensity 20, roof 1 TFLOP/s, reached 0.2: 80 % of 8,000 ns
    "below-roof": (
        lambda: _trace(_counted(80_000, 1.6e6), finish=_with_peaks),
        lambda: _trace(_counted(80_000, 4.8e6), finish=_with_peaks),
        6_400,
    ),
    # 600,000 bytes in 8 us are 75 GB/s of 100: a quarter of 8,000 ns is above the roof
    "memory-bound": (
        lambda: _trace(_counted(600_000, 0.6e6), finish=_with_peaks),
        lambda: _trace(_counted(600_000, 7.2e6), finish=_with_peaks),
        2_000,
    ),
    # FP32 1, TF32 4 TFLOP/s: three quarters of 2,000 ns
    "fp32-products": (
        lambda: _trace(_kernels(("ampere_sgemm_128x64_tn", 20, 2_000), ("a", 2_020, 7_000)), finish=_with_peaks),
        lambda: _trace(
            _kernels(("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", 20, 2_000), ("a", 2_020, 7_000)), finish=_with_peaks
        ),
        1_500,
    ),
    # 1,000 + 3,000 + 500 less the longest
    # 2,000 + 100 + 1,000 + 1,500, less the longest; the kernels of layers and of a lone softmax are none
    "unfused-attention": (lambda: _trace(_attention("aten::bmm")), lambda: _trace(_attention("aten::addmm")), 2_600),
    "unfused-chains": (lambda: _trace(_kernels(*_CHAIN)), lambda: _trace(_kernels(*_INTERRUPTED)), 1_500),
    # 320 blocks fit at once: 400 are 1.25 waves, which take the time of 2
    "tail-waste": (lambda: _grid(400, 40_000), lambda: _grid(640, 40_000), 40_000 * 0.75 / 2),
    # 20 blocks on 80 multiprocessors; in short kernels they do not matter
    "small-grids": (lambda: _grid(20, 40_000), lambda: _grid(20, 19_000, "a", after=20_000), 30_000),
    # 168 registers a thread: one block of 8 warps fits of 64; products need few
    "low-occupancy": (lambda: _low(168, "update"), lambda: _low(168, "gemm", beside=70_000), None),
    "recompute": (
        lambda: _trace(_phase("recompute", 10, 45)),
        lambda: _trace(_phase("recompute", 8, 45)),
        450,
    ),
    # 100 kernels of 20 ns less the longest, which has to remain
    "optimizer-kernels": (
        lambda: _trace(_phase("optimizer", 100, 20)),
        lambda: _trace(_phase("optimizer", 99, 20)),
        1_980,
    ),
    # 8 inputs in 10 us, then 16 in 18 us (+11 %) or in 19.5 us (+2.6 %)
    "small-batch": (
        lambda: _sweep((8, 10_000), (16, 18_000)),
        lambda: _sweep((8, 10_000), (16, 19_500)),
        None,
    ),
}


def test_every_rule_has_a_case() -> None:
    assert set(_CASES) == {rule.id for rule in RULES}


def test_launches_without_one_kernel_are_the_first_that_is_told() -> None:
    advice = advise(StepView.of(_recorded()))
    sentence = (
        "3 kernel launches were recorded, and no kernel: what the device did is missing from this trace, not nothing."
    )
    assert (advice[0].rule.id, advice[0].observation.sentence) == ("work-not-recorded", sentence)
    assert as_text(advice).startswith(" 1. Kernels were launched that are not recorded")


def test_kernels_of_a_part_of_the_steps_are_told_before_what_is_to_gain() -> None:
    advice = advise(StepView.of(_recorded(1)))
    sentence = "Kernels of 1 of 3 steps that launched kernels were recorded: means are over what has them."
    assert advice[0].observation.sentence == sentence


@pytest.mark.parametrize("identity", list(_CASES))
def test_a_rule_fires_on_its_case_with_the_gain_worked_out_by_hand(identity: str) -> None:
    bad, _, gain = _CASES[identity]
    one = _fired(bad())[identity]
    assert one.observation.sentence.endswith(".")
    assert one.gain_ns == (None if gain is None else pytest.approx(gain))
    assert one.rule.on_trust is (identity in {"orphans", "unattributed", "no-modules", "profiling-overhead",
                                              "few-steps", "unmatched", "device-only", "ramp-up", "steps-left-out",
                                              "host-ahead", "graph-replays", "runs-disagree", "start-up",
                                              "work-not-recorded", "impossible-times", "counted-twice",
                                              "ranks-missing", "unexplained-idle"})  # fmt: skip


@pytest.mark.parametrize("identity", list(_CASES))
def test_a_rule_is_silent_on_the_opposite(identity: str) -> None:
    assert identity not in _fired(_CASES[identity][1]())


@pytest.mark.parametrize("identity", ["gpu-idle", "host-sync", "data-wait", "unfused-chains", "below-roof"])
def test_findings_depend_on_neither_the_order_of_rows_nor_the_time_of_day(identity: str) -> None:
    trace = _CASES[identity][0]()
    builder = TraceBuilder()
    for name in TABLES:
        frame = trace.frame(name)
        if name == "spans":
            frame = frame.with_columns(pl.col("start_ns") + 12_345)
        builder.add(name, frame.sample(fraction=1, shuffle=True, seed=1))
    moved = _fired(builder.build())
    assert {k: (a.gain_ns, a.observation) for k, a in moved.items()} == {
        k: (a.gain_ns, a.observation) for k, a in _fired(trace).items()
    }


def test_variants_of_one_template_are_one_kernel() -> None:
    """Three tiles of one product take most of device time, none of them 25; PyTorch's launchers are what they run."""
    tiles = [(f"void mul_mat<(type){n}, 64>(void const*)", n * 2_000, 1_900) for n in range(3)]
    other = [
        (f"void at::native::elementwise_kernel<4, at::native::{functor}>(int)", 6_000 + n * 1_000, 900)
        for n, functor in enumerate(["CUDAFunctor_add<float>", "MulFunctor<float>", "DivFunctor<float>", "CosFunctor"])
    ]
    one = _fired(_trace(_kernels(*tiles, *other)))["dominant-kernel"]
    assert one.observation.sentence.startswith(
        "3 variants of mul_mat (GEMV) take 61.3\N{NARROW NO-BREAK SPACE}% of device"
    )
    assert one.observation.about_ns == pytest.approx(5_700)


def test_a_small_gain_does_not_hide_the_kernel_that_takes_most() -> None:
    """Its last wave wastes 13 % of the step; the kernel is 90 % of it."""
    trace = Launched()
    trace.kernel("a", 1_800_000, (80 * 8 * 5 + 80, 1, 1))
    trace.kernel("b", 200_000, (80 * 8, 1, 1))
    assert [one.rule.id for one in advise(StepView.of(trace.build()))][:2] == ["dominant-kernel", "tail-waste"]


def test_what_most_of_a_kernel_is_lost_by_stands_before_the_kernel() -> None:
    assert [one.rule.id for one in advise(StepView.of(_grid(50, 40_000)))][:2] == [
        "small-grids",
        "dominant-kernel",
    ]


def test_what_promises_most_comes_first_the_unknown_by_what_it_is_about_and_doubts_last() -> None:
    advice = advise(StepView.of(_trace(_sync(400), lengths=(_STEP, _STEP))))
    assert [one.rule.id for one in advice] == ["dominant-kernel", "host-sync", "unattributed", "few-steps"]


def test_the_causes_of_idle_time_add_up_to_it() -> None:
    # Work at [2000, 3000), launched at 1990, and [7000, 8000), launched at 6990, of a step of 10,000 ns: idle 8,000,
    # of which 20 are between a launch and the start of its work.
    evidence = _fired(_trace(_kernels(("a", 2_000, 1_000), ("b", 7_000, 1_000))))["gpu-idle"].observation.evidence
    assert [(one.label, one.value) for one in evidence] == [
        ("latency", 10_000),
        ("idle", 8_000),
        ("idle: host work", 7_980),
        ("idle: launch", 20),
    ]


@pytest.mark.parametrize(("phase", "expected"), [("backward", "In training, let"), ("forward", "No backward pass")])
def test_communication_without_a_backward_pass_is_not_taken_for_gradients(phase: str, expected: str) -> None:
    works = (("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, 2_000), ("a", 2_020, 7_000))
    one = _fired(_trace(_kernels(*works, phase=phase)))["exposed-communication"]
    assert one.do.startswith(expected)


def test_a_finding_that_another_explains_is_not_told() -> None:
    # The loader keeps the device idle for 4,000 of 10,000 ns: that it is idle is told once, and with its cause.
    fired = _fired(_trace(_loader(4_000)))
    assert fired["data-wait"].gain_ns == pytest.approx(2_000)
    assert "gpu-idle" not in fired
    # Where more than half of it lies after the launch, it is not the host that the device waits for.
    assert "gpu-idle" not in _fired(_trace(_loader(4_100)))


def test_what_to_do_is_said_for_the_framework_of_the_trace() -> None:
    fill = _kernels(*((f"k{i}", 20 + 100 * i, 20) for i in range(90)))
    texts = {name: _fired(_trace(fill, framework=name))["launch-bound"].do for name in ("pytorch 2.11", "jax", None)}
    assert "torch.compile" in texts["pytorch 2.11"]
    assert "jax.jit" in texts["jax"]
    assert "torch" not in texts[None]
    rules = {rule.id for rule in RULES}
    assert {*ANYWHERE, *(name for own in OF.values() for name in own)} <= rules


def test_what_gains_less_than_a_hundredth_of_the_step_is_not_told() -> None:
    # 100 kernels of the optimizer of 20 ns of a step of 10,000 gain 1,980; of a step of 1,000,000 that is nothing
    assert "optimizer-kernels" in _fired(_trace(_phase("optimizer", 100, 20)))
    assert "optimizer-kernels" not in _fired(_trace(_phase("optimizer", 100, 20), lengths=(1_000_000,) * 5))


def test_a_launch_that_waits_in_a_queue_at_first_does_not_make_the_device_idle() -> None:
    # Launched at 10, started at 3,000,000, in a trace that ends at 4,000,000: work of before ran until then.
    hand = Hand()
    hand.run(0)
    hand.work("a", 3_000_000, 1_000_000, launch=10)
    assert "gpu-idle" not in _fired(hand.build())


def test_replays_of_graphs_are_not_told_to_use_graphs() -> None:
    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        columns: dict[str, Any] = {"step": number, "parent_id": step}
        call = hand.span("runtime", "call", "cudaGraphLaunch", start + 10, 50, **columns)
        for i in range(60):
            hand.span("kernel", "kernel", f"k{i % 7}", start + 100 + i * 150, 40, device_id=0, stream_id=7,
                      attribution="graph_replay", step=number, parent_id=call)  # fmt: skip

    fired = _fired(_trace(fill))
    assert "launch-bound" not in fired
    assert "replays of graphs already" in fired["gpu-idle"].do


def test_far_from_peak_names_the_shapes_that_lose_most_and_the_line() -> None:
    (one,) = (a for a in advise(StepView.of(_product(4_000_000))) if a.rule.id == "far-from-peak")
    assert (
        "Most is lost in aten::mm of 1000x1000, 1000x500 in fp32, which reaches 25.0\u202f%."
        in one.observation.sentence
    )
    assert [(e.label, e.value) for e in one.observation.evidence] == [("mm 1000x1000, 1000x500", 3_000_000)]
    assert (one.observation.rows, one.observation.search) == ("B23", "aten::mm")


def test_rules_on_measured_kernels_are_silent_on_modelled_ones() -> None:
    fired = {a.rule.id for a in advise(StepView.of(_product(4_000_000)))}
    assert not fired & {"below-roof", "memory-bound"}


def test_an_empty_trace_has_no_findings() -> None:
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [0]}))
    assert advise(StepView.of(builder.build())) == []
    assert as_text([]).startswith("No rule found anything")


def test_text_names_the_gain_the_evidence_and_what_to_do() -> None:
    text = as_text(advise(StepView.of(_CASES["host-sync"][0]())))
    heading = (
        "The host waits for the device in the middle of a step (host-sync): 0 ns by simulation, at most 400 ns, 4.00 %"
    )
    assert heading in " ".join(text.split())
    assert "waited in cudaStreamSynchronize 4.90 \u00b5s" in text
    assert "To do: Find what waits" in text
    assert max(map(len, text.splitlines())) <= 100


def test_json_keeps_units_at_rest_and_null_for_unknown() -> None:
    document = json.loads(as_json(advise(StepView.of(_CASES["dominant-kernel"][0]()))))
    one = next(f for f in document if f["id"] == "dominant-kernel")
    assert one["gain_ns"] is None
    assert one["evidence"][0] == {"label": "its device time", "value": 3_000.0, "unit": "ns"}


def _late(waits: Sequence[tuple[int, int]], ranks: int = 2) -> Trace:
    """Collectives of so many ranks, in each of which the others wait so many ns for this rank."""
    hand = Hand()
    for rank in range(ranks):
        hand.run(rank, rank=rank, world_size=ranks)
        hand.work("gemm", 0, 10_000, launch=0, run_id=rank, parent=None)
        end = 20_000
        for late, wait in waits:
            begin = end + (wait if rank == late else 0)
            end += wait + 1_000
            hand.work("ncclDevKernel_AllReduce_Sum_f32", begin, end - begin, launch=begin - 100, run_id=rank)
            end += 5_000
    return hand.build()


@pytest.mark.parametrize(
    ("waits", "is_told"),
    [
        ([(1, 5_000)] * 6, True),
        ([(1, 5_000), (0, 4_500)] * 6, False),  # of two ranks one is always last, and one a little more often
        ([(1, 9_000), (0, 500)] * 6, True),  # by what is waited for it, however often the other is last
        ([(1, 9_000)] * 2, False),
    ],
)
def test_a_straggler_is_told_by_what_is_waited_for_it(waits: Sequence[tuple[int, int]], *, is_told: bool) -> None:
    assert ("straggler" in _fired(_late(waits))) == is_told


def test_one_collective_that_takes_most_is_named() -> None:
    sentence = _fired(_late([(0, 300), (1, 300), (0, 90_000)]))["exposed-communication"].observation.sentence
    assert "One call of ncclDevKernel_AllReduce_Sum_f32 takes 91.0" in sentence
    assert "One call" not in _fired(_late([(0, 30_000), (1, 30_000), (0, 30_000)]))[
        "exposed-communication"
    ].observation.sentence  # fmt: skip


@pytest.mark.parametrize(
    ("name", "advised"),
    [
        ("gemm_128x128_ldg8_stages_32x1_nn", "narrower type"),
        ("turing_h1688gemm_128x128_ldg8_stages_32x1_nn", "multiples of 64"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW", "fuse it"),
        ("softmax_warp_forward", "scaled_dot_product_attention"),
        ("triton_poi_fused_add_0", "generated code"),
        ("my_kernel", "Try another algorithm"),
    ],
)
def test_what_to_do_about_a_kernel_is_of_its_class(name: str, advised: str) -> None:
    advice = _fired(_trace(_kernels((name, 1, 9_000)), framework="pytorch"))["dominant-kernel"]
    assert advised in advice.do
    assert "channels_last" not in advice.do


def test_a_hostile_name_breaks_no_table() -> None:
    text = as_markdown(advise(StepView.of(_trace(_kernels(("a|b\n\x1b[31m", 20, 9_000))))))
    assert "\x1b" not in text
    assert all(line.count("|") - line.count("\\|") == 4 for line in text.splitlines())


def test_every_rule_has_its_page_in_the_docs() -> None:
    from pathlib import Path  # noqa: PLC0415

    folder = Path(__file__).parents[3] / "docs" / "findings"
    written = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.md")}
    assert written == dict(pages()), "write them anew: python -m xsp_analyze.findings docs/findings"


def test_every_threshold_says_why_it_is_this_one() -> None:
    from pathlib import Path  # noqa: PLC0415

    text = Path(str(thresholds.__file__)).read_text(encoding="utf-8")
    for name in thresholds.__all__:
        _, _, after = text.partition(f"\n{name} = ")
        assert after.split("\n")[1].startswith('"""'), name


def test_doubts_stand_under_a_heading_of_their_own() -> None:
    text = as_text(advise(StepView.of(_trace(_sync(400), lengths=(_STEP, _STEP)))))
    assert text.index("host-sync") < text.index("How far to trust the numbers:") < text.index("few-steps")


@pytest.mark.parametrize(
    ("name", "capability", "fires"),
    [
        ("maxwell_sgemm_128x64_tn", "8.6", True),
        ("ampere_sgemm_128x64_tn", None, True),
        ("maxwell_sgemm_128x64_tn", None, False),
        ("maxwell_sgemm_128x64_tn", "6.1", False),
    ],
)
def test_products_in_fp32_on_a_device_of_unknown_rates_are_told_with_what_is_missing(
    name: str, capability: str | None, *, fires: bool
) -> None:
    def finish(hand: Hand) -> None:
        device = {"run_id": 0, "device_id": 0, "name": "A device", "compute_capability": capability}
        hand.extra["devices"].append(device)

    work = _kernels((name, 20, 6_000), ("a", 6_020, 3_000))
    one = _fired(_trace(work, finish=finish)).get("fp32-products")
    assert (one is not None) is fires
    if one is not None:
        assert one.gain_ns is None
        assert one.observation.about_ns == pytest.approx(3_000)
        assert "else --device FILE.toml" in one.observation.sentence


def test_a_finding_says_what_its_gain_is_estimated_from() -> None:
    advice = advise(StepView.of(_CASES["fp32-products"][0]()))
    assert "Estimated from times in the trace and peak rates of the device." in as_text(advice)
    one = next(f for f in json.loads(as_json(advice)) if f["id"] == "fp32-products")
    assert (one["gain_basis"], one["coverage"]) == ("times in the trace and peak rates of the device", 1.0)


def test_graph_breaks_name_the_operators_between_but_not_those_within_them() -> None:
    observation = _fired(_trace(_regions(is_break=True)))["graph-breaks"].observation
    assert "once a step; 1 operator runs there, not compiled, for 500\u202fns" in observation.sentence
    assert {one.label: one.value for one in observation.evidence} == pytest.approx(
        {"aten::item": 500, "idle meanwhile": 900, "device time of what is launched there": 100}
    )


def test_idle_time_in_graph_breaks_is_in_the_gain_of_no_other_finding() -> None:
    """The device is idle for 4,000 ns of each step, all of it in a break in which nothing is launched."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        columns: dict[str, Any] = {"thread_id": 1, "step": number}
        outer = hand.span("operator", "operator", "Torch-Compiled Region: 0/0", start, 6_100, parent_id=step, **columns)
        name = "Torch-Compiled Region: 1/0"
        inner = hand.span("operator", "operator", name, start + 5_980, 115, parent_id=outer, **columns)
        for kernel, at, duration, parent, first in (("a", 10, 1_990, outer, 1), ("b", 6_000, 4_000, inner, 5_990)):
            call = f"## Call CompiledFxGraph {kernel} ##"
            graph = hand.span("application", "range", call, start + first, 100, parent_id=parent, **columns)
            launch = start + first + 1
            hand.work(kernel, start + at, duration, launch=launch, parent=graph, step=number, thread_id=1)

    fired = _fired(_trace(fill))
    assert fired["graph-breaks"].gain_ns == pytest.approx(4_000, abs=20)
    assert "gpu-idle" not in fired


def test_code_loaded_in_a_trace_without_steps_promises_no_start_up() -> None:
    """7,990 of 10,050 ns are between the two kernels, in a call that loads a module: start-up, in no gain."""
    hand = Hand()
    hand.run(0)
    hand.work("a", 100, 1_000, launch=50, thread_id=1)
    hand.span("runtime", "call", "cuModuleLoadData", 1_100, 7_990, thread_id=1)
    hand.work("b", 9_100, 1_000, launch=9_095, thread_id=1)
    one = _fired(hand.build())["recompilation"]
    assert one.gain_ns is None
    assert "79.5\N{NARROW NO-BREAK SPACE}% of the time." in one.observation.sentence


def test_pageable_copies_gain_no_more_than_the_bus_allows() -> None:
    """4,096 bytes take 256 ns at 16 GB/s; the copy takes 1,000."""

    def finish(hand: Hand) -> None:
        hand.extra["devices"].append({"run_id": 0, "device_id": 0, "name": "A device", "peak_source": "its data sheet"})
        rate = {"quantity": "pcie", "value": 16e9, "unit": "byte/s", "source": "its data sheet"}
        hand.extra["peaks"] = [{"run_id": 0, "device_id": 0, **rate}]

    one = _fired(_trace(_copies("Pageable", 0), finish=finish))["pageable-copies"]
    assert one.gain_ns == pytest.approx(744)
    assert "pinned they would take 256" in one.observation.sentence


def test_migrations_are_no_copies_and_what_waits_for_them_is_named() -> None:
    """What is alone, 400 ns of migrations and a fill of 300, would be copies above the threshold."""
    fired = _fired(_trace(_paged(800, fault=True)))
    assert "copies-in-step" not in fired
    one = fired["page-migrations"]
    assert one.gain_ns == pytest.approx(800 + 299 + 400)  # the kernel waits for faults too
    assert {e.label: e.value for e in one.observation.evidence} == {
        "moving to the device": 400,
        "moving back": 400,
        "to the device again": 4096 * 4 / 5,  # the page of 4,096 bytes comes in each of five steps
        "a meanwhile": 800,
        "[CUDA memset] meanwhile": 300,
    }
    assert "4.00\N{NARROW NO-BREAK SPACE}KiB to the device and 4.00" in one.observation.sentence
    assert "cudaMemPrefetchAsync" in one.do


@pytest.mark.parametrize(("busy", "gain"), [(4_000, 5_800 * 0.99), (9_900, 1_980 + 100)])
def test_an_optimizer_gains_what_the_host_takes_for_it_as_far_as_the_device_is_idle(busy: int, gain: float) -> None:
    """100 launches become one; of a device that works for 9,900 of 10,000 ns the kernels' time and 100 ns."""
    one = _fired(_trace(_updating(busy), format="torch_profiler"))["optimizer-kernels"]
    assert one.gain_ns == pytest.approx(gain)
    evidence = {e.label: e.value for e in one.observation.evidence}
    assert evidence["Optimizer.step#SGD.step on the host"] == 5_800
    assert "the host takes 5.80\N{NARROW NO-BREAK SPACE}µs for that." in one.observation.sentence


def test_the_simulation_of_an_optimizer_takes_the_host_s_time_away_too() -> None:
    """A thread launches a kernel every 50 us for 5 ms of each step of 6 ms; the device takes 20 us for each."""
    hand = Hand()
    hand.run(0, source_path="hand.json", format="torch_profiler")
    for number in range(5):
        start = number * 6_000 * US
        shared: dict[str, Any] = {"step": number, "thread_id": 1}
        step = hand.step(number, start, 6_000 * US, thread_id=1)
        name = "Optimizer.step#SGD.step"
        columns: dict[str, Any] = {"parent_id": step, "phase": "optimizer", **shared}
        update = hand.span("application", "range", name, start + 1_000 * US, 5_000 * US, **columns)
        for i in range(100):
            at = start + (1_000 + i * 50) * US
            columns["parent_id"] = update
            operator = hand.span("operator", "operator", "aten::add_", at, 50 * US, **columns)
            hand.work("x", at + 20 * US, 20 * US, launch=at + 10 * US, parent=operator, phase="optimizer", **shared)
    one = _fired(hand.build())["optimizer-kernels"]
    assert one.simulated_ns == pytest.approx(4_950 * US, rel=0.01)


def test_idle_time_without_a_launch_is_the_host_s_where_something_is_open_and_else_not_known() -> None:
    """4,000 ns before a copy without a launch, 20 before the first kernel."""
    fired = _fired(_trace(_unlaunched(is_open=True)))
    assert fired["gpu-idle"].gain_ns == pytest.approx(4_020)
    evidence = {e.label: e.value for e in fired["gpu-idle"].observation.evidence}
    assert evidence["of unknown make batch was open"] == 4_000
    silent = _fired(_trace(_unlaunched(is_open=False)))
    assert "gpu-idle" not in silent
    assert silent["unexplained-idle"].observation.sentence.startswith("For 4.00\N{NARROW NO-BREAK SPACE}µs, 40.0")


def test_what_nothing_explains_does_not_hide_what_the_host_does() -> None:
    """Of 5,010 ns before the copy nothing is known; before the kernel the host works for 1,990."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        context: dict[str, Any] = {"parent": step, "step": number, "thread_id": 1}
        attribution = "orphan_no_correlation"
        hand.work(
            "[CUDA memcpy Host-to-Device]", start + 5_000, 100, kind="memcpy", attribution=attribution, step=number
        )
        hand.work("b", start + 7_100, 2_890, launch=start + 7_090, **context)

    one = _fired(_trace(fill))["gpu-idle"]
    assert one.gain_ns == pytest.approx(1_990)
    assert "19.9\N{NARROW NO-BREAK SPACE}% beside 5.02" in one.observation.sentence


def test_a_long_pause_after_a_wait_is_the_host_s_own_but_for_its_begin() -> None:
    """The host waits for 4 ms, then works for 2 until it launches again: 200 us of that are the wait's."""

    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        context: dict[str, Any] = {"parent": step, "step": number, "thread_id": 1}
        hand.work("a", start + 20 * US, 4_980 * US, launch=start + 10 * US, **context)
        wait: dict[str, Any] = {"parent_id": step, "step": number, "thread_id": 1}
        hand.span("runtime", "call", "cudaStreamSynchronize", start + 1_000 * US, 4_000 * US, **wait)
        hand.work("b", start + 7_000 * US, 2_990 * US, launch=start + 6_990 * US, **context)

    fired = _fired(_trace(fill, lengths=(10_000 * US,) * 5))
    assert fired["host-sync"].gain_ns == pytest.approx(200 * US)
    assert fired["gpu-idle"].gain_ns == pytest.approx((2_000 - 200 + 30) * US)


def test_graph_breaks_are_told_of_regions_without_numbers() -> None:
    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        columns: dict[str, Any] = {"thread_id": 1, "step": number}
        outer = hand.span("operator", "operator", "Torch-Compiled Region", start, 900, parent_id=step, **columns)
        hand.span("operator", "operator", "Torch-Compiled Region", start + 200, 90, parent_id=outer, **columns)
        hand.span("operator", "operator", "Torch-Compiled Region", start + 300, 90, parent_id=outer, **columns)

    assert "twice a step" in _fired(_trace(fill))["graph-breaks"].observation.sentence


def test_without_calls_of_compiled_graphs_what_a_graph_break_costs_is_unknown() -> None:
    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        columns: dict[str, Any] = {"thread_id": 1, "step": number}
        outer = hand.span("operator", "operator", "Torch-Compiled Region: 0/0", start, 900, parent_id=step, **columns)
        hand.span("operator", "operator", "aten::mm", start + 10, 90, parent_id=outer, **columns)
        hand.span("operator", "operator", "Torch-Compiled Region: 1/0", start + 200, 90, parent_id=outer, **columns)
        hand.work("a", start + 20, 9_900, launch=start + 11, parent=outer, step=number)

    one = _fired(_trace(fill))["graph-breaks"]
    assert one.gain_ns is None
    assert one.observation.sentence == "A function is left in the middle of its compiled code once a step."
    assert not one.observation.evidence


def test_recompilation_tells_how_many_versions_a_function_ran_in() -> None:
    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        _compiled(step=2)(hand, number, start, step)
        version = 1 if number >= 2 else 0
        for function, own in ((0, version), (1, 0)):
            name = f"Torch-Compiled Region: {function}/{own}"
            hand.span("operator", "operator", name, start + 5_000 + function, 1, parent_id=step, thread_id=1)

    sentence = _fired(_trace(fill))["recompilation"].observation.sentence
    assert sentence.endswith("1 compiled function ran in 2 versions.")


def test_recompilation_is_told_without_device_work_too() -> None:
    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        if number == 3:
            hand.span("operator", "operator", "entire_frame_compile", start + 10, 2_000, parent_id=step, step=number)
            hand.span("operator", "operator", "_compile.compile_inner", start + 20, 900, parent_id=step, step=number)

    one = _fired(_trace(fill))["recompilation"]
    assert one.gain_ns == 400  # 2,000 in one of five steps
    assert "in 1 step, the rest waits for 400\u202fns a step" in one.observation.sentence
    assert [(e.label, e.value) for e in one.observation.evidence] == [("entire_frame_compile", 400)]


def test_replays_ask_for_their_capture_where_launches_can_be_paired_else_for_nodes() -> None:
    of_torch = _fired(_trace(_replayed(8_000), format="torch_profiler"))["graph-replays"]
    assert "--graph-capture PATH" in of_torch.do
    of_nsys = _fired(_trace(_replayed(8_000), format="nsys_sqlite"))["graph-replays"]
    assert "--cuda-graph-trace=node" in of_nsys.do
    assert "--graph-capture" not in of_nsys.do


def test_replays_do_not_make_the_rest_unattributed() -> None:
    fired = _fired(_trace(_replayed(8_000)))
    assert "unattributed" not in fired
    assert fired["graph-replays"].observation.sentence == (
        "80.8\u202f% of device time is replays of graphs, of which no layer is known."
    )


@pytest.mark.parametrize(("identity", "blocks"), [("tail-waste", 400), ("small-grids", 20)])
def test_what_a_kernel_leaves_empty_is_not_lost_where_another_runs_beside_it(identity: str, blocks: int) -> None:
    assert identity not in _fired(_grid(blocks, 40_000, "add"))
    assert identity in _fired(_grid(blocks, 40_000, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"))


@pytest.mark.parametrize(("registers", "blocks", "fires"), [(168, 640, True), (64, 640, False), (168, 70, False)])
def test_few_warps_are_told_where_registers_are_why(registers: int, blocks: int, fires: bool) -> None:  # noqa: FBT001
    """Of 64 registers half of the warps fit; 70 blocks are fewer than are resident at once."""
    fired = _fired(_low(registers, "update", blocks))
    assert ("low-occupancy" in fired) is fires
    if fires:
        sentence = fired["low-occupancy"].observation.sentence.replace("\u202f", " ")
        assert sentence == (
            "Kernels that take 75.0 % of device time have room for few warps: registers let update with 168 registers a"
            " thread fill 12.5 % of a multiprocessor's."
        )


def test_few_warps_of_a_product_are_told_where_it_is_most_of_the_time_with_what_may_be_on_purpose() -> None:
    one = _fired(_low(168, "gemm"))["low-occupancy"]
    assert one.observation.about_ns == 60_000
    assert one.do.startswith("Kernels of this class keep tiles in registers")


@pytest.mark.parametrize(("beside", "fires"), [(0, True), (17_000 * 5, False)])
def test_small_grids_of_short_kernels_are_told_where_these_are_most_of_the_time(beside: int, *, fires: bool) -> None:
    """Five kernels of 17,000 ns on 50 of 80 multiprocessors, alone or beside as much that fills the device."""
    launched = Launched()
    launched.step(0, 0, 20 * _STEP)
    for _ in range(5):
        launched.kernel("gemm", 17_000, (50, 1, 1), registers=64, step=0)
    launched.kernel("add", beside, (640, 1, 1), registers=32, step=0)
    assert ("small-grids" in _fired(launched.build())) is fires


def test_a_collective_takes_few_blocks_on_purpose() -> None:
    launched = Launched()
    launched.step(0, 0, 100_000)
    launched.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 90_000, (20, 1, 1), step=0)
    assert "small-grids" not in _fired(launched.build())


def test_small_grids_are_told_where_registers_are_not_recorded() -> None:
    launched = Launched(name="AMD Instinct MI300X", multiprocessor_count=304, compute_capability="9.4")
    launched.step(0, 0, 100_000)
    launched.kernel("norm", 60_000, (76, 1, 1), registers=None, shared=None, step=0)
    one = _fired(launched.build())["small-grids"]
    assert one.gain_ns == 45_000
    assert one.observation.sentence.endswith("use 25.0\u202f% of the device's multiprocessors on average.")


def test_excess_traffic_is_not_told_of_what_does_not_wait_for_memory() -> None:
    # 2.5 times of 80,000 bytes, at 50 and at 22 GB/s
    assert "excess-traffic" in _fired(_traffic(2e5, 4_000, columns=10))
    assert "excess-traffic" not in _fired(_traffic(2e5, 9_000, columns=10))


def test_excess_traffic_names_the_operator_and_its_layer() -> None:
    one = _fired(_traffic(1e6))["excess-traffic"].observation
    assert one.sentence.startswith("aten::relu in Block_0 moves 2.5 times the bytes that its shapes ask for;")
    assert [(e.label, e.value) for e in one.evidence] == [("aten::relu in Block_0 (2.5 times)", 3_000)]


def test_start_up_is_in_no_gain_and_no_share() -> None:
    # 10,000 us of which 900 are before the first kernel. The device is idle in [1900, 4000) and [7000, 8000): 3,100 of
    # the 9,100 us that are left.
    advice = _fired(_cold(900))
    idle = advice["gpu-idle"]
    assert idle.gain_ns == 3_100_000
    assert idle.gain_share == pytest.approx(3_100 / 9_100)
    assert "(3.10\u202fms of 9.10\u202fms without start-up)" in idle.observation.sentence
    assert advice["start-up"].observation.sentence.startswith(
        "900\u202f\u00b5s of 10.0\u202fms are start-up and end, once a process"
    )


def test_what_is_set_up_before_the_first_kernel_and_done_after_the_last_work_is_in_no_gain() -> None:
    """10,000 us: a memset at 2,000, kernels in [4,000, 5,000) and [5,500, 6,000), then the host alone until the end."""
    hand = Hand()
    hand.run(0)
    hand.span("operator", "operator", "read", 0, 2_000_000, thread_id=1)
    hand.work("[CUDA memset]", 2_000_000, 100_000, kind="memset", launch=1_990_000, thread_id=1)
    hand.work("a", 4_000_000, 1_000_000, launch=3_900_000, thread_id=1)
    hand.work("b", 5_500_000, 500_000, launch=5_490_000, thread_id=1)
    hand.span("operator", "operator", "write", 6_000_000, 4_000_000, thread_id=1)
    advice = _fired(hand.build())
    assert advice["gpu-idle"].gain_ns == 500_000
    assert advice["start-up"].observation.sentence.startswith("7.90\u202fms of 10.0\u202fms are start-up and end")


def test_shares_of_a_trace_taken_whole_say_that_they_are_without_start_up() -> None:
    # Start-up until the first work at 6,000. Of the 4,000 after that 2,000 go into the next batch, and 1,900 into work.
    hand = Hand()
    hand.run(0)
    hand.work("a", 6_000, 900, launch=5_990)
    hand.span("operator", "operator", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 6_950, 2_000)
    hand.work("b", 9_000, 1_000, launch=8_990)
    fired = _fired(hand.build())
    assert fired["data-wait"].gain_ns == pytest.approx(2_000)
    assert (
        "2.00\u202f\u00b5s, 50.0\u202f% of the time without start-up, while the next"
        in fired["data-wait"].observation.sentence
    )


def test_a_device_that_is_idle_for_several_reasons_has_a_finding_for_each_and_one_for_the_rest() -> None:
    # Of 10,000 ns the loader takes 2,000, and Python 3,990; 10 lie between launch and start.
    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        hand.span("operator", "operator", name, start, 2_000, parent_id=step, step=number)
        hand.work("a", start + 6_000, 4_000, launch=start + 5_990, parent=step, step=number)

    fired = _fired(_trace(fill))
    assert {rule: fired[rule].gain_ns for rule in ("data-wait", "gpu-idle")} == {"data-wait": 2_000, "gpu-idle": 4_000}
    assert (
        "60.0\u202f% of the time (6.00\u202f\u00b5s of 10.0\u202f\u00b5s), 40.0\u202f% beside"
        in fired["gpu-idle"].observation.sentence
    )


def test_steps_that_input_makes_uneven_are_told_beside_it() -> None:
    def fill(hand: Hand, number: int, start: int, step: int) -> None:
        fetching = 1_000 + 4_000 * (number % 2)
        name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        hand.span("operator", "operator", name, start, fetching, parent_id=step, step=number)
        hand.work("a", start + fetching, 9_000, launch=start + fetching - 10, parent=step, step=number)

    fired = _fired(_trace(fill, lengths=[10_000, 14_000] * 3))
    assert {"data-wait", "uneven-steps"} <= set(fired)
    sentence = fired["uneven-steps"].observation.sentence
    assert sentence.endswith("; most of the difference is input, 1.00\u202f\u00b5s to 5.00\u202f\u00b5s.")


def test_one_short_step_among_many_is_not_uneven() -> None:
    # 19 steps agree; what is judged is what most of them are like
    fill = _kernels(("a", 20, 1_000))
    assert "uneven-steps" not in _fired(_trace(fill, lengths=[_STEP] * 19 + [_STEP // 3]))
    assert "uneven-steps" in _fired(_trace(fill, lengths=[_STEP, 2 * _STEP] * 10))


def _around(part: int, *, of_device: bool = True) -> Trace:
    """Three steps of work that takes `part` of 1,000 ns, the rest of it before all steps."""
    hand = Hand()
    hand.run(0, source_path="hand.json")
    outside = 3_000 * (1_000 - part) // part
    if of_device:
        hand.work("before", 20, outside, launch=10, step=None)
    else:
        for at in range(9):
            hand.span("operator", "operator", "before", 20 + at * outside // 9, outside // 9)
    for number in range(3):
        start = outside + 100 + number * 2_000
        step = hand.step(number, start, 1_900)
        if of_device:
            hand.work("k", start + 20, 1_000, launch=start + 10, parent=step, step=number)
        else:
            hand.span("operator", "operator", "k", start + 20, 1_000, parent_id=step, step=number)
    return hand.build()


@pytest.mark.parametrize("of_device", [True, False])
def test_steps_that_hold_little_of_the_work_give_way_to_the_whole_trace(*, of_device: bool) -> None:
    few = _around(400, of_device=of_device)
    sentence = _fired(few)["few-steps"].observation.sentence
    assert sentence.startswith(f"The 3 marked steps hold 40.0\u202f% of {'device time' if of_device else 'operators'},")
    assert "steps_hold_little" in coverage.ledger(StepView.of(few))["kind"].to_list()
    assert StepView.of(few, "mean").steps.height == 3  # whoever asks for them has them
    enough = StepView.of(_around(600, of_device=of_device))
    assert enough.is_mean
    assert "steps_hold_little" not in coverage.ledger(enough)["kind"].to_list()


def test_a_first_call_longer_than_all_steps_makes_these_no_less_the_steps() -> None:
    hand = Hand()
    hand.run(0, source_path="hand.json")
    hand.span("operator", "operator", "cold", 0, 50_000)
    for number in range(3):
        step = hand.step(number, 60_000 + number * 2_000, 1_900)
        hand.span("operator", "operator", "k", 60_010 + number * 2_000, 1_000, parent_id=step, step=number)
    assert StepView.of(hand.build()).is_mean


def test_a_call_that_begins_before_a_step_and_is_mostly_in_it_is_the_step_s() -> None:
    """A step begins later on the device than on the host where work of before it is still to be done."""
    host = HostTime(StepView.of(_trace(_kernels(("a", 1, 100)))))
    host.windows = pl.DataFrame(
        {"run_id": [0, 0], "step": [1, 2], "start_ns": [1_000, 2_000], "end_ns": [1_900, 2_900]}
    )
    calls = [(600, 1_000), (600, 700), (1_100, 50), (1_950, 30), (1_950, 400)]
    spans = pl.DataFrame(
        {"run_id": [0] * 5, "start_ns": [start for start, _ in calls], "duration_ns": [length for _, length in calls]}
    )
    rows = host.inside(spans).sort("start_ns", "duration_ns").select("step", "start_ns", "duration_ns").rows()
    assert rows == [(1, 600, 1_000), (1, 1_100, 50), (2, 1_950, 400)]
