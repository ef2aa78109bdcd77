"""What the TensorFlow runner runs: a model of Keras applications, or the user's own function.

TensorFlow is imported when a run starts, so that this module can be read without it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from xsp_runners.outputs import StepInputs
from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["KERAS", "device_of", "import_tensorflow", "keras_step"]

KERAS = "keras/"
"""What names of the zoo begin with that are of Keras applications."""

_FP32, _HALVES = "fp32", {"fp16": "mixed_float16", "bf16": "mixed_bfloat16"}
_LEARNING_RATE = 0.01


def import_tensorflow(*, device: str) -> Any:  # noqa: ANN401 (TensorFlow is not installed everywhere)
    """The module tensorflow, which sees no GPU where the device is `cpu`; RunnerError where it is not installed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    try:
        import tensorflow as tf  # noqa: PLC0415 (heavy, and wanted only when a run starts)
    except ImportError as error:
        raise RunnerError("TensorFlow is not installed: pip install tensorflow") from error
    return tf


def device_of(tf: Any, requested: str) -> str:  # noqa: ANN401
    """`cpu` or `cuda`: what `auto` stands for here; RunnerError where there is no such device."""
    available = bool(tf.config.list_physical_devices("GPU"))
    if requested == "cuda" and not available:
        raise RunnerError("TensorFlow sees no GPU here: choose --device cpu")
    if requested == "cpu" and available:
        raise RunnerError(
            "TensorFlow was imported before and sees a GPU: set CUDA_VISIBLE_DEVICES=-1 to run on the CPU"
        )
    return "cuda" if available and requested == "auto" else requested.replace("auto", "cpu")


def keras_step(
    tf: Any,  # noqa: ANN401
    name: str,
    *,
    mode: str,
    batch: int,
    precision: str,
    compiled: bool,
) -> tuple[Callable[[], object], StepInputs]:
    """A step of the model of Keras applications, and what it computes on: random weights and inputs.

    `compiled` by XLA, as one program.
    """
    build = getattr(tf.keras.applications, name, None)
    if not (callable(build) and name[:1].isupper()):
        models = sorted(n for n in dir(tf.keras.applications) if n[:1].isupper())
        raise RunnerError(f"Keras applications have no {name}: choose of {', '.join(models)}")
    if precision in _HALVES:
        tf.keras.mixed_precision.set_global_policy(_HALVES[precision])
    elif precision != _FP32:
        raise RunnerError(f"{precision} is no precision of Keras models: choose fp32, fp16 or bf16")
    model = build(weights=None)
    images = tf.random.normal([batch, *model.input_shape[1:]])
    run = (_training if mode == "training" else _inference)(tf, model, images)
    function: Callable[[], object] = tf.function(run, jit_compile=compiled)
    return function, StepInputs(images, {w.path: w for w in model.weights})


def _inference(_tf: Any, model: Any, images: Any) -> Callable[[], object]:  # noqa: ANN401
    return lambda: model(images, training=False)


def _training(tf: Any, model: Any, images: Any) -> Callable[[], object]:  # noqa: ANN401
    classes = model.output_shape[-1]
    labels = tf.random.uniform([images.shape[0]], maxval=classes, dtype=tf.int32)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
    optimizer = tf.keras.optimizers.SGD(_LEARNING_RATE)
    optimizer.build(model.trainable_variables)

    def step() -> object:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step
