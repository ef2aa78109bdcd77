"""Real XPlane profiles against what xprof prints of them, and a TensorFlow step seen by both of its profilers."""

from __future__ import annotations

import gzip
import json
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.answers.by_hand import xspace
from tests.helpers.frameworks import python_with
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import integrity

if TYPE_CHECKING:
    from xsp_model import Trace

_TENSORFLOW = "transformer_train_multiworker.v100.tf"
_JAX = ("gemm.mi300x.jax", "conv3d_8gpu.mi300x.jax")


@cache
def _trace(path: Path) -> Trace:
    return convert([path], Options())


def _read(real_dir: Path, name: str) -> Trace:
    return _trace(real_dir / "xplane" / f"{name}.xplane.pb")


def _reference(real_dir: Path, name: str, tool: str) -> pl.DataFrame:
    """The table of xprof: one row a row of it, columns by its ids."""
    file = real_dir / "reference" / "xprof" / f"{name}.{tool}.json.gz"
    content: Any = json.loads(gzip.decompress(file.read_bytes()))
    table = content[0] if isinstance(content, list) else content
    ids = [column["id"] for column in table["cols"]]
    rows = [{key: cell["v"] for key, cell in zip(ids, row["c"], strict=True)} for row in table["rows"]]
    return pl.DataFrame(rows) if rows else pl.DataFrame(schema=dict.fromkeys(ids, pl.String))


def _spans(trace: Trace) -> pl.DataFrame:
    return trace.frame("spans").with_columns(pl.col(pl.Categorical).cast(pl.String))


def _kernels(trace: Trace) -> pl.DataFrame:
    """One row a kernel with its framework operation: its layer where that is one."""
    layers = trace.frame("layers").select(pl.col("span_id").alias("layer_id"), pl.col("layer_name").cast(pl.String))
    kernels = _spans(trace).filter(pl.col("kind") == "kernel").join(layers, on="layer_id", how="left")
    return kernels.join(trace.frame("kernels"), on="span_id")


@pytest.mark.real
@pytest.mark.parametrize("name", [_TENSORFLOW, *_JAX])
def test_the_trace_is_sound(real_dir: Path, name: str) -> None:
    assert list(integrity.broken_rules(_read(real_dir, name))) == []


@pytest.mark.real
@pytest.mark.parametrize("name", [_TENSORFLOW, *_JAX])
def test_kernels_are_xprofs(real_dir: Path, name: str) -> None:
    """Names, sizes, counts, totals, extremes: to the ns, all rows of the table."""
    key = ["kernel_name", "registers_per_thread", "block_dim", "grid_dim"]
    size = {what: pl.concat_str([f"{what}_{axis}" for axis in "xyz"], separator=",") for what in ("grid", "block")}
    ours = (
        _kernels(_read(real_dir, name))
        .select(
            pl.col("name").alias("kernel_name"),
            pl.col("registers_per_thread").fill_null(0),
            size["block"].alias("block_dim"),
            size["grid"].alias("grid_dim"),
            "duration_ns",
        )
        .group_by(key)
        .agg(
            pl.len().cast(pl.Int64).alias("occurrences"),
            pl.col("duration_ns").sum().alias("total"),
            pl.col("duration_ns").min().alias("least"),
            pl.col("duration_ns").max().alias("most"),
        )
        .sort(key)
    )
    ns = {"total": "total_duration_us", "least": "min_duration_us", "most": "max_duration_us"}
    theirs = (
        _reference(real_dir, name, "kernel_stats")
        .select(*key, "occurrences", *((pl.col(us) * 1000).round().cast(pl.Int64).alias(new) for new, us in ns.items()))
        .with_columns(pl.col("registers_per_thread", "occurrences").cast(pl.Int64))
        .group_by(key)  # xprof parts them by operation as well
        .agg(pl.col("occurrences", "total").sum(), pl.col("least").min(), pl.col("most").max())
        .sort(key)
    )
    assert ours.rows() == theirs.rows()


