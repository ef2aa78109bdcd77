"""Runs JAX work under JAX's own profiler and leaves a run: trace.xplane.pb and run.json.

    python runners/jax_profiler.py --level ML --workload zoo:transformer --mode training --out DIR

M has no profiler. ML records the instructions of compiled programs on the host; on a GPU every launch waits for its
kernel meanwhile. MLG records the device too. Layers are the scopes that `jax.named_scope` makes. Or, around a loop of
one's own:

    with capture("DIR", steps=3, model="my model", batch_size=8) as session:
        for batch in batches:
            state = train(state, batch)
            if session.step(state):
                break

JAX is imported when a capture starts, so that this module can be read without it.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.frameworks.xplane import Session, XplaneWorkload, capture_run, prepare_environment, run_level
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets import level_process
from xsp_runners.sets.level_process import LEVELS, Level, own_step, zoo_name

__all__ = ["RunnerError", "capture", "layers_of", "main", "measure"]

_PROGRAM = re.compile(r"\bp?jit\([^()]*\)/?")  # a compiled function is no layer
_TRANSFORMED = re.compile(r"\b\w+\(([^()]*)\)")
_SCOPE = re.compile(r"[A-Za-z_][\w.-]*")
_STRUCTURE = re.compile(
    r"while|body|cond|branch_\d+_fun|scan|checkpoint|remat\d?|rematted_computation|closed_call|core_call|shard_map"
    r"|xla_call|pmap|custom_(jvp|vjp)_call(_jaxpr)?|body_jaxpr|cond_jaxpr"
)
_INSTANCE = re.compile(r"_?\d+$")


def layers_of(operations: Iterable[str]) -> list[dict[str, object]]:
    """Layers as run.json has them, from the names of a program's operations: by scope, outer ones too, in order."""
    layers: dict[str, dict[str, object]] = {}
    for name in operations:
        parts = [part for part in _plain(name).split("/") if part][:-1]
        for last, part in enumerate(parts, start=1):
            named = [p for p in parts[:last] if not _STRUCTURE.fullmatch(p)]
            if _STRUCTURE.fullmatch(part) or not all(map(_SCOPE.fullmatch, named)):
                continue
            scope = "/".join(parts[:last])
            layers[scope] = {"scope": scope, "name": "/".join(named), "type": _INSTANCE.sub("", part) or part}
    return [layers[scope] for scope in sorted(layers)]


def _plain(name: str) -> str:
    while (inner := _TRANSFORMED.sub(r"\1", _PROGRAM.sub("", name))) != name:
        name = inner
    return name


_FRAMEWORK = "jax"
_FLAGS = "XLA_FLAGS"
_NO_AUTOTUNE = "--xla_gpu_autotune_level=0"  # else a kernel may be another one in every run
_PRECISIONS = ("fp32", "fp16", "bf16")


class _Profiler:
    """JAX with its profiler; a Tool."""

    def __init__(self, jax: Any, level: Level, *, on_gpu: bool) -> None:
        self._jax = jax
        self._level = level
        self._on_gpu = on_gpu

    def synchronize(self, result: object) -> None:
        """Waits for what the step returned, or where that is not known for what each device was given last."""
        jax = self._jax
        last = [jax.device_put(0.0, device) + 1.0 for device in jax.local_devices()] if result is None else result
        jax.block_until_ready(last)  # a GPU works in order; the CPU was told to
        jax.effects_barrier()

    def mark(self, step: int) -> AbstractContextManager[object]:
        marked: AbstractContextManager[object] = self._jax.profiler.StepTraceAnnotation("step", step_num=step)
        return marked

    def start(self, folder: str) -> None:
        options = self._jax.profiler.ProfileOptions()
        options.host_tracer_level = 2 if self._level.detailed else 1
        options.python_tracer_level = 0
        if self._on_gpu and not self._level.detailed:
            options.advanced_configuration = {"gpu_max_activity_api_events": 0}
        self._jax.profiler.start_trace(folder, profiler_options=options)

    def stop(self) -> None:
        self._jax.profiler.stop_trace()


