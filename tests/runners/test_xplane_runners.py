"""The runners of TensorFlow and JAX with the real frameworks: loops of one's own, scripts, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.frameworks import python_with
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_run
from xsp_runners import jax_profiler, tf_profiler

_REPO = Path(__file__).resolve().parents[2]
_RUNNERS = {"tensorflow": "tf_profiler", "jax": "jax_profiler"}
_EITHER = [
    pytest.param("tensorflow", marks=pytest.mark.tensorflow),
    pytest.param("jax", marks=pytest.mark.jax),
]
_MODELS = {
    "tensorflow": """
import tensorflow as tf
layers = tf.keras.layers
model = tf.keras.Sequential([layers.Dense(8, name="first"), layers.Dense(4, name="second")], name="net")
inputs = tf.ones([3, 16])
run = tf.function(lambda: model(inputs))
""",
    "jax": """
import jax, jax.numpy as jnp
def net(x, first, second):
    with jax.named_scope("first"):
        x = x @ first
    with jax.named_scope("second"):
        return jnp.sin(x) @ second
compiled = jax.jit(net)
arrays = jnp.ones((64, 128)), jnp.ones((128, 256)), jnp.ones((256, 64))
run = lambda: compiled(*arrays)
""",
}
_LOOP = """
from xsp_runners.{runner} import capture
with capture(r"{out}", steps=2, warmup=2, device="cpu", model="mine", batch_size=3) as session:
    while not session.step(run()):
        pass
"""
_SCRIPT = """
from xsp_runners.steps import xsp_step
for _ in range(9):
    with xsp_step(batch_size=5):
        run()
"""


def _python(framework: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [python_with(framework), *map(str, arguments)]
    return subprocess.run(command, cwd=_REPO, capture_output=True, text=True, check=False, timeout=300)


def _described(out: Path) -> dict[str, Any]:
    described: dict[str, Any] = json.loads((out / "run.json").read_text())
    return described


def _layers(out: Path) -> set[str]:
    layers = read_run(out / "run.json", Options()).frame("layers")
    return set(layers.filter(source="module")["layer_name"].cast(str).to_list())


@pytest.mark.parametrize("framework", _EITHER)
def test_a_loop_of_ones_own(framework: str, tmp_path: Path) -> None:
    program = _MODELS[framework] + _LOOP.format(runner=_RUNNERS[framework], out=tmp_path)
    done = _python(framework, "-c", program)
    assert done.returncode == 0, done.stderr
    facts = _described(tmp_path)
    assert (facts["level"], facts["model"]["name"], facts["batch_size"]) == ("ML", "mine", 3)
    assert (facts["warmup_steps"], facts["steps"], len(facts["step_durations_ns"])) == (2, 2, 2)
    assert {"first", "second"} <= _layers(tmp_path)


@pytest.mark.parametrize("framework", _EITHER)
def test_a_script_is_run_until_its_steps_are_recorded(framework: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(_MODELS[framework] + _SCRIPT)
    runner = _REPO / "runners" / f"{_RUNNERS[framework]}.py"
    options = ("--level", "ML", "--warmup", "1", "--steps", "2", "--device", "cpu", "--out", tmp_path / "ml")
    done = _python(framework, runner, "--script", script, *options)
    assert done.returncode == 0, done.stderr
    facts = _described(tmp_path / "ml")
    assert (facts["model"]["name"], facts["batch_size"], facts["framework"]["name"]) == ("train", 5, framework)
    assert {"first", "second"} <= _layers(tmp_path / "ml")


@pytest.mark.parametrize("framework", _EITHER)
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--workload", "zoo:nothing"), "has no nothing"),
        (("--workload", "zoo:keras/nothing"), "nothing"),
        (("--workload", "tests.runners.workload:gone"), "has no function gone"),
        (("--workload", "tests.runners.workload:failing"), "ValueError: no room for 2 inputs on the cpu"),
    ],
)
def test_what_cannot_be_run_is_one_sentence(
    framework: str, options: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    runner = _REPO / "runners" / f"{_RUNNERS[framework]}.py"
    common = ("--level", "ML", "--batch-size", "2", "--device", "cpu", "--out", tmp_path)
    done = _python(framework, runner, *options, *common)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"{_RUNNERS[framework]}: ")
    assert sentence in last
    assert sentence in json.loads((tmp_path / "error.json").read_text())["error"]
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
def test_without_the_framework_the_runner_says_how_to_get_it(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL", "TF_CUDNN_USE_AUTOTUNE"):
        monkeypatch.setenv(variable, "0")
    monkeypatch.setitem(sys.modules, framework, None)
    runner = {"tensorflow": tf_profiler, "jax": jax_profiler}[framework]
    arguments = ["--level", "M", "--workload", "zoo:mlp", "--device", "cpu", "--out", str(tmp_path)]
    assert runner.main(arguments) == 2
    assert f"is not installed: pip install {framework}\n" in capsys.readouterr().err


@pytest.mark.jax
def test_a_step_that_returns_nothing_is_waited_for_all_the_same() -> None:
    """A step of JAX returns at once: without waiting, a loop of large products would seem to take no time."""
    program = """
from xsp_runners.frameworks.xplane import LEVELS
from xsp_runners.jax_profiler import _Profiler, _import_jax
from xsp_runners.frameworks.xplane import Session
jax = _import_jax("cpu")
jnp = jax.numpy
square = jax.jit(lambda x: x @ x / 900)
state = [jnp.ones((900, 900))]
square(state[0]).block_until_ready()
def step():
    for _ in range(20):
        state[0] = square(state[0])
session = Session(_Profiler(jax, LEVELS["M"], on_gpu=False), 1, 2, profiled=False)
while not session.is_finished:
    session.begin()
    step()
    session.end()
    assert state[0].is_ready()
"""
    done = _python("jax", "-c", program)
    assert done.returncode == 0, done.stderr
