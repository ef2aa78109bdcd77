"""The program that is simulated: training of a stack of linear layers, with a switch for each bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.helpers.planted.device_queue import AUTOGRAD, COMPUTE, COPIES, MAIN, DeviceQueue
from tests.helpers.planted.meeting import collective, run_side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.helpers.planted.meeting import Program
    from tests.helpers.synth import KinetoTrace

__all__ = ["Plan", "simulate"]

_COMMUNICATION = 20
_TOKENS, _WIDTH = 4096, 1920
_STAGE_LAYERS = 5
_ELEMENTWISE_NS = 40_000  # 63 MB in FP32, at 79 % of an A100's bandwidth
_OPTIMIZER_NS = 300_000
_TINY_NS = 2_000
_PYTHON_NS = 12_000  # before each operator
_BATCH_BYTES = 12 << 20
_GRADIENT_BYTES = 48 << 20
_TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_{}_n_tilesize{}x128x32_stage4_warpsize2x2x1_tensor16x8x8_kernel_cublas"
_FP32 = "ampere_sgemm_{}x64_{}"
_TENSOR_SPEED = 8  # TF32 over FP32 of an A100, by its peaks
_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<{}, float>"
_GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>"
_CHAIN = "void at::native::vectorized_elementwise_kernel<4, at::native::{}>"
_FUNCTORS = ("CUDAFunctor_add<float>", "AUnaryFunctor<float, MulFunctor<float>>", "tanh_kernel_cuda",
             "sqrt_kernel_cuda", "reciprocal_kernel_cuda", "exp_kernel_cuda")  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The job, and what is wrong with it; as it stands nothing is."""

    steps: int = 6
    layers: int = 12
    product_ns: int = 300_000
    input_ns: int = 40_000  # until the next batch is there
    pageable_bytes: int = 0  # more of the batch that is copied from pageable memory
    small_kernels: int = 0  # at the begin of a step, launched one by one, not as one
    values_read: int = 0  # by the host within a step
    chain: int = 1  # elementwise kernels after a product, not one
    fp32_ns: int = 0  # of products, were they on tensor cores
    on_tensor_cores: bool = False
    norm_ns: int = 0  # of layers bound by memory, were their type of 2 bytes
    in_half: bool = False
    first_step_ns: int = 0  # of the host, in the first step only
    compiled_ns: int = 0  # of the host, in every second step from the second on
    synchronized: bool = True  # at the end of a step
    ranks: int = 1
    slower: float = 0.0  # by so much the last rank computes
    calls: int = 3  # all-reduces of a step
    micro_batches: int = 0  # of a pipeline of so many ranks
    shifted: float = 0.0  # part of a stage that the first has more, and the last less


def simulate(plan: Plan) -> list[KinetoTrace]:
    """The traces of the ranks."""
    queues = [DeviceQueue(rank, plan.ranks) for rank in range(plan.ranks)]
    program = _pipeline if plan.micro_batches else _job
    run_side_by_side([program(plan, queue) for queue in queues])
    return [queue.trace for queue in queues]


def _job(plan: Plan, queue: DeviceQueue) -> Program:
    last = queue.rank == plan.ranks - 1
    queue.slowness = 1 + plan.slower if last else 1.0
    for step in range(plan.steps):
        queue.step = step
        with queue.annotation(f"ProfilerStep#{step}"):
            _begin(plan, queue, step)
            _forward(plan, queue)
            with queue.on_thread(AUTOGRAD):
                yield from _backward(plan, queue, step)
            _finish(plan, queue)
    queue.call("cudaDeviceSynchronize", 20_000)


