"""Kernels of XLA's command buffers: whose instruction each is, by the schedule of a program written byte by byte.

The program, in its order: an addition, cuBLAS, a product, the same addition again (which shares the first one's
kernel) and a tanh, each with the framework's operation of the same name. A command buffer replays all of it.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.frameworks import python_with
from tests.helpers.linked import ledger_counts
from tests.helpers.synth_xplane import Profile
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from xsp_model import Trace

_ADD, _MULTIPLY, _TANH = (b"add", b"f32[8]"), (b"multiply", b"f32[8]"), (b"tanh", b"f32[8]")
_SCHEDULE: tuple[tuple[str, str, tuple[bytes, bytes] | None], ...] = (  # name, opcode, what a fusion computes
    ("x.1", "parameter", None),
    ("loop_add_fusion", "fusion", _ADD),
    ("cublas-gemm.1", "custom-call", None),
    ("loop_multiply_fusion", "fusion", _MULTIPLY),
    ("loop_add_fusion.1", "fusion", _ADD),
    ("wrapped_tanh", "fusion", _TANH),
)
_KERNELS = ("loop_add_fusion", "ampere_sgemm_128x64", "loop_multiply_fusion", "loop_add_fusion", "wrapped_tanh")


def _varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _proto(schedule: Sequence[tuple[str, str, tuple[bytes, bytes] | None]] = _SCHEDULE) -> bytes:
    """An HloProto: fields as in xla/service/hlo.proto; ids and the order of instructions are the schedule's."""
    instructions, computations = b"", b""
    for number, (name, opcode, fused) in enumerate(schedule, start=1):
        metadata = _bytes(7, _bytes(2, f"jit(step)/{name}".encode()))
        called = b""
        if fused is not None:
            inner = _bytes(1, b"inner") + _bytes(2, fused[0]) + _bytes(3, fused[1]) + _number(35, 1)
            computations += _bytes(
                3, _bytes(1, f"fused_{number}".encode()) + _bytes(2, inner) + _number(5, 100 + number)
            )
            called = _bytes(38, _varint(100 + number))
        text = _bytes(1, name.encode()) + _bytes(2, opcode.encode())
        instructions = _bytes(2, text + metadata + _number(35, 1 << 32 | number) + called) + instructions
    computations += _bytes(3, _bytes(1, b"main") + instructions + _number(5, 1))
    order = b"".join(_varint(1 << 32 | number) for number in range(1, len(schedule) + 1))
    sequences = _bytes(7, _bytes(1, _number(1, 1) + _bytes(2, _bytes(1, order))))
    return _bytes(1, _bytes(1, b"jit_step") + computations + sequences)


def _profile(
    kernels: Sequence[str] = _KERNELS, *, proto: bytes | None = None, every_ns: int = 100, launches: int = 2
) -> Profile:
    """Runs of the program; each launches its command buffer, whose kernels take 60 ns."""
    profile = Profile()
    programs = profile.plane("/host:metadata")
    entry = programs.plane.event_metadata.add(key=programs.name_id("jit_step(4)"))
    entry.value.id, entry.value.name = entry.key, "jit_step(4)"
    programs.stat(entry.value.stats, "hlo_proto", _proto() if proto is None else proto)
    host, gpu = profile.plane("/host:CPU"), profile.plane("/device:GPU:0")
    thread, calls = host.line(9, "py_xla_execute/9"), host.line(500, "Host Threads/500")
    stream = gpu.line(7, "Stream #7(Kernel)")
    buffer = {"hlo_op": "&command_buffer_0", "hlo_module": "&jit_step", "program_id": 4}
    for launch in range(launches):
        at = 10_000 * launch
        host.event(thread, "jit_step:XLA GPU module", at + 100, 400)
        host.event(calls, "cuGraphLaunch (CudaGraph:3)", at + 120, 10, correlation_id=launch + 1, **buffer)
        for node, kernel in enumerate(kernels):
            gpu.event(stream, kernel, at + 600 + every_ns * node, 60, correlation_id=launch + 1,
                      kernel_details="&grid:1,1,1 block:32,1,1", cuda_graph_id=3, cuda_graph_node_id=node + 1,
                      **buffer)  # fmt: skip
    return profile


def _converted(profile: Profile, folder: Path) -> Trace:
    return convert([profile.write(folder / "host.xplane.pb")], Options())


def _layers(trace: Trace) -> list[tuple[str, str | None, str]]:
    """Kernel, name of its layer (without the number of its call) and attribution, in order."""
    spans = trace.frame("spans").to_dicts()
    layers = {row["span_id"]: row["layer_name"].partition("#")[0] for row in trace.frame("layers").to_dicts()}
    work = [row for row in spans if row["attribution"] is not None]
    return [(row["name"], layers.get(row["layer_id"]), row["attribution"]) for row in work]


def test_kernels_are_of_the_instructions_in_their_order(tmp_path: Path) -> None:
    trace = _converted(_profile(), tmp_path)
    instructions = [name for name, opcode, _ in _SCHEDULE if opcode != "parameter"]
    expected = [(kernel, f"jit(step)/{name}", "layer") for kernel, name in zip(_KERNELS, instructions, strict=True)]
    assert _layers(trace) == expected * 2
    assert ledger_counts(trace)["command_buffer_read"] == 10
    assert "command_buffer_unread" not in ledger_counts(trace)
    assert trace.frame("attributions")["basis"].to_list() == ["graph_node"] * 10


