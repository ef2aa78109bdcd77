"""Models by name: what `zoo:NAME` stands for, how each is built, and what goes in. The list is data/zoo.toml.

They are built with random weights from torchvision, timm, transformers, or our own definitions. Nothing is downloaded:
libraries are asked for the architecture alone.
"""

from __future__ import annotations

import importlib
import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from xsp_runners.run_folder import RunnerError

__all__ = ["Inputs", "Loss", "ZooModel", "build", "find", "models", "random_inputs"]

SOURCES = ("torchvision", "timm", "transformers", "own")
"""Where a model can be built from; the first that is installed is taken."""
_DATA = Path(__file__).resolve().parents[1] / "data" / "zoo.toml"
_MAX_NAMED = 6


@dataclass(frozen=True)
class Source:
    """A model's name in a library, and the arguments it is built with."""

    library: str
    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ZooModel:
    """A model by name. `shape` is that of one input; null where only its library knows it."""

    name: str
    task: str
    input: str
    shape: tuple[int, ...] | None
    batch_sizes: tuple[int, int]
    sources: Sequence[Source]


@cache
def models() -> Mapping[str, ZooModel]:
    """All models of the list, by name, in its order."""
    with _DATA.open("rb") as file:
        content = tomllib.load(file)
    return {name: _model(name, {**content["defaults"], **entry}) for name, entry in content["models"].items()}


def find(name: str) -> ZooModel:
    """The model of that name; `LIBRARY/NAME` is any model of that library. RunnerError where there is none.

    Case does not count, and `-` is `_`.
    """
    library, mark, inner = name.partition("/")
    if mark and library in SOURCES and inner:
        return _of_library(library, inner)
    for listed_name, model in models().items():
        if _fold(listed_name) == _fold(name):
            return model
    raise RunnerError(f"the zoo has no model {name!r}{_like(name)}; runners/data/zoo.toml lists them")


def _of_library(library: str, name: str) -> ZooModel:
    """The model as the list has it where it does, so that shape and arguments are the same; else by its name alone."""
    for model in models().values():
        for source in model.sources:
            if source.library == library and _fold(name) in (_fold(source.name), _fold(model.name)):
                return ZooModel(model.name, model.task, model.input, model.shape, model.batch_sizes, (source,))
    if library == "own":
        raise RunnerError(f"the zoo has no model {name!r} of its own{_like(name)}")
    return ZooModel(name, "", "", None, (1, 256), (Source(library, name),))


def _fold(name: str) -> str:
    """The name as people and libraries do: `ResNet-50` is no name here, but `bert-base` is that of `bert_base`."""
    return name.lower().replace("-", "_")


def _like(name: str) -> str:
    """A few names that begin or go on alike."""
    stem = name.rstrip("0123456789").lower()
    near = [model for model in models() if stem and (stem in model or model in name)]
    near = near or list(models())
    more = ", ..." if len(near) > _MAX_NAMED else ""
    return f": choose {', '.join(near[:_MAX_NAMED])}{more}"


def _model(name: str, entry: Mapping[str, Any]) -> ZooModel:
    first, last = entry["batch_sizes"]
    sources = [_source(library, entry[library]) for library in SOURCES if library in entry]
    return ZooModel(name, entry["task"], entry["input"], tuple(entry["shape"]), (first, last), tuple(sources))


def _source(library: str, entry: str | Mapping[str, Any]) -> Source:
    if isinstance(entry, str):
        return Source(library, entry)
    arguments = dict(entry)
    return Source(library, arguments.pop("model" if library == "transformers" else "name"), arguments)


@dataclass(frozen=True)
class Built:
    """A model in its library's shape; `shape` and `input` are what it wants where the list does not say."""

    model: Any
    library: str
    version: str | None
    input: str
    shape: tuple[int, ...]


