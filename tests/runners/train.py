"""A training program as a user would write it: no function to call, its steps marked by two lines."""

from __future__ import annotations

import sys

from xsp_runners.steps import xsp_step

__all__: list[str] = []

_BATCHES = 12


def _main() -> None:
    import torch  # noqa: PLC0415 (collecting tests needs none)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(_BATCHES):
        batch = torch.randn(16, 64)  # loading, which is no part of the step
        with xsp_step(batch_size=len(batch)):
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    print("trained with", *sys.argv[1:])  # noqa: T201 (a program's own output)


if __name__ == "__main__":
    _main()
