"""Profiles small models eagerly and compiled, each in both modes, into a folder: a program for tests, not a test.

python tests/runners/compiled_program.py FOLDER
"""

from __future__ import annotations

import json
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch

from xsp_runners.frameworks.compiled_code import COMPILED_CODE, CompiledCode
from xsp_runners.torch_profiler import capture
from xsp_runners.zoo.networks import Bert, Gpt, Mlp, ResNet

_CASES = (("resnet", False), ("resnet", True), ("bert", False), ("gpt", True))  # model, and whether it trains


def models() -> dict[str, tuple[torch.nn.Module, torch.Tensor]]:
    """Each with an input; of ResNet two stages, since a compiler takes a second and a half for each kernel."""
    tokens = torch.randint(100, (2, 16))
    return {
        "resnet": (ResNet((1, 1), bottleneck=False), torch.randn(2, 3, 32, 32)),
        "bert": (Bert(32, 1, 4), tokens),
        "gpt": (Gpt(32, 1, 4), tokens),
    }


def profile(out: Path, model: Any, call: Any, *, training: bool) -> None:  # noqa: ANN401 (compiled models have no type)
    """Two steps of it."""
    with capture(out, steps=2, warmup=2, device="cpu") as session:
        while True:
            if training:
                call().sum().backward()
                model.zero_grad()
            else:
                with torch.inference_mode():
                    call()
            if session.step():
                break


def generated_code(model: Any, inputs: torch.Tensor) -> str:  # noqa: ANN401
    """What Inductor writes for the forward pass of a model that was compiled, but not yet called."""
    from torch._inductor.utils import run_and_get_code  # noqa: PLC0415 (heavy)

    with torch.inference_mode():
        return "\n".join(run_and_get_code(model, inputs)[1])


def both_codes(out: Path) -> None:
    """The code of one model, compiled as it always is and watched."""
    model, inputs = Mlp().eval(), torch.randn(2, 64)
    (out / "plain.py").write_text(generated_code(torch.compile(model), inputs), encoding="utf-8")
    torch._dynamo.reset()
    code = CompiledCode(torch)
    code.call_once(model, lambda: model(inputs))
    (out / "watched.py").write_text(generated_code(code.compile(model), inputs), encoding="utf-8")


def main(out: Path, names: list[str]) -> None:
    """All cases, or those of the models named."""
    torch.set_num_threads(1)
    for name, training in _CASES:
        if names and name not in names:
            continue
        model, inputs = models()[name]
        folder = out / f"{name}-{'training' if training else 'inference'}"
        model.train(training)
        profile(folder / "eager", model, partial(model, inputs), training=training)
        code = CompiledCode(torch)
        code.call_once(model, partial(model, inputs))
        compiled = code.compile(model)
        profile(folder / "compiled", model, partial(compiled, inputs), training=training)
        (folder / "compiled" / COMPILED_CODE).write_text(json.dumps(code.document()), encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), sys.argv[2:])
    both_codes(Path(sys.argv[1]))