@pytest.mark.real
def test_two_gpus_are_busy_with_kernels_of_operators(real_dir: Path) -> None:
    kernels = _kernels(_read(real_dir, _TENSORFLOW))
    busy = dict(kernels.group_by("device_id").len().sort("device_id").iter_rows())
    assert busy == {4: 665, 6: 665}
    assert set(kernels["attribution"]) == {"layer"}
    replicas = kernels.select(pl.col("layer_name").str.extract(r"^(replica_\d)/").alias("replica"), "device_id")
    assert set(replicas.drop_nulls().unique().rows()) == {("replica_4", 4), ("replica_6", 6)}


@pytest.mark.real
def test_derived_lines_are_not_summed(real_dir: Path) -> None:
    trace = _read(real_dir, _TENSORFLOW)
    device = _spans(trace).filter(pl.col("level") == "kernel")
    assert dict(device.group_by("kind").len().iter_rows()) == {"kernel": 1330, "memcpy": 226}


@pytest.mark.real
def test_framework_operators_are_xprofs(real_dir: Path) -> None:
    """On the host, all 499 rows it prints: totals to the ns. Operators that launched a kernel it counts twice."""
    spans = _spans(_read(real_dir, _TENSORFLOW))
    launches = spans.filter(pl.col("level") == "runtime", ~pl.col("name").str.starts_with("Memcpy"))
    ours = (
        spans.filter(pl.col("level") == "operator")
        .with_columns(launched=pl.col("span_id").is_in(launches["parent_id"].drop_nulls().unique().implode()))
        .group_by(pl.col("name").alias("operation"))
        .agg(pl.len().cast(pl.Int64).alias("count"), pl.col("duration_ns").sum(), pl.col("launched").any())
    )
    theirs = _reference(real_dir, _TENSORFLOW, "framework_op_stats").filter(
        pl.col("host_or_device") == "Host", pl.col("operation") != "IDLE"
    )
    both = theirs.join(ours, on="operation", how="left")
    assert both.height == 499
    assert both["duration_ns"].to_list() == (theirs["total_time"] * 1000).round().cast(pl.Int64).to_list()
    twice = both.filter(pl.col("occurrences") != pl.col("count"))
    assert twice["launched"].all()
    assert (twice["occurrences"] == 2 * twice["count"]).all()


@pytest.mark.real
@pytest.mark.parametrize("name", _JAX)
def test_device_time_by_instruction_is_xprofs(real_dir: Path, name: str) -> None:
    """Every row of xprof's HLO table, by program: its device time is that of the work under our operator."""
    trace = _read(real_dir, name)
    spans = _spans(trace)
    by_id = spans.select("span_id", "parent_id", "name", "level")
    work = spans.filter(pl.col("level") == "kernel").select("parent_id", "duration_ns")
    operator = work.join(
        by_id.rename({"span_id": "parent_id", "parent_id": "holder"}).drop("name", "level"), on="parent_id"
    )
    operator = operator.join(by_id.select(pl.col("span_id").alias("holder"), "name", "level"), on="holder")
    ours = (
        operator.filter(pl.col("level") == "operator")
        .group_by("name")
        .agg(pl.len().cast(pl.Int64), pl.col("duration_ns").sum())
    )
    theirs = (
        _reference(real_dir, name, "hlo_stats")
        .group_by(pl.col("hlo_op_name").alias("name"))
        .agg(pl.col("occurrences").sum().cast(pl.Int64), (pl.col("total_time") * 1000).sum().round().cast(pl.Int64))
    )
    assert sorted(ours.rows()) == sorted(theirs.rows())


@pytest.mark.real
@pytest.mark.parametrize("name", _JAX)
def test_device_time_by_framework_operation_is_xprofs(real_dir: Path, name: str) -> None:
    ours = (
        _kernels(_read(real_dir, name))
        .with_columns(pl.col("layer_name").str.replace(r"#\d+$", "").alias("operation"))
        .drop_nulls("operation")
        .group_by("operation")
        .agg(pl.col("duration_ns").sum())
    )
    theirs = (
        _reference(real_dir, name, "framework_op_stats")
        .filter(pl.col("host_or_device") == "Device", pl.col("operation") != "IDLE")
        .select("operation", (pl.col("total_time") * 1000).round().cast(pl.Int64))
    )
    assert sorted(ours.rows()) == sorted(theirs.rows())


