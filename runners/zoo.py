"""Models by name: what `zoo:NAME` stands for, in every framework. The list itself is data/zoo.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["SOURCES", "Source", "ZooModel", "find", "models"]

SOURCES = ("torchvision", "timm", "transformers", "own")
"""Where a model can be built from; the first that is installed is taken."""

_DATA = Path(__file__).resolve().parent / "data" / "zoo.toml"
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
    """As the list has it where it does, so that shape and arguments are the same; else by its name alone."""
    for model in models().values():
        for source in model.sources:
            if source.library == library and _fold(name) in (_fold(source.name), _fold(model.name)):
                return ZooModel(model.name, model.task, model.input, model.shape, model.batch_sizes, (source,))
    if library == "own":
        raise RunnerError(f"the zoo has no model {name!r} of its own{_like(name)}")
    return ZooModel(name, "", "", None, (1, 256), (Source(library, name),))


def _fold(name: str) -> str:
    """As people and libraries write it: `ResNet-50` is no name here, but `bert-base` is that of `bert_base`."""
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
