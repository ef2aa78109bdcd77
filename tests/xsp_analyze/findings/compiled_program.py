"""Records steps of compiled models on the CPU: one breaks its graph, one recompiles, one does neither.

Run by `test_compiled_torch.py` in a process of its own: FOLDER BACKEND.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_STEPS = 5
_SIZES = {"breaks": (4,) * _STEPS, "recompiles": (4, 4, 5, 6, 6), "clean": (4,) * _STEPS}


def _model(name: str) -> Any:  # noqa: ANN401 (torch is not there where this is checked)
    import torch  # noqa: PLC0415

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(16, 16), torch.nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:  # noqa: ANN401
            y = torch.relu(self.first(x))
            if name == "breaks" and y.sum().item() < 0:  # a sum of what is not negative
                return y
            return torch.tanh(self.second(y))

    return Net()


def _record(path: str, model: Any, sizes: Sequence[int]) -> None:  # noqa: ANN401
    import torch  # noqa: PLC0415
    from torch.profiler import ProfilerActivity, profile, schedule  # noqa: PLC0415

    inputs = [torch.ones(size, 16) for size in sizes]  # a value read in a break is a constant of what follows
    with torch.no_grad():
        model(inputs[0])
        plan = schedule(wait=0, warmup=1, active=_STEPS, repeat=1)
        with profile(
            activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=lambda one: one.export_chrome_trace(path)
        ) as profiler:
            for one in (inputs[0], *inputs):
                model(one)
                profiler.step()


def main() -> None:
    """Write FOLDER/NAME.json for each."""
    import torch  # noqa: PLC0415

    folder, backend = sys.argv[1:]
    for name, sizes in _SIZES.items():
        torch._dynamo.reset()
        _record(f"{folder}/{name}.json", torch.compile(_model(name), backend=backend, dynamic=False), sizes)


if __name__ == "__main__":
    main()
