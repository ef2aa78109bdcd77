"""Small models in plain JAX, their layers named by `jax.named_scope`, for captures that need no other library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from xsp_runners.outputs import StepInputs

__all__ = ["MODELS", "step_of"]

_WIDTH, _CLASSES = 64, 10
_VOCABULARY, _SEQUENCE, _HEADS, _BLOCKS = 512, 32, 4, 2
_IMAGE, _CHANNELS = 32, (3, 16, 32, 64)
_LEARNING_RATE = 0.01
_EPSILON = 1e-5
_IMAGES = ("NHWC", "HWIO", "NHWC")  # axes of images, filters and results
Array = Any  # of JAX, or its tracer
Weights = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """A model: how its weights and one batch are made from a key, and its logits from both."""

    name: str
    task: str
    weights: Callable[[Array], Weights]
    inputs: Callable[[Array, int], Array]
    labels: tuple[int, ...]  # shape of one input's labels
    logits: Callable[[Weights, Array], Array]


def step_of(
    model: Model, *, mode: str, batch: int, precision: str, seed: int
) -> tuple[Callable[[], object], StepInputs]:
    """A step of the model, compiled as one program, and what it computes on: weights and inputs of the seed's."""
    first, second, third = jax.random.split(jax.random.key(seed), 3)
    kind = {"fp32": jnp.float32, "fp16": jnp.float16, "bf16": jnp.bfloat16}[precision]
    weights = jax.tree.map(lambda w: w.astype(kind), model.weights(first))
    inputs = model.inputs(second, batch)
    inputs = inputs.astype(kind) if jnp.issubdtype(inputs.dtype, jnp.floating) else inputs
    if mode == "inference":
        run = jax.jit(model.logits)
        return lambda: run(weights, inputs), StepInputs(inputs, weights)
    labels = jax.random.randint(third, (batch, *model.labels), 0, _CLASSES)
    step_inputs = StepInputs([inputs, labels], weights, result=lambda state_and_loss: state_and_loss[1])
    return _training(model, weights, inputs, labels), step_inputs


def _training(model: Model, weights: Weights, inputs: Array, labels: Array) -> Callable[[], object]:
    def loss_of(parameters: Weights) -> Array:
        logits = model.logits(parameters, inputs)
        with jax.named_scope("loss"):
            chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
            return -jnp.mean(chosen)

    def descend(parameters: Weights) -> tuple[Weights, Array]:
        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        with jax.named_scope("sgd"):
            return jax.tree.map(lambda w, g: w - _LEARNING_RATE * g, parameters, gradients), loss

    train = jax.jit(descend)
    state = [weights]

    def step() -> object:
        state[0], loss = train(state[0])
        return state[0], loss

    return step


def _dense(weights: Weights, name: str, x: Array) -> Array:
    with jax.named_scope(name):
        return x @ weights[name]["w"] + weights[name]["b"]


def _dense_weights(key: Array, inputs: int, outputs: int) -> Weights:
    return {"w": jax.random.normal(key, (inputs, outputs)) / inputs**0.5, "b": jnp.zeros(outputs)}


def _mlp_weights(key: Array) -> Weights:
    sizes = (_WIDTH, 4 * _WIDTH, 4 * _WIDTH, _CLASSES)
    keys = jax.random.split(key, len(sizes))
    return {f"dense{n + 1}": _dense_weights(keys[n], *sizes[n : n + 2]) for n in range(len(sizes) - 1)}


def _mlp(weights: Weights, x: Array) -> Array:
    for name in ("dense1", "dense2"):
        x = jax.nn.relu(_dense(weights, name, x))
    return _dense(weights, "dense3", x)


def _convnet_weights(key: Array) -> Weights:
    *keys, last = jax.random.split(key, len(_CHANNELS))
    pairs = zip(keys, _CHANNELS, _CHANNELS[1:], strict=False)
    filters = {
        f"conv{n}": jax.random.normal(k, (3, 3, i, o)) / (9 * i) ** 0.5 for n, (k, i, o) in enumerate(pairs, start=1)
    }
    return {**filters, "head": _dense_weights(last, _CHANNELS[-1], _CLASSES)}


def _convnet(weights: Weights, x: Array) -> Array:
    for n in range(1, len(_CHANNELS)):
        name = f"conv{n}"
        with jax.named_scope(name):
            x = jax.lax.conv_general_dilated(x, weights[name], (2, 2), "SAME", dimension_numbers=_IMAGES)
            x = jax.nn.relu(x)
    with jax.named_scope("pool"):
        x = jnp.mean(x, axis=(1, 2))
    return _dense(weights, "head", x)


def _transformer_weights(key: Array) -> Weights:
    keys = iter(jax.random.split(key, 3 + 6 * _BLOCKS))
    parts = {"query": 1, "key": 1, "value": 1, "output": 1}
    blocks = {
        f"block{n}": {
            **{name: _dense_weights(next(keys), _WIDTH, _WIDTH) for name in parts},
            "up": _dense_weights(next(keys), _WIDTH, 4 * _WIDTH),
            "down": _dense_weights(next(keys), 4 * _WIDTH, _WIDTH),
        }
        for n in range(1, _BLOCKS + 1)
    }
    return {
        "tokens": 0.02 * jax.random.normal(next(keys), (_VOCABULARY, _WIDTH)),
        "positions": 0.02 * jax.random.normal(next(keys), (_SEQUENCE, _WIDTH)),
        **blocks,
        "head": _dense_weights(next(keys), _WIDTH, _VOCABULARY),
    }


def _transformer(weights: Weights, ids: Array) -> Array:
    with jax.named_scope("embedding"):
        x = weights["tokens"][ids] + weights["positions"]
    for n in range(1, _BLOCKS + 1):
        with jax.named_scope(f"block{n}"):
            x = _block(weights[f"block{n}"], x)
    return _dense(weights, "head", _normal_layer("norm", x))


def _block(weights: Weights, x: Array) -> Array:
    with jax.named_scope("attention"):
        x = x + _attention(weights, _normal_layer("norm", x))
    with jax.named_scope("feed_forward"):
        y = jax.nn.gelu(_dense(weights, "up", _normal_layer("norm", x)))
        return x + _dense(weights, "down", y)


def _attention(weights: Weights, x: Array) -> Array:
    q, k, v = (_dense(weights, name, x).reshape(*x.shape[:2], _HEADS, -1) for name in ("query", "key", "value"))
    with jax.named_scope("scores"):
        scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5)
    with jax.named_scope("mix"):
        y = jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(x.shape)
    return _dense(weights, "output", y)


def _normal_layer(name: str, x: Array) -> Array:
    with jax.named_scope(name):
        centred = x - jnp.mean(x, -1, keepdims=True)
        return centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + _EPSILON)


def _vectors(key: Array, batch: int) -> Array:
    return jax.random.normal(key, (batch, _WIDTH))


def _images(key: Array, batch: int) -> Array:
    return jax.random.normal(key, (batch, _IMAGE, _IMAGE, _CHANNELS[0]))


def _tokens(key: Array, batch: int) -> Array:
    return jax.random.randint(key, (batch, _SEQUENCE), 0, _VOCABULARY)


MODELS = {
    model.name: model
    for model in (
        Model("mlp", "classification", _mlp_weights, _vectors, (), _mlp),
        Model("convnet", "image classification", _convnet_weights, _images, (), _convnet),
        Model("transformer", "token prediction", _transformer_weights, _tokens, (_SEQUENCE,), _transformer),
    )
}
"""What the runner can run, by the name that its command line takes."""
