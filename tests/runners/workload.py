"""Workloads as a user would write them: functions that return a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["broken", "not_a_step", "small_convnet"]


def small_convnet(batch: int, device: str) -> Callable[[], object]:
    """A residual network on images so small that profiling it costs more than running it."""
    import torch  # noqa: PLC0415 (the tests of refusals need none)

    from xsp_runners.torch_zoo import ConvNet  # noqa: PLC0415

    model = ConvNet().to(device).eval()
    images = torch.randn(batch, 3, 8, 8, device=device)

    def step() -> object:
        with torch.inference_mode():
            return model(images)

    return step


def broken(batch: int, device: str) -> Callable[[], object]:
    """Fails in its first step."""

    def step() -> object:
        raise ValueError(f"no room for {batch} inputs on the {device}")

    return step


def not_a_step(batch: int, device: str) -> str:
    """Forgets to return a function."""
    return f"{batch} on {device}"
