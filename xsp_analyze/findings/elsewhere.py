"""What to do where the work is not PyTorch's, or it is not known whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ANYWHERE", "OF", "advice_for"]

ANYWHERE: Mapping[str, str] = {
    "unfused-chains": "Fuse them: one kernel that does several steps reads and writes memory once.",
    "launch-bound": "Launch less: fuse small kernels, replay many with one call as a graph, give each more to do.",
    "host-sync": "Find what waits: synchronising calls, copies that block, values read back for the host to decide on."
    " Keep such values on the device and read them once in many iterations.",
    "data-wait": "Prepare input ahead, in other threads or processes; decode on the device or beforehand.",
    "pageable-copies": "Allocate the host memory pinned (cudaMallocHost, hipHostMalloc) and copy asynchronously.",
    "copies-in-step": "Copy on a stream of its own while others compute; keep what is used again on the device.",
    "memory-bound": "Compute in a smaller type, fuse kernels that pass data to each other, avoid copies of layout.",
    "optimizer-kernels": "Update many parameters with one kernel: a fused optimizer.",
    "few-steps": "Record at least five steps after warm-up, with a range around each (--model-range names them).",
    "fp32-products": "Let the library compute products in a type of the tensor cores, if the accuracy allows.",
}
"""By rule: what to do whatever the framework."""

OF: Mapping[str, Mapping[str, str]] = {
    "jax": {
        "unfused-chains": "Put the chain into one jax.jit, so that XLA fuses it; or write it as one Pallas kernel.",
        "launch-bound": "Put more of the step into one jax.jit; command buffers replay many with one call.",
        "host-sync": "Find what waits: block_until_ready, float() or np.asarray() of an array, printing one.",
        "fp32-products": "jax.default_matmul_precision('tensorfloat32' or 'bfloat16'); check the model's accuracy.",
        "few-steps": "Record at least five steps after warm-up, each in a jax.profiler.StepTraceAnnotation.",
    },
    "tensorflow": {
        "unfused-chains": "tf.function(jit_compile=True) lets XLA fuse the chain.",
        "launch-bound": "tf.function(jit_compile=True) around the step makes fewer kernels; so do larger batches.",
        "host-sync": "Find what waits: .numpy() of a tensor, printing one, Python conditions on values.",
        "data-wait": "Dataset.prefetch() and map(num_parallel_calls=tf.data.AUTOTUNE); decode on the device or before.",
        "fp32-products": "tf.keras.mixed_precision, or TF32 where the device has it; check the model's accuracy.",
        "few-steps": "Record at least five steps after warm-up, each in a profiler.experimental.Trace(step_num=...).",
    },
}
"""By framework and rule."""


def advice_for(rule_id: str, framework: str) -> str:
    """What to do instead of what a rule says for PyTorch; empty where that stands."""
    if framework == "pytorch":
        return ""
    return OF.get(framework, {}).get(rule_id) or ANYWHERE.get(rule_id, "")
