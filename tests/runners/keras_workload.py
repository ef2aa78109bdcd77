"""A TensorFlow workload as a user would write it: a function that returns a training step of a nested Keras model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["build"]


def build(batch: int, device: str) -> Callable[[], object]:  # noqa: ARG001 (TensorFlow chooses the device itself)
    """Two dense layers in an encoder, one as head; gradient descent."""
    import tensorflow as tf  # noqa: PLC0415 (the tests' own Python need not have it)

    layers = tf.keras.layers
    encoder = tf.keras.Sequential(
        [layers.Dense(256, "relu", name="first"), layers.Dense(256, "relu", name="second")], name="encoder"
    )
    inputs = tf.keras.Input((128,))
    model = tf.keras.Model(inputs, layers.Dense(10, name="head")(encoder(inputs)), name="net")
    optimizer = tf.keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    images, labels = tf.random.normal([batch * 32, 128]), tf.zeros([batch * 32], tf.int32)

    def step() -> object:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    compiled: Callable[[], object] = tf.function(step)
    return compiled
