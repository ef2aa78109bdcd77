"""The program that is simulated: training of a stack of linear layers, with a switch for each bottleneck."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.planted.device_queue import AUTOGRAD, COMPUTE, COPIES, DeviceQueue
from tests.helpers.planted.meeting import collective, run_side_by_side
from tests.helpers.planted.parts import COMMUNICATION, PYTHON_NS, TF32, TOKENS, WIDTH, Plan, node, operator, sequence_of
from tests.helpers.planted.pipeline import pipeline

if TYPE_CHECKING:
    from tests.helpers.planted.meeting import Program
    from tests.helpers.synth import KinetoTrace

__all__ = ["simulate"]

_ELEMENTWISE_NS = 40_000  # 63 MB in FP32, at 79 % of an A100's bandwidth
_OPTIMIZER_NS = 300_000
_TINY_NS = 2_000
_BATCH_BYTES = 12 << 20
_GRADIENT_BYTES = 48 << 20
_FP32 = "ampere_sgemm_{}x64_{}"
_TENSOR_SPEED = 8  # TF32 over FP32 of an A100, by its peaks
_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<{}, float>"
_GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)>"
_CHAIN = "void at::native::vectorized_elementwise_kernel<4, at::native::{}>"
_FUNCTORS = ("CUDAFunctor_add<float>", "AUnaryFunctor<float, MulFunctor<float>>", "tanh_kernel_cuda",
             "sqrt_kernel_cuda", "reciprocal_kernel_cuda", "exp_kernel_cuda")  # fmt: skip


def simulate(plan: Plan) -> list[KinetoTrace]:
    """The traces of the ranks."""
    queues = [DeviceQueue(rank, plan.ranks) for rank in range(plan.ranks)]
    program = pipeline if plan.micro_batches else _job
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
        bytes_a_ns = 31.5 if plan.is_pinned else 6  # the peak of PCI Express 4.0, and what pageable memory reaches
        queue.copy(plan.pageable_bytes, int(plan.pageable_bytes / bytes_a_ns), pageable=not plan.is_pinned)
    if step == 0 and plan.first_step_ns:
        queue.call("cuLibraryLoadData", plan.first_step_ns)
    if step % 2 and plan.compiled_ns:
        with queue.annotation("_compile.compile_inner (dynamo_timed)"):
            queue.spend(plan.compiled_ns)
            queue.call("cuModuleLoadDataEx", 40_000)
    if plan.small_kernels:
        with queue.module("Tokens_0"):
            for number in range(plan.small_kernels):
                operator(queue, "aten::cumsum", f"tokens_kernel_{number % 9}", _TINY_NS)


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
    shapes = [[TOKENS, WIDTH], [WIDTH, WIDTH]]
    queue.spend(PYTHON_NS)
    with queue.operator("aten::linear", shapes, sequence=sequence_of(queue, layer)):
        queue.kernel(TF32.format(layout, 64 + 64 * (layer % 2)), plan.product_ns)
    if plan.fp32_ns:
        slower = 1 if plan.on_tensor_cores else _TENSOR_SPEED
        name = TF32.format(layout, 96) if plan.on_tensor_cores else _FP32.format(128, layout)
        duration_ns = plan.fp32_ns // plan.layers
        inner = duration_ns * 100_000 // (2 * TOKENS * WIDTH)  # at 100 TFLOP/s, 64 % of the peak in TF32
        with queue.operator("aten::matmul", [[TOKENS, inner], [inner, WIDTH]]):
            queue.kernel(name, duration_ns * slower)


def _norm(plan: Plan, queue: DeviceQueue, layer: int) -> None:
    """A layer as long as its traffic takes at 80 % of the bandwidth of 2,039 GB/s: each byte is read and written."""
    dtype, element_bytes = ("c10::BFloat16", 2) if plan.in_half else ("float", 4)
    duration_ns = plan.norm_ns * element_bytes // 2 // plan.layers
    rows = round(duration_ns * 0.8 * 2039 / 2 / element_bytes / 1024)
    with queue.module(f"LayerNorm_{layer}"):
        queue.spend(PYTHON_NS)
        with queue.operator("aten::layer_norm", [[rows, 1024]], dtype):
            queue.kernel(_NORM.format(dtype), duration_ns)


def _elementwise(queue: DeviceQueue, layer: int, number: int) -> None:
    queue.spend(PYTHON_NS)
    with queue.operator(
        "aten::gelu" if number == 0 else "aten::mul", [[TOKENS, WIDTH]], sequence=sequence_of(queue, layer) + 1
    ):
        queue.kernel(_GELU if number == 0 else _CHAIN.format(_FUNCTORS[number % len(_FUNCTORS)]), _ELEMENTWISE_NS)


def _backward(plan: Plan, queue: DeviceQueue, step: int) -> Program:
    for layer in reversed(range(plan.layers)):
        node(queue, "GeluBackward0", "aten::gelu_backward", sequence_of(queue, layer) + 1, [(_GELU, _ELEMENTWISE_NS)])
        products = [(TF32.format(layout, 64 + 64 * (layer % 2)), plan.product_ns) for layout in ("nn", "nt")]
        node(queue, "AddmmBackward0", "aten::mm", sequence_of(queue, layer), products)
        if plan.ranks > 1:
            for call in _calls_after(plan, layer):
                yield from _all_reduce(plan, queue, (step, layer, call))


def _calls_after(plan: Plan, layer: int) -> range:
    """The all-reduces that begin when the layer's gradients are there; of the few of buckets every so many layers."""
    first, last = ((plan.layers - n) * plan.calls // plan.layers for n in (layer + 1, layer))
    return range(first, last)


def _all_reduce(plan: Plan, queue: DeviceQueue, key: tuple[object, ...]) -> Program:
    """The gradients of the step take 240 us over the link in all; each call at least 25 us."""
    queue.after(COMMUNICATION, COMPUTE)
    with queue.operator("c10d::allreduce_"):
        message = (_GRADIENT_BYTES // plan.calls, max(25_000, 240_000 // plan.calls))
        yield from collective(queue, "all_reduce", key, message, COMMUNICATION)


def _finish(plan: Plan, queue: DeviceQueue) -> None:
    with queue.annotation("Optimizer.step#AdamW.step"):
        if plan.ranks > 1:
            queue.after(COMPUTE, COMMUNICATION)
        operator(queue, "aten::_fused_adamw_", "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
                  _OPTIMIZER_NS)  # fmt: skip
    if plan.synchronized:
        queue.synchronize()