def measure(args: argparse.Namespace) -> dict[str, object]:
    """Runs the level, writes its profile, and says what is known of the run."""
    prepare_environment(args, "JAX")
    if args.precision not in _PRECISIONS:
        raise RunnerError(f"{args.precision} is no precision of JAX models: choose {', '.join(_PRECISIONS)}")
    jax = _import_jax(args.device, threads=args.threads, autotune=args.settings == "own")
    on_gpu = _device(jax, args.device) == "cuda"
    device = "cuda" if on_gpu else "cpu"
    facts, cleaned = run_level(
        args,
        _Profiler(jax, LEVELS[args.level], on_gpu=on_gpu),
        lambda: _work(args, device),
        on_gpu=on_gpu,
        settings=lambda: _in_force(jax, args),
        own_facts={**_own_facts(jax), "execution": "xla" if args.workload and zoo_name(args.workload) else None},
    )
    return {**facts, **({"layers": layers_of(cleaned.operations)} if cleaned else {})}


def _in_force(jax: Any, args: argparse.Namespace) -> dict[str, object]:
    return {
        "set_by": "program" if args.settings == "own" else "xsp",
        "seed": args.seed,
        "threads": args.threads or None,
        "default_matmul_precision": jax.config.jax_default_matmul_precision,
        "enable_x64": bool(jax.config.jax_enable_x64),
        "cpu_async_dispatch": False,
        "xla_flags": os.environ.get(_FLAGS, ""),
        "launches_block": os.environ.get("CUDA_LAUNCH_BLOCKING") == "1",
    }


def _import_jax(device: str, *, threads: int = 0, autotune: bool = False) -> Any:
    """The module jax, which sees only the CPU where that is the device; RunnerError where it is not installed."""
    flags = os.environ.get(_FLAGS, "")
    if _NO_AUTOTUNE.partition("=")[0] not in flags and device != "cpu" and not autotune:
        os.environ[_FLAGS] = f"{flags} {_NO_AUTOTUNE}".strip()
    if threads:
        os.environ["NPROC"] = str(threads)  # what XLA takes its number of threads from
    if device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        import jax  # noqa: PLC0415 (heavy, and wanted only when a run starts)
    except ImportError as error:
        raise RunnerError("JAX is not installed: pip install jax") from error
    jax.config.update(
        "jax_cpu_enable_async_dispatch", val=False
    )  # else a step that returns nothing cannot be waited for
    return jax


def _device(jax: Any, requested: str) -> str:
    """`cpu` or `cuda`: what `auto` stands for here; RunnerError where there is no such device."""
    available = jax.default_backend() == "gpu"
    if requested == "cuda" and not available:
        raise RunnerError("JAX sees no GPU here: choose --device cpu")
    if requested == "cpu" and available:
        raise RunnerError("JAX was imported before and has a GPU: set JAX_PLATFORMS=cpu to run on the CPU")
    return "cuda" if available else "cpu"


def _own_facts(jax: Any) -> dict[str, object]:
    return {
        "framework": {"name": _FRAMEWORK, "version": str(jax.__version__)},
        "device": {"name": str(jax.devices()[0].device_kind)},
    }


def _work(args: argparse.Namespace, device: str) -> XplaneWorkload:
    name = zoo_name(args.workload)
    if name is None:
        return XplaneWorkload(args.workload, "", own_step(args.workload, batch=args.batch_size, device=device))
    from xsp_runners.zoo.jax_models import MODELS, step_of  # noqa: PLC0415 (imports jax)

    if name not in MODELS:
        raise RunnerError(f"JAX's zoo has no {name}: choose of {', '.join(MODELS)} or give module:function")
    model = MODELS[name]
    step, step_inputs = step_of(model, mode=args.mode, batch=args.batch_size, precision=args.precision, seed=args.seed)
    return XplaneWorkload(model.name, model.task, step, step_inputs)


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

    Records instructions and, where `device` says so (`auto`: where there is one), the GPU. Raises RunnerError where a
    capture cannot be made; nothing is written then.
    """
    if steps < 1 or warmup < 1:
        raise RunnerError("steps and warmup must be at least 1: a first step compiles the program")
    jax = _import_jax(device)
    on_gpu = _device(jax, device) == "cuda"
    run_facts = {
        "level": "MLG" if on_gpu else "ML",
        "serialized": not on_gpu,
        "model": {"name": model, "task": task},
        "batch_size": batch_size,
        **_own_facts(jax),
    }
    at_the_end = capture_run(
        _Profiler(jax, LEVELS["MLG"], on_gpu=on_gpu),
        Path(out),
        steps=steps,
        warmup=warmup,
        facts=lambda cleaned: {**run_facts, "layers": layers_of(cleaned.operations)},
    )
    with at_the_end as session:
        yield session


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 when the run was written, 2 after a sentence on stderr, which error.json has too."""
    return level_process.main("jax_profiler", measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
