"""Inputs of models of the zoo, drawn at random, and the loss that a training step of each kind of output takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Inputs", "Loss", "random_inputs"]

_VOCABULARY = 1000  # of a model that does not say how many tokens it knows
_OBJECTS = 4  # boxes in each image that a detector is trained on
_MAPS = 4  # dimensions of an output with something for each pixel


@dataclass(frozen=True)
class Inputs:
    """What a model is called with."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)

    def call(self, model: Any) -> Any:  # noqa: ANN401 (torch's types are not known without it)
        """The model's output."""
        return model(*self.positional, **self.named)


def random_inputs(
    torch: Any,  # noqa: ANN401
    model: Any,  # noqa: ANN401
    kind: str,
    *,
    batch: int,
    shape: Sequence[int],
    device: str,
    dtype: Any,  # noqa: ANN401
    training: bool,
) -> Inputs:
    """A batch of this kind (see data/zoo.toml) on the device; tokens are integers.

    Drawn on the CPU in FP32 and then converted, so that one seed gives one input on any device and, but for rounding,
    in any precision: outputs can be compared.
    """
    if kind == "tensor":
        return Inputs((torch.randn(batch, *shape).to(device, dtype),))
    if kind == "images":
        images = [torch.rand(*shape).to(device, dtype) for _ in range(batch)]
        return Inputs((images, _boxes(torch, images)) if training else (images,))
    if len(shape) != 1:
        raise RunnerError(f"the model takes tokens: --input-shape is their number, not {'x'.join(map(str, shape))}")
    tokens = torch.randint(_vocabulary(model), (batch, *shape)).to(device)
    return Inputs((tokens,), {"decoder_input_ids": tokens} if kind == "tokens-to-tokens" else {})


def _vocabulary(model: Any) -> int:  # noqa: ANN401
    config = getattr(model, "config", None)
    return int(getattr(config, "vocab_size", None) or getattr(model, "vocabulary", None) or _VOCABULARY)


def _boxes(torch: Any, images: Sequence[Any]) -> list[dict[str, Any]]:  # noqa: ANN401
    """Objects for each image as torchvision's detectors want them: boxes, labels, and masks of their pixels."""
    targets = []
    for image in images:
        _, height, width = image.shape
        low = torch.rand(_OBJECTS, 2, device=image.device) * 0.5
        size = torch.tensor([width, height], device=image.device)
        boxes = torch.cat([low * size, (low + 0.25) * size], 1)
        labels = torch.randint(1, 21, (_OBJECTS,), device=image.device)
        masks = torch.ones(_OBJECTS, height, width, dtype=torch.uint8, device=image.device)
        targets.append({"boxes": boxes, "labels": labels, "masks": masks})
    return targets


@dataclass
class Loss:
    """A number to go back from, whatever the model's output looks like; targets are drawn once, for the first one."""

    _torch: Any
    _task: str
    _targets: Any = None

    def of(self, output: Any) -> Any:  # noqa: ANN401
        """The detectors' own losses summed; mean squared error of images; else cross entropy over classes."""
        functional = self._torch.nn.functional
        if isinstance(output, dict) and all(key.startswith(("loss", "classification", "bbox")) for key in output):
            return sum(output.values())
        main = _main(output).float()
        if self._task == "super resolution":
            self._targets = self._torch.rand(main.shape).to(main.device) if self._targets is None else self._targets
            return functional.mse_loss(main, self._targets)
        scores = main if main.ndim == _MAPS else main.flatten(0, -2)  # classes second
        if self._targets is None:
            shape = (scores.shape[0], *scores.shape[2:])
            self._targets = self._torch.randint(scores.shape[1], shape).to(scores.device)
        return functional.cross_entropy(scores, self._targets)


def _main(output: Any) -> Any:  # noqa: ANN401
    """The tensor that matters of what models of various libraries return."""
    for name in ("logits", "reconstruction", "out"):
        tensor = output.get(name) if isinstance(output, dict) else getattr(output, name, None)
        if tensor is not None:
            return tensor
    return output[0] if isinstance(output, (tuple, list)) else output
