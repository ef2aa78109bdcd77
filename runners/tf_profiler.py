"""Runs TensorFlow work under TensorFlow's own profiler and leaves a run: trace.xplane.pb and run.json.

    python runners/tf_profiler.py --level ML --workload zoo:keras/MobileNetV2 --batch-size 4 --out DIR

M has no profiler. ML records operators on the host and which layer of Keras each belongs to; on a GPU every launch
waits for its kernel meanwhile. MLG records the device too. Or, around a loop of one's own:

    with capture("DIR", steps=3, model="my model", batch_size=8) as session:
        for batch in batches:
            if session.step(train(batch)):
                break

TensorFlow is imported when a capture starts, so that this module can be read without it.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.frameworks.xplane import Session, XplaneWorkload, capture_run, prepare_environment, run_level
from xsp_runners.outputs import StepInputs
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets import level_process
from xsp_runners.sets.level_process import LEVELS, Level, own_step, zoo_name

__all__ = ["RunnerError", "capture", "layer_calls", "main", "measure"]

_OPENS = "_open_name_scope"  # of keras.layers.Layer: what it enters around its call


@contextmanager
def noted_layers(tensorflow: Any) -> Iterator[Callable[[], list[dict[str, object]]]]:
    """Gives the layers called in graphs traced inside, as run.json has them; none where this Keras does not tell."""
    layer = tensorflow.keras.layers.Layer
    opened = getattr(layer, _OPENS, None)
    if opened is None:
        yield list
        return
    calls: dict[str, tuple[tuple[str, ...], str]] = {}
    around: list[str] = []

    @contextmanager
    def noting(self: Any) -> Iterator[object]:
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


KERAS = "keras/"
"""What names of the zoo begin with that are of Keras applications."""
_FP32, _HALVES = "fp32", {"fp16": "mixed_float16", "bf16": "mixed_bfloat16"}
_LEARNING_RATE = 0.01


def import_tensorflow(*, device: str) -> Any:
    """The module tensorflow, which sees no GPU where the device is `cpu`; RunnerError where it is not installed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    try:
        import tensorflow as tf  # noqa: PLC0415 (heavy, and wanted only when a run starts)
    except ImportError as error:
        raise RunnerError("TensorFlow is not installed: pip install tensorflow") from error
    return tf


def device_of(tf: Any, requested: str) -> str:
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
    tf: Any, name: str, *, mode: str, batch: int, precision: str, compiled: bool
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


def _inference(_tf: Any, model: Any, images: Any) -> Callable[[], object]:
    return lambda: model(images, training=False)


def _training(tf: Any, model: Any, images: Any) -> Callable[[], object]:
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


_FRAMEWORK = "tensorflow"
_AUTOTUNE = "TF_CUDNN_USE_AUTOTUNE"  # else cuDNN may be given another algorithm in every run
_ONE_AT_A_TIME = 1


class _Profiler:
    """TensorFlow with its profiler; a Tool."""

    def __init__(self, tf: Any, level: Level) -> None:
        self._tf = tf
        self._level = level

    def synchronize(self, result: object) -> None:  # noqa: ARG002 (devices are waited for as a whole)
        self._tf.test.experimental.sync_devices()

    def mark(self, step: int) -> AbstractContextManager[object]:
        marked: AbstractContextManager[object] = self._tf.profiler.experimental.Trace("step", step_num=step, _r=1)
        return marked

    def start(self, folder: str) -> None:
        profiler = self._tf.profiler.experimental
        detailed = self._level.detailed
        options = profiler.ProfilerOptions(
            host_tracer_level=2 if detailed else 1, python_tracer_level=0, device_tracer_level=int(detailed)
        )
        profiler.start(folder, options)

    def stop(self) -> None:
        self._tf.profiler.experimental.stop()


def measure(args: argparse.Namespace) -> dict[str, object]:
    """Runs the level, writes its profile, and says what is known of the run."""
    prepare_environment(args, "TensorFlow")
    if args.settings == "reproducible":
        os.environ.setdefault(_AUTOTUNE, "0")
    tf = import_tensorflow(device=args.device)
    on_gpu = device_of(tf, args.device) == "cuda"
    _apply_settings(tf, args)
    tool = _Profiler(tf, LEVELS[args.level])
    device = "cuda" if on_gpu else "cpu"
    own_facts = {**_own_facts(tf, on_gpu=on_gpu), "execution": _execution(args)}
    with noted_layers(tf) as layers:
        facts, cleaned = run_level(
            args,
            tool,
            lambda: _work(tf, args, device),
            on_gpu=on_gpu,
            settings=lambda: _in_force(tf, args),
            own_facts=own_facts,
        )
    return {**facts, **({"layers": layers()} if cleaned else {})}


