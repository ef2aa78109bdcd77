"""Work of instructions against XLA's own cost analysis: of programs that JAX compiles, and of a profile it takes."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.frameworks import python_with
from tests.helpers.synth_hlo import length_delimited
from xsp_ingest.convert import convert
from xsp_ingest.formats.xplane.instructions import program_instructions
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.jax

_COUNTED = """
import base64, json
import jax, jax.numpy as jnp
import jaxlib.xla_client as xla_client
from jax import lax
from jaxlib import _hlo

def f32(*sizes):
    return jnp.ones(sizes, jnp.float32)

def conv(padding, stride=(1, 1), of_data=(1, 1), of_kernel=(1, 1), features=1, batches=1):
    return lambda x, w: lax.conv_general_dilated(
        x, w, stride, padding, of_data, of_kernel, feature_group_count=features, batch_group_count=batches)

def dot(contracting, batch=((), ())):
    return lambda x, y: lax.dot_general(x, y, (contracting, batch))

FUNCTIONS = {
    "matrix product": (dot(((1,), (0,))), f32(64, 32), f32(32, 48)),
    "first dimensions contracted": (dot(((0,), (0,))), f32(32, 64), f32(32, 48)),
    "batched": (dot(((2,), (1,)), ((0,), (0,))), f32(4, 8, 16), f32(4, 16, 8)),
    "two batches, two contracted": (dot(((2, 3), (3, 1)), ((0, 1), (0, 2))), f32(2, 3, 4, 5, 6), f32(2, 5, 3, 4, 7)),
    "convolution": (conv("VALID"), f32(2, 3, 16, 17), f32(8, 3, 3, 5)),
    "same padding": (conv("SAME"), f32(2, 3, 16, 17), f32(8, 3, 3, 5)),
    "strides": (conv(((0, 3), (2, 1)), (2, 3)), f32(2, 3, 16, 17), f32(8, 3, 3, 5)),
    "window dilation": (conv("SAME", of_kernel=(2, 3)), f32(2, 3, 16, 17), f32(8, 3, 3, 3)),
    "transposed": (conv(((2, 3), (1, 1)), of_data=(2, 3)), f32(2, 3, 16, 17), f32(8, 3, 3, 3)),
    "all at once": (conv(((2, 3), (1, 1)), (3, 2), (2, 3), (3, 2)), f32(2, 3, 16, 17), f32(8, 3, 3, 4)),
    "grouped": (conv("SAME", features=4), f32(2, 8, 16, 17), f32(12, 2, 3, 3)),
    "depthwise": (conv("SAME", features=8), f32(2, 8, 16, 17), f32(8, 1, 3, 3)),
    "batch groups": (conv("VALID", batches=2), f32(4, 3, 9, 9), f32(6, 3, 3, 3)),
    "arithmetic": (lambda x: lax.tanh(x * x + x) - lax.rsqrt(lax.abs(x)), f32(33, 7)),
    "choices": (lambda x: lax.select(x > x * x, lax.max(x, -x), lax.clamp(x, x, x)), f32(33, 7)),
    "sum": (lambda x: lax.reduce(x, jnp.float32(0), lax.add, (1,)), f32(33, 7)),
    "maximum of windows": (
        lambda x: lax.reduce_window(x, jnp.float32(0), lax.max, (2, 3), (1, 2), "VALID"), f32(33, 8)),
    "movement": (lambda x: lax.concatenate([lax.transpose(x, (1, 0)), lax.rev(x, (0,)).T], 0), f32(33, 7)),
}
out = {}
for name, (function, *arguments) in FUNCTIONS.items():
    lowered = jax.jit(function).lower(*arguments)
    module = _hlo.HloModule.from_serialized_hlo_module_proto(
        lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    cost = xla_client._xla.hlo_module_cost_analysis(jax.devices("cpu")[0].client, module)
    names = [one.name for one in module.computations()[-1].instructions()]
    proto = base64.b64encode(module.as_serialized_hlo_module_proto()).decode()
    out[name] = {"names": names, "proto": proto, "flops": cost.get("flops", 0) + cost.get("transcendentals", 0)}
print(json.dumps(out))
"""
_PROFILED = """
import json, sys
import jax, jax.numpy as jnp

def step(x, w, image, kernel):
    product = jnp.dot(x, w)
    convolved = jax.lax.conv_general_dilated(image, kernel, (2, 2), "SAME")
    return product, convolved

arguments = [jnp.ones(s) for s in ((192, 96), (96, 160), (2, 16, 30, 30), (24, 16, 3, 3))]
step = jax.jit(step)
cost = step.lower(*arguments).compile().cost_analysis()
jax.block_until_ready(step(*arguments))
with jax.profiler.trace(sys.argv[1]):
    for _ in range(3):
        jax.block_until_ready(step(*arguments))
print(json.dumps({"flops": (cost[0] if isinstance(cost, list) else cost)["flops"]}))
"""


def _printed(program: str, folder: Path) -> Any:  # noqa: ANN401 (JSON)
    command = [python_with("jax"), "-c", program, str(folder)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, capture_output=True, check=True, timeout=300, env=environment, cwd=folder)
    return json.loads(done.stdout.splitlines()[-1])


def test_arithmetic_of_programs_is_what_xla_counts(tmp_path: Path) -> None:
    """XLA counts one operation an element too, and of convolutions what meets the input: all its flop together."""
    programs = _printed(_COUNTED, tmp_path)
    counted = {}
    for name, each in programs.items():
        proto = length_delimited(1, base64.b64decode(each["proto"]))
        frame, *damaged = program_instructions({"jit_f(1)": proto}, each["names"])
        assert damaged == [0, 0]
        assert frame["modelled_flop"].null_count() == 0
        counted[name] = sum(frame["modelled_flop"].to_list()) + sum(frame["modelled_vector_flop"].to_list())
    assert counted == {name: each["flops"] for name, each in programs.items()}


def test_a_profile_that_was_just_taken_holds_the_work_on_paper(tmp_path: Path) -> None:
    """192 x 96 by 96 x 160; and of 30 points a window of 3 every 2: 14 x 3 + 2, of 16 features 24, two images."""
    product = 2 * 192 * 96 * 160
    convolution = 2 * 2 * (14 * 3 + 2) ** 2 * 16 * 24
    cost = _printed(_PROFILED, tmp_path)
    assert cost["flops"] == product + convolution
    (profile,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    metrics = convert([profile], Options()).frame("metrics").with_columns(pl.col("metric").cast(pl.String))
    flop = metrics.filter(pl.col("metric") == "modelled_flop", pl.col("value") > 0)
    assert sorted(flop["value"]) == sorted([float(product), float(convolution)] * 3)
    assert flop["source"].cast(pl.String).unique().to_list() == ["modelled by HLO shapes"]
