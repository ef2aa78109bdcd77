"""A step of a PyTorch model: inference or training; eager, compiled, or replayed as a CUDA graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_runners.torch_inputs import Inputs, Loss

__all__ = ["inference_step", "step_as_run", "training_step"]

_BEFORE_CAPTURE = 3  # steps on a stream of their own before a graph is captured, as PyTorch asks for


def inference_step(torch: Any, model: Any, inputs: Inputs) -> Callable[[], object]:  # noqa: ANN401
    """The model's forward pass, without what gradients would need."""
    model.eval()

    def step() -> object:
        with torch.inference_mode():
            return inputs.call(model)

    return step


def training_step(torch: Any, model: Any, inputs: Inputs, loss: Loss, *, graph: bool = False) -> Callable[[], object]:  # noqa: ANN401
    """Forward, loss, backward, and a step of AdamW; `graph`: in a form that a CUDA graph can hold."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **({"capturable": True} if graph else {}))

    def step() -> object:
        optimizer.zero_grad()
        error = loss.of(inputs.call(model))
        error.backward()
        optimizer.step()
        return error

    return step


def step_as_run(torch: Any, execution: str, step: Callable[[], object], *, device: str) -> Callable[[], object]:  # noqa: ANN401
    """The step as it is to be run; RunnerError where that cannot be here.

    Compiling is done to the model, not the step; see `zoo_work`.
    """
    if execution != "cudagraph":
        return step
    if device != "cuda":
        raise RunnerError("a CUDA graph needs a GPU: choose --execution eager or compile on the CPU")
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(_BEFORE_CAPTURE):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = step()

    def replay() -> object:
        graph.replay()
        return output

    return replay
