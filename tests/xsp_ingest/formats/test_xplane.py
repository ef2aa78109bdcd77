"""XPlane profiles: what their planes become, on profiles built from literals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.linked import ledger_counts, named
from tests.helpers.synth_xplane import Profile
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.xplane import XPLANE
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace

_DETAILS = "regs:38 static_shared:1024 dynamic_shared:256 grid:160,2,1 block:1024,1,1 occ_pct:50"


def _converted(profile: Profile, folder: Path, **options: object) -> Trace:
    return convert([profile.write(folder / "host.xplane.pb")], Options(**options))  # type: ignore[arg-type]


def _tensorflow() -> Profile:
    """An operator with a launch inside, and its kernel."""
    profile = Profile()
    host = profile.plane("/host:CPU")
    executor = host.line(7, "tf_Compute/7", 1_000)
    host.event(executor, "dense/MatMul:MatMul", 100, 50, display="MatMul", shape="(float32[8,16];float32[16,4])")
    host.event(executor, "cuLaunchKernel", 110, 5, correlation_id=3, context_id="$$5")
    gpu = profile.plane("/device:GPU:1", clock_rate=1_530_000, core_count=80, compute_cap_major=7, compute_cap_minor=0)
    stream = gpu.line(14, "Stream #14(Compute)", 2_000)
    gpu.event(stream, "gemm", 10, 40, correlation_id=3, kernel_details=f"&{_DETAILS}", context_id="$$5")
    return profile


def test_a_kernel_hangs_under_its_launch_and_operator(tmp_path: Path) -> None:
    spans = named(_converted(_tensorflow(), tmp_path))
    kernel = spans["gemm"]
    assert (kernel["parent"], kernel["layer"]) == ("cuLaunchKernel", "dense/MatMul")
    assert spans["cuLaunchKernel"]["parent"] == "dense/MatMul"
    assert (kernel["start_ns"], kernel["duration_ns"]) == (2_010 - 1_100, 40)
    assert (kernel["device_id"], kernel["stream_id"], kernel["context_id"]) == (1, 14, 5)
    assert kernel["attribution"] == "layer"


def test_details_become_launch_facts(tmp_path: Path) -> None:
    (kernel,) = _converted(_tensorflow(), tmp_path).frame("kernels").to_dicts()
    assert [kernel[f"grid_{axis}"] for axis in "xyz"] == [160, 2, 1]
    assert [kernel[f"block_{axis}"] for axis in "xyz"] == [1024, 1, 1]
    assert kernel["registers_per_thread"] == 38
    assert (kernel["static_shared_bytes"], kernel["dynamic_shared_bytes"], kernel["shared_bytes"]) == (1024, 256, 1280)


def test_an_operator_is_a_layer_by_its_node_and_type(tmp_path: Path) -> None:
    (layer,) = _converted(_tensorflow(), tmp_path).frame("layers").to_dicts()
    assert (layer["layer_name"], layer["layer_type"]) == ("dense/MatMul", "MatMul")
    assert json.loads(layer["shapes"]) == [[8, 16], [16, 4]]
    assert json.loads(layer["dtypes"]) == ["float32", "float32"]


def test_a_device_is_described_by_its_plane(tmp_path: Path) -> None:
    (device,) = _converted(_tensorflow(), tmp_path).frame("devices").to_dicts()
    assert (device["device_id"], device["multiprocessor_count"]) == (1, 80)
    assert (device["clock_hz"], device["compute_capability"]) == (1_530_000_000, "7.0")


def test_picoseconds_are_cut_to_whole_nanoseconds(tmp_path: Path) -> None:
    profile = Profile()
    host = profile.plane("/host:CPU")
    line = host.line(1, "tf_Compute/1")
    host.event(line, "a:A", 0, 1)
    event = host.event(line, "b:B", 0, 0)
    event.offset_ps, event.duration_ps = 12_999, 7_999
    spans = named(_converted(profile, tmp_path))
    assert (spans["b"]["start_ns"], spans["b"]["duration_ns"]) == (12, 7)


def test_the_start_of_the_profile_is_the_epoch(tmp_path: Path) -> None:
    profile = _tensorflow()
    profile.plane("Task Environment", profile_start_time=1_700_000_000_000_000_000)
    (run,) = _converted(profile, tmp_path).frame("runs").to_dicts()
    assert run["epoch_ns"] == 1_700_000_000_000_001_100
    assert run["clock_origin_ns"] == 1_100


def test_times_that_count_from_1970_are_their_own_epoch(tmp_path: Path) -> None:
    profile = Profile()
    host = profile.plane("/host:CPU")
    host.event(host.line(1, "tf_Compute/1", 1_600_000_000_000_000_000), "a:A", 5, 1)
    (run,) = _converted(profile, tmp_path).frame("runs").to_dicts()
    assert run["epoch_ns"] == 1_600_000_000_000_000_005


def test_derived_lines_are_counted_and_not_summed(tmp_path: Path) -> None:
    profile = _tensorflow()
    gpu = profile.space.planes[1]
    for name in ("TensorFlow Ops", "XLA Modules", "Framework Ops"):
        line = gpu.lines.add(id=99, name=name, timestamp_ns=2_000)
        line.events.add(metadata_id=1, offset_ps=10_000, duration_ps=40_000)
    trace = _converted(profile, tmp_path)
    device = trace.frame("spans").filter(level="kernel")
    assert device["duration_ns"].to_list() == [40]
    assert ledger_counts(trace)["events_left_out"] == 3


def test_marked_steps_keep_their_numbers(tmp_path: Path) -> None:
    profile = Profile()
    host = profile.plane("/host:CPU")
    python, pool = host.line(1, "python"), host.line(2, "tf_Compute/2")
    for step in (5, 6):
        host.event(python, "train", 1_000 * step, 800, step_num=step, _r=1)
        host.event(pool, f"op{step}:MatMul", 1_000 * step + 100, 50)
    spans = named(_converted(profile, tmp_path))
    assert (spans["op5"]["step"], spans["op6"]["step"]) == (5, 6)
    assert spans["op6"]["parent"] == "train#6"


def test_the_users_range_is_a_step(tmp_path: Path) -> None:
    profile = Profile()
    host = profile.plane("/host:CPU")
    line = host.line(1, "python")
    host.event(line, "my batch", 0, 500)
    host.event(line, "a:A", 10, 20)
    spans = named(_converted(profile, tmp_path, model_ranges=("^my batch$",)))
    assert (spans["my batch"]["level"], spans["a"]["step"]) == ("model", 0)


def test_groups_of_the_profiler_are_steps_where_none_were_marked(tmp_path: Path) -> None:
    profile = Profile()
    host = profile.plane("/host:CPU")
    executor = host.line(1, "tf_Compute/1")
    gpu = profile.plane("/device:GPU:0")
    steps = gpu.line(-3, "Steps")
    for group in (0, 1):
        host.event(executor, f"op{group}:MatMul", 1_000 * group + 50, 100, group_id=group)
        gpu.event(steps, str(group), 1_000 * group + 100, 300, group_id=group, step_name=str(group))
    trace = _converted(profile, tmp_path)
    spans = named(trace)
    assert (spans["Step 0"]["start_ns"], spans["Step 0"]["duration_ns"]) == (0, 350)
    assert (spans["op0"]["step"], spans["op1"]["step"]) == (0, 1)
    assert ledger_counts(trace)["steps_inferred"] == 2


def _program(profile: Profile) -> None:
    """A run of a compiled program on the host, and its work on a device; calls are on a line of their own."""
    host = profile.plane("/host:CPU")
    thread, calls = host.line(9, "py_xla_execute/9"), host.line(500, "Host Threads/500")
    host.event(thread, "jit_step:XLA GPU module", 100, 400)
    host.event(thread, "fusion.1", 110, 100)
    host.event(thread, "dot.2", 220, 50)
    gpu = profile.plane("/device:GPU:0")
    stream = gpu.line(7, "Stream #7(Kernel)")
    for number, op in enumerate(("fusion.1", "dot.2")):
        stats = {"hlo_op": f"&{op}", "hlo_module": "&jit_step", "program_id": 4, "name": "&jit(step)/dense/dot_general"}
        host.event(calls, f"launch{number}", 120 + 110 * number, 10, correlation_id=number, **stats)
        gpu.event(
            stream,
            f"kernel{number}",
            600 + 100 * number,
            60,
            correlation_id=number,
            kernel_details="&grid:1,1,1",
            **stats,
        )


def test_instructions_lie_in_their_framework_operation_and_program(tmp_path: Path) -> None:
    profile = Profile()
    _program(profile)
    spans = named(_converted(profile, tmp_path))
    assert spans["kernel0"]["parent"] == "launch0"
    assert spans["launch0"]["parent"] == "fusion.1"
    assert spans["fusion.1"]["parent"] == "jit(step)/dense/dot_general"
    assert spans["jit(step)/dense/dot_general"]["parent"] == "jit_step"
    assert spans["kernel1"]["layer"] == "jit(step)/dense/dot_general"
    assert spans["launch1"]["thread_id"] == 9
    assert spans["jit_step"]["level"] == "model"


def test_a_framework_operations_type_is_its_last_name(tmp_path: Path) -> None:
    profile = Profile()
    _program(profile)
    (layer,) = _converted(profile, tmp_path).frame("layers").to_dicts()
    assert (layer["layer_name"], layer["layer_type"]) == ("jit(step)/dense/dot_general", "dot_general")


def test_calls_without_a_thunk_get_an_operator_around_them(tmp_path: Path) -> None:
    profile = Profile()
    host = profile.plane("/host:CPU")
    calls = host.line(500, "Host Threads/500")
    for number, op in enumerate(("copy.1", "copy.1", "dot.2")):
        host.event(
            calls, f"launch{number}", 100 * number, 10, correlation_id=number, hlo_op=f"&{op}", hlo_module="&jit_f"
        )
    spans = named(_converted(profile, tmp_path))
    assert (spans["copy.1"]["start_ns"], spans["copy.1"]["duration_ns"]) == (0, 110)
    assert [spans[f"launch{n}"]["parent"] for n in range(3)] == ["copy.1", "copy.1", "dot.2"]


def test_work_without_a_launch_belongs_to_the_operator_it_names(tmp_path: Path) -> None:
    profile = Profile()
    gpu = profile.plane("/device:GPU:2")
    stream = gpu.line(7, "Stream #7(Kernel)")
    stats = {"hlo_op": "&dot.2", "hlo_module": "&jit_f", "name": "&jit(f)/dot_general", "kernel_details": "&grid:1,1,1"}
    gpu.event(stream, "first", 100, 50, correlation_id=8, **stats)
    gpu.event(stream, "second", 160, 50, correlation_id=9, **stats)
    gpu.event(stream, "stray", 300, 50, correlation_id=10, kernel_details="&grid:1,1,1")
    spans = named(_converted(profile, tmp_path))
    assert (spans["first"]["parent"], spans["second"]["parent"]) == ("dot.2", "dot.2")
    assert (spans["second"]["layer"], spans["second"]["attribution"]) == ("jit(f)/dot_general", "layer")
    assert (spans["dot.2"]["start_ns"], spans["dot.2"]["duration_ns"]) == (0, 110)
    assert spans["stray"]["attribution"] == "orphan_no_launch"


def test_gradients_are_backward(tmp_path: Path) -> None:
    profile = Profile()
    host = profile.plane("/host:CPU")
    line = host.line(1, "tf_Compute/1")
    names = ("dense/MatMul", "gradients/dense/MatMul_grad/MatMul", "gradient_tape/dense/MatMul")
    for number, name in enumerate(names):
        host.event(line, f"{name}:MatMul", 100 * number, 50)
    spans = named(_converted(profile, tmp_path))
    assert [spans[name]["phase"] for name in names] == ["other", "backward", "backward"]


def test_what_xla_models_is_no_measurement(tmp_path: Path) -> None:
    profile = Profile()
    host = profile.plane("/host:CPU")
    stats = {"hlo_op": "&dot.2", "hlo_module": "&jit_f", "flops": 4096, "bytes_accessed": 512.0}
    host.event(host.line(1, "tf_XLA/1"), "dot.2", 0, 50, **stats)
    metrics = _converted(profile, tmp_path).frame("metrics").to_dicts()
    assert [(m["metric"], m["value"], m["unit"], m["source"]) for m in metrics] == [
        ("modelled_bytes", 512.0, "byte", "modelled by XLA"),
        ("modelled_flop", 4096.0, "flop", "modelled by XLA"),
    ]


def test_what_tensorflows_operators_do_follows_from_what_they_take_and_make(tmp_path: Path) -> None:
    """A conversion to half precision, whose result only the allocator saw; an allocation outside is of neither."""
    profile = Profile()
    host = profile.plane("/host:CPU")
    line = host.line(1, "tf_Compute/1")
    memory = {"allocation_bytes": 256, "bytes_allocated": 256, "region_type": "output", "data_type": 19}
    host.event(line, "net/Cast:Cast", 0, 50, shape="(float[8,4])")
    host.event(line, "MemoryAllocation", 10, 0, tf_op="net/Cast", shape="[8,4]", **memory)
    host.event(line, "MemoryAllocation", 60, 0, tf_op="net/Cast", shape="[9,9]", **memory)
    host.event(line, "net/MatMul:MatMul", 100, 50, shape="(half[8,4];half[4,2])")
    trace = _converted(profile, tmp_path)
    names = trace.frame("spans").select("span_id", pl.col("name").cast(pl.String))
    rows = trace.frame("metrics").join(names, on="span_id").select("name", pl.col("metric").cast(pl.String), "value")
    assert rows.rows() == [
        ("net/Cast", "modelled_flop", 0.0),
        ("net/Cast", "modelled_read_bytes", 128.0),
        ("net/Cast", "modelled_written_bytes", 64.0),
        ("net/MatMul", "modelled_flop_fp16", 128.0),
        ("net/MatMul", "modelled_read_bytes", 80.0),
        ("net/MatMul", "modelled_written_bytes", 32.0),
    ]


def test_allocations_become_memory_in_use(tmp_path: Path) -> None:
    profile = Profile()
    host = profile.plane("/host:CPU")
    line = host.line(1, "tf_Compute/1")
    host.event(line, "a:A", 0, 100)
    for time, name, allocator, in_use in (
        (10, "MemoryAllocation", "GPU_3_bfc", 300),
        (20, "MemoryDeallocation", "GPU_3_bfc", 100),
        (30, "MemoryAllocation", "gpu_host_bfc", 50),
    ):
        host.event(
            line,
            name,
            time,
            0,
            allocator_name=allocator,
            allocation_bytes=200,
            bytes_allocated=in_use,
            bytes_reserved=0,
        )
    trace = _converted(profile, tmp_path)
    counters = trace.frame("counters").sort("time_ns").select("time_ns", "device_id", "value").rows()
    assert counters == [(10, 3, 300.0), (20, 3, 100.0), (30, None, 50.0)]
    assert trace.frame("layers")["allocated_bytes"].to_list() == [200]


def test_copies_and_fills_have_kinds_and_bytes(tmp_path: Path) -> None:
    profile = Profile()
    gpu = profile.plane("/device:GPU:0")
    stream = gpu.line(7, "Stream #7(MemcpyH2D,Memset)")
    copy = "kind_src:pageable kind_dst:device size:4096 dest:0 async:1"
    gpu.event(stream, "MemcpyH2D", 0, 10, correlation_id=1, memcpy_details=copy)
    gpu.event(stream, "Memset", 20, 10, correlation_id=2, memset_details="kind:device num_bytes:64 async:1")
    trace = _converted(profile, tmp_path)
    assert trace.frame("spans").select("kind").to_series().to_list() == ["memcpy", "memset"]
    copies = trace.frame("copies").select("bytes", "copy_kind", "source_kind", "destination_kind").rows()
    assert copies == [(4096, "Host-to-Device", "Pageable", "Device"), (64, None, None, "Device")]


def test_what_may_run_on_a_stream_does_not_say_what_an_event_is(tmp_path: Path) -> None:
    profile = Profile()
    gpu = profile.plane("/device:GPU:0")
    mixed, copies = gpu.line(7, "Stream #7(MemcpyD2H,Compute,Memset)"), gpu.line(8, "Stream #8(MemcpyD2H,Memset)")
    gpu.event(mixed, "loop_add_fusion", 0, 10, hlo_op="loop_add_fusion")
    gpu.event(mixed, "custom", 20, 10)
    gpu.event(mixed, "MemcpyD2H", 40, 10)
    gpu.event(copies, "unnamed", 60, 10)
    spans = _converted(profile, tmp_path).frame("spans")
    kinds = spans.filter(pl.col("level") == "kernel").sort("start_ns")["kind"].to_list()
    assert kinds == ["kernel", "kernel", "memcpy", "memcpy"]


def test_events_that_are_not_kept_are_counted(tmp_path: Path) -> None:
    profile = _tensorflow()
    host = profile.plane("/host:CPU")
    line = host.line(3, "python")
    for name in ("$train.py:5 step", "end: dot.2", "ThreadpoolListener::Record"):
        host.event(line, name, 5, 0)
    counts = ledger_counts(_converted(profile, tmp_path))
    assert (counts["python_frames_left_out"], counts["events_left_out"]) == (1, 2)


def test_what_the_profiler_complained_of_is_told_without_its_words(tmp_path: Path) -> None:
    profile = _tensorflow()
    profile.space.errors.append("CUPTI failed on planted-host-name")
    trace = _converted(profile, tmp_path)
    assert ledger_counts(trace)["profiler_diagnostic"] == 1
    assert "planted" not in str(trace.frame("ledger").to_dicts())


def test_a_log_folder_stands_for_its_profiles(tmp_path: Path) -> None:
    session = tmp_path / "logs" / "plugins" / "profile" / "2026_11_20"
    session.mkdir(parents=True)
    for name in ("a", "b"):
        profile = _tensorflow()
        profile.space.hostnames.append(name)
        profile.write(session / f"{name}.xplane.pb")
    (session / "a.trace.json.gz").write_bytes(b"\x1f\x8b\x08")
    for folder in (tmp_path / "logs", session.parent, session):
        runs = convert([folder], Options()).frame("runs")
        assert runs["source_path"].to_list() == ["a.xplane.pb", "b.xplane.pb"]


def test_of_several_sessions_the_user_must_choose(tmp_path: Path) -> None:
    for name in ("1", "2"):
        session = tmp_path / "plugins" / "profile" / name
        session.mkdir(parents=True)
        _tensorflow().write(session / "a.xplane.pb")
    with pytest.raises(XspError, match="holds 2 profiling sessions"):
        convert([tmp_path], Options())


@pytest.mark.parametrize("content", [b"", b"\n", b"\n\x05hello", b"\n\x03\x12\x01x", b"\x0a" * 40, b"{}", b"\x00" * 99])
def test_what_is_no_profile_is_not_claimed(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(content)
    assert not XPLANE.sniff(Probe(tmp_path / "f"))


@pytest.mark.slow
def test_a_profile_cut_anywhere_is_refused(tmp_path: Path) -> None:
    content = _tensorflow().to_bytes()
    planes = Profile()
    planes.space.planes.add().CopyFrom(_tensorflow().space.planes[0])
    boundary = len(planes.to_bytes())  # here the file ends between two planes: it is whole, and lacks one
    for length in range(30, len(content) - 1):
        if length == boundary:
            continue
        (tmp_path / "f.xplane.pb").write_bytes(content[:length])
        with pytest.raises(XspError, match=r"^[^\n]*cut off[^\n]*$"):
            convert([tmp_path / "f.xplane.pb"], Options())