def _work(trace: Trace) -> pl.DataFrame:
    """One row a run of an instruction whose work is known: name, input_shapes and a column a metric."""
    metrics = trace.frame("metrics").with_columns(pl.col("metric").cast(pl.String).str.strip_suffix("_bf16"))
    by_span = metrics.pivot("metric", index="span_id", values="value")
    operators = trace.frame("operators").select("span_id", "input_shapes")
    return by_span.join(_spans(trace), on="span_id").join(operators, on="span_id").sort("span_id")


@pytest.mark.real
@pytest.mark.parametrize("name", _JAX)
def test_work_of_instructions_is_xprofs(real_dir: Path, name: str) -> None:
    """Flop and bytes by instruction and program: what xprof's rates come to over the time they are taken over.

    It writes 0 for both of a call of cuBLAS, which it does not model.
    """
    second = pl.col("total_time") * 1e-6 / pl.col("occurrences")
    theirs = _reference(real_dir, name, "hlo_stats").select(
        pl.col("hlo_op_name").alias("name"),
        (pl.col("model_flop_rate") * 1e9 * second).alias("flop"),
        (pl.col("measured_memory_bw") * 1024**3 * second).alias("bytes"),
    )
    ours = _work(_read(real_dir, name)).select(
        "name",
        pl.col("modelled_flop").alias("flop"),
        (pl.col("modelled_read_bytes") + pl.col("modelled_written_bytes")).alias("bytes"),
    )
    expected, answered = (
        frame.filter(~pl.col("name").str.starts_with("custom-call")).group_by("name").agg(
            pl.col("flop", "bytes").unique().sort()
        ).sort("name")
        for frame in (theirs, ours)
    )  # fmt: skip
    assert answered["name"].to_list() == expected["name"].to_list()
    for column in ("flop", "bytes"):
        for mine, its in zip(answered[column].to_list(), expected[column].to_list(), strict=True):
            assert mine == pytest.approx(sorted(set(map(round, its))), rel=1e-4, abs=1)


@pytest.mark.real
def test_work_of_calls_of_cublas_is_of_their_sizes(real_dir: Path) -> None:
    """2 m n k, and 2 bytes for each element of the three: m, n and k as xprof prints the calls."""
    products = _work(_read(real_dir, "gemm.mi300x.jax")).filter(pl.col("name") == "custom-call.1")
    sizes = {(8192, 4096, 8192), (16384, 1024, 4096), (4096, 4096, 4096), (2048, 8192, 2048), (1024, 1024, 1024)}
    expected = {(f"[[{m}, {k}], [{k}, {n}]]", 2.0 * m * n * k, 2.0 * (m * k + k * n), 2.0 * m * n) for m, k, n in sizes}
    columns = ("input_shapes", "modelled_flop", "modelled_read_bytes", "modelled_written_bytes")
    assert products.height == 15
    assert set(products.select(columns).rows()) == expected


@pytest.mark.real
@pytest.mark.parametrize("name", _JAX)
def test_all_device_time_of_instructions_has_work(real_dir: Path, name: str) -> None:
    """What is left is copies of arguments before the program, and of results after it."""
    trace = _read(real_dir, name)
    spans = _spans(trace)
    launched_in = spans.select(pl.col("span_id").alias("parent_id"), pl.col("parent_id").alias("operator_id"))
    work = spans.filter(pl.col("level") == "kernel", pl.col("attribution") == "layer").join(launched_in, on="parent_id")
    assert work.height > 0
    assert work.join(_work(trace), left_on="operator_id", right_on="span_id", how="anti").height == 0