def _begin(plan: Plan, queue: DeviceQueue, step: int) -> None:
    queue.spend(2_000)
    with queue.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
        queue.spend(plan.input_ns)
    queue.copy(_BATCH_BYTES, 20_000, pageable=False, stream_id=COPIES)
    queue.after(COMPUTE, COPIES)
    if plan.pageable_bytes:
        queue.copy(plan.pageable_bytes, plan.pageable_bytes // 6, pageable=True)  # 6 GB/s
    if step == 0 and plan.first_step_ns:
        queue.call("cuLibraryLoadData", plan.first_step_ns)
    if step % 2 and plan.compiled_ns:
        with queue.annotation("_compile.compile_inner (dynamo_timed)"):
            queue.spend(plan.compiled_ns)
            queue.call("cuModuleLoadDataEx", 40_000)
    if plan.small_kernels:
        with queue.module("Tokens_0"):
            for number in range(plan.small_kernels):
                _operator(queue, "aten::cumsum", f"tokens_kernel_{number % 9}", _TINY_NS)


def _forward(plan: Plan, queue: DeviceQueue) -> None:
    for layer in range(plan.layers):
        with queue.module(f"Block_{layer}"):
            with queue.module(f"Linear_{layer}"):
                _product(plan, queue, layer, "tn")
            with queue.module(f"GELU_{layer}"):
                for number in range(plan.chain):
                    _elementwise(queue, layer, number)
                if plan.norm_ns:
                    _norm(plan, queue, layer)
            if layer < plan.values_read:
                queue.synchronize()
                queue.spend(60_000)  # prints it


def _product(plan: Plan, queue: DeviceQueue, layer: int, layout: str) -> None:
    shapes = [[_TOKENS, _WIDTH], [_WIDTH, _WIDTH]]
    queue.spend(_PYTHON_NS)
    with queue.operator("aten::linear", shapes, sequence=_sequence(queue, layer)):
        queue.kernel(_TF32.format(layout, 64 + 64 * (layer % 2)), plan.product_ns)
    if plan.fp32_ns:
        slower = 1 if plan.on_tensor_cores else _TENSOR_SPEED
        name = _TF32.format(layout, 96) if plan.on_tensor_cores else _FP32.format(128, layout)
        duration_ns = plan.fp32_ns // plan.layers
        inner = duration_ns * 100_000 // (2 * _TOKENS * _WIDTH)  # at 100 TFLOP/s, 64 % of the peak in TF32
        with queue.operator("aten::matmul", [[_TOKENS, inner], [inner, _WIDTH]]):
            queue.kernel(name, duration_ns * slower)


def _norm(plan: Plan, queue: DeviceQueue, layer: int) -> None:
    """A layer as long as its traffic takes at 80 % of the bandwidth of 2,039 GB/s: each byte is read and written."""
    dtype, element_bytes = ("c10::BFloat16", 2) if plan.in_half else ("float", 4)
    duration_ns = plan.norm_ns * element_bytes // 2 // plan.layers
    rows = round(duration_ns * 0.8 * 2039 / 2 / element_bytes / 1024)
    with queue.module(f"LayerNorm_{layer}"):
        queue.spend(_PYTHON_NS)
        with queue.operator("aten::layer_norm", [[rows, 1024]], dtype):
            queue.kernel(_NORM.format(dtype), duration_ns)


def _elementwise(queue: DeviceQueue, layer: int, number: int) -> None:
    queue.spend(_PYTHON_NS)
    with queue.operator(
        "aten::gelu" if number == 0 else "aten::mul", [[_TOKENS, _WIDTH]], sequence=_sequence(queue, layer) + 1
    ):
        queue.kernel(_GELU if number == 0 else _CHAIN.format(_FUNCTORS[number % len(_FUNCTORS)]), _ELEMENTWISE_NS)


def _sequence(queue: DeviceQueue, layer: int) -> int:
    """Of the layer's product in this step; of the operator after it one more."""
    return 1000 * queue.step + 2 * layer + 1


def _operator(queue: DeviceQueue, name: str, kernel: str, duration_ns: int) -> None:
    queue.spend(_PYTHON_NS // 2)
    with queue.operator(name, [[64]]):
        queue.kernel(kernel, duration_ns)


def _backward(plan: Plan, queue: DeviceQueue, step: int) -> Program:
    for layer in reversed(range(plan.layers)):
        _node(queue, "GeluBackward0", "aten::gelu_backward", _sequence(queue, layer) + 1, [(_GELU, _ELEMENTWISE_NS)])
        products = [(_TF32.format(layout, 64 + 64 * (layer % 2)), plan.product_ns) for layout in ("nn", "nt")]
        _node(queue, "AddmmBackward0", "aten::mm", _sequence(queue, layer), products)
        if plan.ranks > 1:
            for call in _calls_after(plan, layer):
                yield from _all_reduce(plan, queue, (step, layer, call))


def _node(queue: DeviceQueue, node: str, called: str, sequence: int, kernels: Sequence[tuple[str, int]]) -> None:
    with (
        queue.operator(f"autograd::engine::evaluate_function: {node}", sequence=sequence, backward=True),
        queue.operator(node, sequence=sequence, backward=True),
    ):
        for name, duration_ns in kernels:
            queue.spend(_PYTHON_NS)
            with queue.operator(called, [[_TOKENS, _WIDTH], [_WIDTH, _WIDTH]]):
                queue.kernel(name, duration_ns)


def _calls_after(plan: Plan, layer: int) -> range:
    """The all-reduces that begin when the layer's gradients are there; of the few of buckets every so many layers."""
    first, last = ((plan.layers - n) * plan.calls // plan.layers for n in (layer + 1, layer))
    return range(first, last)


def _all_reduce(plan: Plan, queue: DeviceQueue, key: tuple[object, ...]) -> Program:
    """The gradients of the step take 240 us over the link in all; each call at least 25 us."""
    queue.after(_COMMUNICATION, COMPUTE)
    with queue.operator("c10d::allreduce_"):
        message = (_GRADIENT_BYTES // plan.calls, max(25_000, 240_000 // plan.calls))
        yield from collective(queue, "all_reduce", key, message, _COMMUNICATION)


def _finish(plan: Plan, queue: DeviceQueue) -> None:
    with queue.annotation("Optimizer.step#AdamW.step"):
        if plan.ranks > 1:
            queue.after(COMPUTE, _COMMUNICATION)
        _operator(queue, "aten::_fused_adamw_", "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
                  _OPTIMIZER_NS)  # fmt: skip
    if plan.synchronized:
        queue.synchronize()


def _pipeline(plan: Plan, queue: DeviceQueue) -> Program:
    """Forward of all micro-batches through the stages, then backward of all, as GPipe does it."""
    queue.slowness = 1 + plan.shifted * ((queue.rank == 0) - (queue.rank == plan.ranks - 1))
    for step in range(plan.steps):
        queue.step = step
        with queue.annotation(f"ProfilerStep#{step}"):
            for batch in range(plan.micro_batches):
                yield from _stage(plan, queue, (step, batch), 1)
            with queue.on_thread(AUTOGRAD):
                for batch in range(plan.micro_batches):
                    yield from _stage(plan, queue, (step, batch), -1)
            _finish_stage(queue)
    queue.call("cudaDeviceSynchronize", 20_000)


def _stage(plan: Plan, queue: DeviceQueue, key: tuple[object, ...], direction: int) -> Program:
    before, after = queue.rank - direction, queue.rank + direction
    for other, stream in ((before, _COMMUNICATION), (after, _COMMUNICATION + 1)):
        if other == after:
            _compute_stage(plan, queue, direction)
            queue.after(stream, COMPUTE)
        if 0 <= other < plan.ranks:
            link = (min(other, queue.rank), max(other, queue.rank))
            name = "send" if other == after else "recv"
            with queue.operator(f"c10d::{name}_"):
                yield from collective(queue, name, (*key, direction, link), (_TOKENS * 512, 10_000), stream, link)
        if other == before:
            queue.after(COMPUTE, stream)


def _compute_stage(plan: Plan, queue: DeviceQueue, direction: int) -> None:
    for layer in range(_STAGE_LAYERS):
        sequence = _sequence(queue, layer)
        if direction > 0:
            with queue.module(f"Linear_{layer}"):
                queue.spend(_PYTHON_NS // 2)
                with queue.operator("aten::linear", [[_TOKENS, _WIDTH], [_WIDTH, _WIDTH]], sequence=sequence):
                    queue.kernel(_TF32.format("tn", 32 * (layer + 1)), plan.product_ns // _STAGE_LAYERS)
        else:
            kernels = [(_TF32.format("nn", 32 * (layer + 1)), 2 * plan.product_ns // _STAGE_LAYERS)]
            _node(queue, "AddmmBackward0", "aten::mm", sequence, kernels)


def _finish_stage(queue: DeviceQueue) -> None:
    assert queue.thread_id == MAIN
    _operator(queue, "aten::_fused_adamw_", "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", 100_000)
    queue.synchronize()