def test_the_kernels_stay_with_their_launch(tmp_path: Path) -> None:
    spans = _converted(_profile(launches=1), tmp_path).frame("spans").to_dicts()
    parents = {spans[row["parent_id"]]["name"] for row in spans if row["attribution"] is not None}
    assert parents == {"cuGraphLaunch (CudaGraph:3)"}


@pytest.mark.parametrize(
    ("kernels", "reason"),
    [
        (("loop_add_fusion",), "two fusions share it"),
        (("wrapped_tanh", "loop_add_fusion"), "the program runs them the other way round"),
        (("ampere_sgemm_128x64",), "its name is the library's"),
        (("loop_add_fusion", "loop_multiply_fusion", "wrapped_tanh"), "a fusion between them is missing"),
    ],
)
def test_what_the_order_does_not_tell_stays_a_replay(kernels: Sequence[str], reason: str, tmp_path: Path) -> None:
    trace = _converted(_profile(kernels), tmp_path)
    assert {(layer, attribution) for _, layer, attribution in _layers(trace)} == {(None, "graph_replay")}, reason
    assert ledger_counts(trace)["command_buffer_unread"] == 2 * len(kernels)


def test_each_launch_is_a_run_of_its_instructions(tmp_path: Path) -> None:
    """Though the only one of the program is the last of one launch and the first of the next."""
    schedule = (_SCHEDULE[0], _SCHEDULE[-1])
    trace = _converted(_profile(("wrapped_tanh",), proto=_proto(schedule), launches=3), tmp_path)
    assert trace.frame("spans").filter(level="operator", name="wrapped_tanh").height == 3


def test_what_a_library_ran_is_known_only_between_two_fusions(tmp_path: Path) -> None:
    kernels = ("sgemm", *_KERNELS[2:], "sgemm")
    layers = [layer for _, layer, _ in _layers(_converted(_profile(kernels, launches=1), tmp_path))]
    assert layers == [None, *(f"jit(step)/{name}" for name, _, _ in _SCHEDULE[3:]), None]


def test_of_two_calls_of_a_library_neither_is_taken(tmp_path: Path) -> None:
    schedule = (*_SCHEDULE[:3], ("cublas-gemm.2", "custom-call", None), *_SCHEDULE[3:])
    trace = _converted(_profile(proto=_proto(schedule), launches=1), tmp_path)
    assert [layer for kernel, layer, _ in _layers(trace) if kernel == "ampere_sgemm_128x64"] == [None]
    assert ledger_counts(trace)["command_buffer_unread"] == 1


def test_kernels_side_by_side_have_no_order(tmp_path: Path) -> None:
    trace = _converted(_profile(every_ns=30), tmp_path)
    assert {attribution for _, _, attribution in _layers(trace)} == {"graph_replay"}


def test_device_time_is_conserved_where_it_is_told_whose_it_is(tmp_path: Path) -> None:
    certain, unsure = (_converted(_profile(kernels), tmp_path) for kernels in (_KERNELS, tuple(reversed(_KERNELS))))
    assert {attribution for _, _, attribution in _layers(unsure)} == {"graph_replay"}
    for trace in (certain, unsure):
        assert trace.frame("spans").filter(level="kernel")["duration_ns"].sum() == 10 * 60


_COMPILED = """
import sys, jax
import jax.numpy as jnp

def step(x, w):
    for _ in range(3):
        x = jnp.tanh(x @ w) + 1
    return x

x = jnp.ones((8, 8))
module = jax.jit(step).lower(x, x).compile().runtime_executable().hlo_modules()[0]
sys.stdout.buffer.write(module.as_serialized_hlo_module_proto())
"""


@pytest.mark.jax
def test_the_schedule_of_a_program_that_jax_compiled_is_read(tmp_path: Path) -> None:
    """XLA's own text of such a module lists its fusions in the order of the schedule."""
    command = [python_with("jax"), "-c", _COMPILED]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    module = subprocess.run(command, capture_output=True, check=True, timeout=300, env=environment, cwd=tmp_path).stdout
    fusions = (
        "ynn_fusion.2",
        "broadcast_add_fusion",
        "ynn_fusion.1",
        "tanh_add_fusion.1",
        "ynn_fusion",
        "tanh_add_fusion",
    )
    shared = {"ynn_fusion.1": "ynn_fusion_2", "ynn_fusion": "ynn_fusion_2", "tanh_add_fusion": "tanh_add_fusion_1"}
    kernels = [shared.get(name, name.replace(".", "_")) for name in fusions]
    assert all(name.encode() in module for name in fusions), "another XLA names its fusions otherwise: mend the test"
    work = _converted(_profile(kernels, proto=_bytes(1, module), launches=1), tmp_path)
    assert ledger_counts(work)["command_buffer_read"] == len(fusions)
    spans = work.frame("spans")["name"].cast(pl.String)
    assert spans.gather(work.frame("kernels")["captured_in_id"]).to_list() == list(fusions)