def _own_facts(tf: Any, *, on_gpu: bool) -> dict[str, object]:
    return {"framework": {"name": _FRAMEWORK, "version": str(tf.__version__)}, "device": {"name": _device(tf, on_gpu)}}


def _device(tf: Any, on_gpu: bool) -> str:  # noqa: FBT001
    if not on_gpu:
        return "cpu"
    details = tf.config.experimental.get_device_details(tf.config.list_physical_devices("GPU")[0])
    return str(details.get("device_name", "GPU"))


def _execution(args: argparse.Namespace) -> str | None:
    """How the model of the zoo ran; null of work that is the user's own."""
    if args.script or zoo_name(args.workload) is None:
        return None
    return "xla" if args.execution == "compile" else "graph"


def _apply_settings(tf: Any, args: argparse.Namespace) -> None:
    """Has operators run one after the other, in one order, so that layers can be told; and sets the seed asked for."""
    tf.config.threading.set_inter_op_parallelism_threads(_ONE_AT_A_TIME)
    if args.threads:
        tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    if args.seed is not None:
        tf.keras.utils.set_random_seed(args.seed)


def _in_force(tf: Any, args: argparse.Namespace) -> dict[str, object]:
    return {
        "set_by": "program" if args.settings == "own" else "xsp",
        "seed": args.seed,
        "tf32": bool(tf.config.experimental.tensor_float_32_execution_enabled()),
        "operators_at_a_time": _ONE_AT_A_TIME,
        "threads": args.threads or None,
        "cudnn_autotune": os.environ.get(_AUTOTUNE) != "0",
        "launches_block": os.environ.get("CUDA_LAUNCH_BLOCKING") == "1",
    }


def _work(tf: Any, args: argparse.Namespace, device: str) -> XplaneWorkload:
    name = zoo_name(args.workload)
    if name is None:
        return XplaneWorkload(args.workload, "", own_step(args.workload, batch=args.batch_size, device=device))
    if not name.startswith(KERAS):
        raise RunnerError(f"TensorFlow's zoo has no {name}: its names are zoo:{KERAS}MobileNetV2 and the like")
    model = name.removeprefix(KERAS)
    step, step_inputs = keras_step(
        tf, model, mode=args.mode, batch=args.batch_size, precision=args.precision, compiled=args.execution == "compile"
    )
    return XplaneWorkload(model, "image classification", step, step_inputs)


@contextmanager
def capture(
    out: str | Path,
    *,
    steps: int = 3,
    warmup: int = 1,
    device: str = "auto",
    model: str = "",
    task: str = "",
    batch_size: int | None = None,
) -> Iterator[Session]:
    """Profiles the steps run inside and writes the run into the folder `out` when they ended well.

    Records operators and, where `device` says so (`auto`: where there is one), the GPU. Layers of Keras are known
    where their `tf.function` is first called inside. Raises RunnerError where a capture cannot be made; nothing is
    written then.
    """
    if steps < 1 or warmup < 1:
        raise RunnerError("steps and warmup must be at least 1: a first step traces the graph")
    tf = import_tensorflow(device=device)
    on_gpu = device_of(tf, device) == "cuda"
    run_facts = {
        "level": "MLG" if on_gpu else "ML",
        "serialized": not on_gpu,
        "model": {"name": model, "task": task},
        "batch_size": batch_size,
        **_own_facts(tf, on_gpu=on_gpu),
    }
    with noted_layers(tf) as layers:
        at_the_end = capture_run(
            _Profiler(tf, LEVELS["MLG"]),
            Path(out),
            steps=steps,
            warmup=warmup,
            facts=lambda _: {**run_facts, "layers": layers()},
        )
        with at_the_end as session:
            yield session


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 when the run was written, 2 after a sentence on stderr, which error.json has too."""
    return level_process.main("tf_profiler", measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
