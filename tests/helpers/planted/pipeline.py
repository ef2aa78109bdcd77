"""The program of a pipeline, whose stages pass micro-batches on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.planted.device_queue import AUTOGRAD, COMPUTE
from tests.helpers.planted.meeting import collective
from tests.helpers.planted.parts import COMMUNICATION, PYTHON_NS, TF32, TOKENS, WIDTH, Plan, node, operator, sequence_of

if TYPE_CHECKING:
    from tests.helpers.planted.device_queue import DeviceQueue
    from tests.helpers.planted.meeting import Program

__all__ = ["pipeline"]

_STAGE_LAYERS = 5


def pipeline(plan: Plan, queue: DeviceQueue) -> Program:
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
    for other, stream in ((before, COMMUNICATION), (after, COMMUNICATION + 1)):
        if other == after:
            _compute_stage(plan, queue, direction)
            queue.after(stream, COMPUTE)
        if 0 <= other < plan.ranks:
            link = (min(other, queue.rank), max(other, queue.rank))
            name = "send" if other == after else "recv"
            with queue.operator(f"c10d::{name}_"):
                yield from collective(queue, name, (*key, direction, link), (TOKENS * 512, 10_000), stream, link)
        if other == before:
            queue.after(COMPUTE, stream)


def _compute_stage(plan: Plan, queue: DeviceQueue, direction: int) -> None:
    for layer in range(_STAGE_LAYERS):
        sequence = sequence_of(queue, layer)
        if direction > 0:
            with queue.module(f"Linear_{layer}"):
                queue.spend(PYTHON_NS // 2)
                with queue.operator("aten::linear", [[TOKENS, WIDTH], [WIDTH, WIDTH]], sequence=sequence):
                    queue.kernel(TF32.format("tn", 32 * (layer + 1)), plan.product_ns // _STAGE_LAYERS)
        else:
            kernels = [(TF32.format("nn", 32 * (layer + 1)), 2 * plan.product_ns // _STAGE_LAYERS)]
            node(queue, "AddmmBackward0", "aten::mm", sequence, kernels)


def _finish_stage(queue: DeviceQueue) -> None:
    operator(queue, "aten::_fused_adamw_", "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", 100_000)
    queue.synchronize()