def build(entry: ZooModel) -> Built:
    """The model from the first of its sources that is installed; RunnerError where none is, or it knows no such name.

    Weights come from torch's generator as it stands; the device is torch's default one.
    """
    missing = []
    for source in entry.sources:
        library = _library(source.library)
        if library is None:
            missing.append(source.library)
            continue
        try:
            model, kind, shape = _BUILDERS[source.library](library, source)
        except (ImportError, ValueError, RuntimeError, AttributeError, TypeError) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise RunnerError(f"{source.library} cannot build {source.name}: {first}") from error
        version = getattr(library, "__version__", None) if source.library != "own" else None
        return Built(model, source.library, version, entry.input or kind, entry.shape or shape)
    raise RunnerError(f"{entry.name} needs {' or '.join(missing)}: pip install {missing[0]}")


def _library(name: str) -> Any:
    """The module; null where it is not installed, or does not fit the torch that is."""
    try:
        return importlib.import_module("xsp_runners.zoo.networks" if name == "own" else name)
    except (ImportError, RuntimeError):  # torchvision beside another torch: operator torchvision::nms does not exist
        return None


def _of_torchvision(library: Any, source: Source) -> tuple[Any, str, tuple[int, ...]]:
    builder = library.models.get_model_builder(source.name)
    no_weights: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        no_weights["weights_backbone"] = None
    detects = builder.__module__.startswith("torchvision.models.detection")
    return builder(**no_weights, **source.arguments), "images" if detects else "tensor", (3, 224, 224)


def _of_timm(library: Any, source: Source) -> tuple[Any, str, tuple[int, ...]]:
    model = library.create_model(source.name, pretrained=False, **source.arguments)
    return model, "tensor", tuple(getattr(model, "default_cfg", {}).get("input_size", (3, 224, 224)))


def _of_transformers(library: Any, source: Source) -> tuple[Any, str, tuple[int, ...]]:
    model_class = getattr(library, source.name)
    if model_class.config_class is None:
        raise RunnerError(f"{source.name} of transformers is no single model: name one such as BertForMaskedLM")
    config = model_class.config_class(**source.arguments)
    sees = getattr(model_class, "main_input_name", "input_ids") == "pixel_values"
    size = getattr(config, "image_size", None) or 224
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    if sees:
        return model_class(config), "tensor", (getattr(config, "num_channels", 3), int(height), int(width))
    kind = "tokens-to-tokens" if getattr(config, "is_encoder_decoder", False) else "tokens"
    return model_class(config), kind, (128,)


def _of_ours(library: Any, source: Source) -> tuple[Any, str, tuple[int, ...]]:
    nets: Mapping[str, Callable[..., Any]] = library.NETS
    return nets[source.name](**source.arguments), "tensor", ()


_BUILDERS: dict[str, Callable[[Any, Any], tuple[Any, str, tuple[int, ...]]]] = {
    "torchvision": _of_torchvision,
    "timm": _of_timm,
    "transformers": _of_transformers,
    "own": _of_ours,
}


_VOCABULARY = 1000  # of a model that does not say how many tokens it knows
_OBJECTS = 4  # boxes in each image that a detector is trained on
_MAPS = 4  # dimensions of an output with something for each pixel


@dataclass(frozen=True)
class Inputs:
    """What a model is called with."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any] = field(default_factory=dict)

    def call(self, model: Any) -> Any:
        """The model's output."""
        return model(*self.positional, **self.named)


def random_inputs(
    torch: Any, model: Any, kind: str, *, batch: int, shape: Sequence[int], device: str, dtype: Any, training: bool
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


def _vocabulary(model: Any) -> int:
    config = getattr(model, "config", None)
    return int(getattr(config, "vocab_size", None) or getattr(model, "vocabulary", None) or _VOCABULARY)


def _boxes(torch: Any, images: Sequence[Any]) -> list[dict[str, Any]]:
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

    def of(self, output: Any) -> Any:
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


def _main(output: Any) -> Any:
    """The tensor that matters of what models of various libraries return."""
    for name in ("logits", "reconstruction", "out"):
        tensor = output.get(name) if isinstance(output, dict) else getattr(output, name, None)
        if tensor is not None:
            return tensor
    return output[0] if isinstance(output, (tuple, list)) else output