@pytest.mark.real
def test_operators_write_what_memory_was_made_for(real_dir: Path) -> None:
    """What was asked of the allocator inside each operator, read from the wire format alone; of 98 % of device time."""
    trace = _read(real_dir, _TENSORFLOW)
    (host,) = (p for p in xspace.read(real_dir / "xplane" / f"{_TENSORFLOW}.xplane.pb") if p.name == "/host:CPU")
    requested: dict[str, set[float]] = {}
    for event in (event for line in host.lines for event in line.events if event.stats.get("region_type") == "output"):
        requested.setdefault(event.stats["tf_op"], set()).add(float(event.stats["requested_bytes"]))
    work = _work(trace).filter(pl.col("name").is_in(list(requested)))
    assert work.height > 1000
    written = zip(work["name"], work["modelled_written_bytes"], strict=True)
    assert [name for name, bytes_ in written if bytes_ not in requested[name]] == []
    kernels = _spans(trace).filter(pl.col("level") == "kernel")
    operators = _work(trace).drop_nulls(["modelled_read_bytes", "modelled_written_bytes"])["span_id"]
    modelled = kernels.filter(pl.col("layer_id").is_in(operators.implode()))["duration_ns"]
    assert sum(modelled.to_list()) / sum(kernels["duration_ns"].to_list()) == pytest.approx(0.9844, abs=1e-4)


@pytest.mark.real
def test_calls_of_the_jitted_function_are_steps(real_dir: Path) -> None:
    steps = _spans(_read(real_dir, "conv3d_8gpu.mi300x.jax")).filter(pl.col("kind") == "step")
    assert steps["name"].unique().to_list() == ["PjitFunction(forward_3d_conv)"]
    assert steps["step"].to_list() == [0, 1, 2, 3, 4]


_ONLY_IN_THE_TIMELINE = {
    *("_SOURCE", "Const", "_arg_images_0_0", "_arg_labels_0_1", "_retval_loss_0_0", "GradientDescent"),
    *("GradientDescent/learning_rate", "gradients/cross_entropy/cross_entropy_grad/ExpandDims"),
}
"""Constants, arguments and what joins them: the profiler does not record nodes that it takes for cheap."""


def _same_step(profile: Trace, timeline: Trace) -> pl.DataFrame:
    """The 16 operators of both in the profile's order, with both times, after a check that they are the same."""
    ours, theirs = (
        _spans(trace)
        .filter(pl.col("level") == "operator")
        .join(trace.frame("layers").select("span_id", "layer_type"), on="span_id", how="left")
        .with_columns(pl.col("layer_type").cast(pl.String))
        .select(
            "name",
            "layer_type",
            "duration_ns",
            (pl.col("start_ns") + trace.frame("runs")["epoch_ns"][0]).alias("unix_ns"),
        )
        .sort("unix_ns")
        for trace in (profile, timeline)
    )
    both = ours.join(theirs, on="name", how="left", suffix="_timeline", maintain_order="left")
    assert both.height == 16
    assert both["duration_ns_timeline"].null_count() == 0
    assert set(theirs["name"]) - set(ours["name"]) == _ONLY_IN_THE_TIMELINE
    typed = both.drop_nulls(["layer_type", "layer_type_timeline"])
    assert typed.height >= 15
    assert typed["layer_type"].to_list() == typed["layer_type_timeline"].to_list()
    return both


def test_a_step_as_profile_and_as_timeline_is_the_same(fixtures_dir: Path) -> None:
    """The timeline's operators are around the profile's, within its resolution, a microsecond at each end."""
    both = _same_step(
        _trace(fixtures_dir / "xplane" / "tensorflow_train_cpu" / "step.xplane.pb"),
        _trace(fixtures_dir / "tf_timeline" / "tensorflow_train_cpu" / "timeline.json"),
    )
    assert (both["duration_ns_timeline"] - both["duration_ns"]).is_between(0, 2_000).all()
    assert (both["unix_ns"] - both["unix_ns_timeline"]).is_between(0, 2_000).all()
    assert both["unix_ns_timeline"].is_sorted()


@pytest.mark.tensorflow
def test_a_step_that_was_just_run_is_the_same_as_profile_and_as_timeline(tmp_path: Path) -> None:
    """Names and types; times only within a step, as a busy machine reads the two clocks at any distance."""
    program = Path(__file__).resolve().parents[3] / "fixtures" / "make" / "tensorflow_program.py"
    subprocess.run([python_with("tensorflow"), str(program), str(tmp_path)], check=True, capture_output=True)
    (profile,) = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    both = _same_step(_trace(profile), _trace(tmp_path / "timeline.json"))
    for beyond in (both["duration_ns_timeline"] - both["duration_ns"], both["unix_ns"] - both["unix_ns_timeline"]):
        assert (beyond.abs() < 10**9).all(), beyond
