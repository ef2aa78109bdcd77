"""What the simulated programs are made of: the plan, operators with their kernels, nodes of the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.helpers.planted.device_queue import DeviceQueue

__all__ = ["COMMUNICATION", "PYTHON_NS", "TF32", "TOKENS", "WIDTH", "Plan", "node", "operator", "sequence_of"]

COMMUNICATION = 20
TOKENS, WIDTH = 4096, 1920
PYTHON_NS = 12_000  # before each operator
TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_{}_n_tilesize{}x128x32_stage4_warpsize2x2x1_tensor16x8x8_kernel_cublas"


@dataclass(frozen=True)
class Plan:
    """The job, and what is wrong with it; as it stands nothing is."""

    steps: int = 6
    layers: int = 12
    product_ns: int = 300_000
    input_ns: int = 40_000  # until the next batch is there
    pageable_bytes: int = 0  # more of the batch that is copied from pageable memory
    is_pinned: bool = False  # but from pinned memory, at the peak of the bus
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


def sequence_of(queue: DeviceQueue, layer: int) -> int:
    """Of the layer's product in this step; of the operator after it one more."""
    return 1000 * queue.step + 2 * layer + 1


def operator(queue: DeviceQueue, name: str, kernel: str, duration_ns: int) -> None:
    queue.spend(PYTHON_NS // 2)
    with queue.operator(name, [[64]]):
        queue.kernel(kernel, duration_ns)


def node(queue: DeviceQueue, node: str, called: str, sequence: int, kernels: Sequence[tuple[str, int]]) -> None:
    with (
        queue.operator(f"autograd::engine::evaluate_function: {node}", sequence=sequence, backward=True),
        queue.operator(node, sequence=sequence, backward=True),
    ):
        for name, duration_ns in kernels:
            queue.spend(PYTHON_NS)
            with queue.operator(called, [[TOKENS, WIDTH], [WIDTH, WIDTH]]):
                queue.kernel(name, duration_ns)
