"""What a torch.profiler trace holds of the GPU's work, and why it may hold none."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Recorded", "check_kernels", "count_recorded"]

_CATEGORY = re.compile(r'"cat"\s*:\s*"(kernel|cuda_runtime|cuda_driver|hip_runtime)"', re.IGNORECASE)
_INJECTION = "CUDA_INJECTION64_PATH"
_ELSE = "--kernels nsys or cupti record in another way"


@dataclass(frozen=True)
class Recorded:
    """How many kernels, and how many calls of the runtime and the driver."""

    kernels: int
    calls: int


def count_recorded(trace: str) -> Recorded:
    """Counts in the text of a Kineto trace."""
    categories = [match[1].lower() for match in _CATEGORY.finditer(trace)]
    kernels = categories.count("kernel")
    return Recorded(kernels, len(categories) - kernels)


def check_kernels(torch: Any, recorded: Recorded, environment: Mapping[str, str] = os.environ) -> None:  # noqa: ANN401
    """RunnerError with the likely causes where steps on a GPU were recorded and none of its kernels."""
    if not recorded.kernels:
        raise RunnerError(f"the profiler recorded no kernel of the GPU: {_cause(torch, recorded, environment)}")


def _cause(torch: Any, recorded: Recorded, environment: Mapping[str, str]) -> str:  # noqa: ANN401
    if not torch.cuda.max_memory_allocated():
        return (
            "the program took no memory on it, so it ran on the CPU. Are its model and inputs on the device that it is"
            " given? --device cpu profiles it there"
        )
    if torch.profiler.ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        return f"this torch ({torch.__version__}) was built without CUPTI. Install a build for CUDA, or {_ELSE}"
    if _INJECTION in environment:
        return f"{_INJECTION} is set, so that another profiler (nsys, ncu) has CUPTI, which takes one at a time"
    if recorded.calls:
        return (
            f"its {recorded.calls} launches and other calls are there, so CUPTI works but hands over no activities:"
            " the driver may be older than torch's CUDA, the GPU virtual (vGPU, WSL 2) or a slice (MIG) that may not be"
            f" profiled. {_ELSE}"
        )
    return (
        "CUPTI did not start. Another profiler may have it (nsys, ncu, DCGM:"
        " CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED), or it may lack the right to"
        " (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: start a container with --cap-add=SYS_ADMIN, or let users profile by"
        " NVreg_RestrictProfilingToAdminUsers=0), or its library may not be loadable."
        f" KINETO_LOG_LEVEL=0 in the environment shows what it says; {_ELSE}"
    )
