"""Workloads as a user would write them: functions that return a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["block_with_attention", "failing", "graphed", "not_a_step", "small_convnet"]


def small_convnet(batch: int, device: str) -> Callable[[], object]:
    """A residual network on images so small that profiling it costs more than running it."""
    import torch  # noqa: PLC0415 (the tests of refusals need none)

    from xsp_runners.zoo.networks import ConvNet  # noqa: PLC0415

    model = ConvNet().to(device).eval()
    images = torch.randn(batch, 3, 8, 8, device=device)

    def step() -> object:
        with torch.inference_mode():
            return model(images)

    return step


def failing(batch: int, device: str) -> Callable[[], object]:
    """Fails in its first step."""

    def step() -> object:
        raise ValueError(f"no room for {batch} inputs on the {device}")

    return step


def not_a_step(batch: int, device: str) -> str:
    """Forgets to return a function."""
    return f"{batch} on {device}"


def block_with_attention(batch: int, device: str) -> Callable[[], object]:
    """Two projections in a block, which itself computes attention between them and a sum after them."""
    import torch  # noqa: PLC0415

    class Block(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.into, self.out = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            hidden = self.into(inputs)
            scores = torch.bmm(hidden, hidden.transpose(1, 2))
            return self.out(torch.bmm(scores, inputs)) + inputs

    model = torch.nn.Sequential(Block(), torch.nn.ReLU()).to(device)
    inputs = torch.randn(batch, 4, 8, device=device)

    def step() -> object:
        with torch.inference_mode():
            return model(inputs)

    return step


def graphed(batch: int, device: str) -> Callable[[], object]:
    """Captures a graph of its own in its first step, and replays it afterwards."""
    import torch  # noqa: PLC0415

    model, inputs = torch.nn.Linear(8, 8).to(device), torch.randn(batch, 8, device=device)
    graph = torch.cuda.CUDAGraph()
    captured: list[object] = []

    def step() -> None:
        if not captured:
            with torch.cuda.graph(graph):
                captured.append(model(inputs))
        graph.replay()

    return step
