"""Builds a model of the zoo with random weights, from torchvision, timm, transformers, or our own definitions.

Nothing is downloaded: libraries are asked for the architecture alone.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from xsp_runners.zoo import Source, ZooModel

__all__ = ["Built", "build"]


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


def _library(name: str) -> Any:  # noqa: ANN401 (a module)
    """The module; null where it is not installed, or does not fit the torch that is."""
    try:
        return importlib.import_module("xsp_runners.torch_nets" if name == "own" else name)
    except (ImportError, RuntimeError):  # torchvision beside another torch: operator torchvision::nms does not exist
        return None


def _of_torchvision(library: Any, source: Source) -> tuple[Any, str, tuple[int, ...]]:  # noqa: ANN401
    builder = library.models.get_model_builder(source.name)
    no_weights: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        no_weights["weights_backbone"] = None
    detects = builder.__module__.startswith("torchvision.models.detection")
    return builder(**no_weights, **source.arguments), "images" if detects else "tensor", (3, 224, 224)


def _of_timm(library: Any, source: Source) -> tuple[Any, str, tuple[int, ...]]:  # noqa: ANN401
    model = library.create_model(source.name, pretrained=False, **source.arguments)
    return model, "tensor", tuple(getattr(model, "default_cfg", {}).get("input_size", (3, 224, 224)))


def _of_transformers(library: Any, source: Source) -> tuple[Any, str, tuple[int, ...]]:  # noqa: ANN401
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


def _of_ours(library: Any, source: Source) -> tuple[Any, str, tuple[int, ...]]:  # noqa: ANN401
    nets: Mapping[str, Callable[..., Any]] = library.NETS
    return nets[source.name](**source.arguments), "tensor", ()


_BUILDERS: dict[str, Callable[[Any, Any], tuple[Any, str, tuple[int, ...]]]] = {
    "torchvision": _of_torchvision,
    "timm": _of_timm,
    "transformers": _of_transformers,
    "own": _of_ours,
}
