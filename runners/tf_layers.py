"""Which layers a Keras model has and in which scopes TensorFlow puts their operators, noted while graphs are traced.

A graph's operators are named after the scopes they were made in, and a scope gets a number where its name was taken
before (`net/conv1_1/convolution`): only the trace of the graph tells which scope is which layer's.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["layer_calls", "noted_layers"]

_OPENS = "_open_name_scope"  # of keras.layers.Layer: what it enters around its call


@contextmanager
def noted_layers(tensorflow: Any) -> Iterator[Callable[[], list[dict[str, object]]]]:  # noqa: ANN401
    """Gives the layers called in graphs traced inside, as run.json has them; none where this Keras does not tell."""
    layer = tensorflow.keras.layers.Layer
    opened = getattr(layer, _OPENS, None)
    if opened is None:
        yield list
        return
    calls: dict[str, tuple[tuple[str, ...], str]] = {}
    around: list[str] = []

    @contextmanager
    def noting(self: Any) -> Iterator[object]:  # noqa: ANN401
        around.append(self.name)
        try:
            with opened(self) as scope:
                if not tensorflow.executing_eagerly():
                    calls.setdefault(tensorflow.get_current_name_scope(), (tuple(around), type(self).__name__))
                yield scope
        finally:
            around.pop()

    setattr(layer, _OPENS, noting)
    try:
        yield lambda: layer_calls(calls)
    finally:
        setattr(layer, _OPENS, opened)


def layer_calls(calls: dict[str, tuple[tuple[str, ...], str]]) -> list[dict[str, object]]:
    """Layers as run.json has them from their scopes, each with the names of the layers around it and its type.

    A layer goes by its place in the model, without the model's own name unless two models share a place. It has one
    place however often it is called.
    """
    short = {around: "/".join(around[1:] or around) for around, _ in calls.values()}
    shared = {name for name in short.values() if list(short.values()).count(name) > 1}
    names = {around: "/".join(around) if name in shared else name for around, name in short.items()}
    numbers = {around: number for number, around in enumerate(names)}
    return [
        {"scope": scope, "name": names[around], "type": kind, "place": numbers[around]}
        for scope, (around, kind) in calls.items()
        if scope
    ]
