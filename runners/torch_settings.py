"""The settings of torch that decide on numerics and on which kernels are chosen: settled, or left alone and read.

`reproducible`, of models of the zoo, takes away what would let two runs choose other kernels. `own`, of programs and
functions of the user's own, changes nothing: not TF32, determinism, cuDNN's benchmark, cuBLAS's workspace, nor seeds.
Either way run.json says what was in force when the last step ended.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

__all__ = ["CUBLAS_WORKSPACE", "apply_settings", "in_force"]

CUBLAS_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
"""Without it cuBLAS may choose another algorithm in every run."""

_ENVIRONMENT = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUDA_LAUNCH_BLOCKING")


def apply_settings(torch: Any, args: argparse.Namespace) -> None:  # noqa: ANN401 (torch's types are not known without it)
    """Does what `--settings`, `--threads` and `--seed` say, and nothing else."""
    if args.settings == "reproducible":
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.seed is not None:
        torch.manual_seed(args.seed)


def in_force(torch: Any, args: argparse.Namespace) -> dict[str, object]:  # noqa: ANN401
    """The settings as they are now; what this torch does not tell is left out."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    getters: Mapping[str, Callable[[], object]] = {
        "cudnn_benchmark": lambda: cudnn.benchmark,
        "cudnn_deterministic": lambda: cudnn.deterministic,
        "cudnn_tf32": lambda: cudnn.allow_tf32,
        "matmul_tf32": lambda: matmul.allow_tf32,
        "matmul_fp16_reduced_precision": lambda: bool(matmul.allow_fp16_reduced_precision_reduction),
        "matmul_bf16_reduced_precision": lambda: bool(matmul.allow_bf16_reduced_precision_reduction),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "default_dtype": lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        "threads": torch.get_num_threads,
    }
    values = {name: value for name, ask in getters.items() if (value := _answer(ask)) is not None}
    variables = {name.lower(): os.environ.get(name) for name in (CUBLAS_WORKSPACE[0], *_ENVIRONMENT)}
    return {
        "set_by": "program" if args.settings == "own" else "xsp",
        "seed": args.seed,
        **values,
        **{name: value for name, value in variables.items() if value is not None},
    }


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except (RuntimeError, AttributeError):  # torch refuses old questions once a program has used its newer settings
        return None
