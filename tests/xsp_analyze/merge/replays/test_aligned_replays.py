"""Replayed kernels get the layers of a run without graphs, and only where these are sure; worked out on paper.

KERNELS: gemm 1 000 and bias 300 in Linear_0, gemm 1 200 in Linear_1 (same name and grid), relu 400 in ReLU_0; three
steps, so device time is 3 900 in Linear_0, 3 600 in Linear_1, 1 200 in ReLU_0: 8 700 in all.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.replays import KERNELS, DeviceKernel, eager_run, replayed_run
from tests.helpers.run_sets import merged, write_run
from xsp.cli.main import main
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.trace.step_view import StepView
from xsp_model import bundle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.helpers.synth import KinetoTrace
    from xsp_model import Trace

_FACTS: dict[str, Any] = {"batch_size": 4, "device": {"name": "GPU on paper"}}
_REPLAYED_NS = 8_700
_IN_LAYERS = {"Linear_0": 3_900, "Linear_1": 3_600, "ReLU_0": 1_200}


def _profile(folder: Path, replayed: KinetoTrace, eager: KinetoTrace, **more: object) -> Trace:
    write_run(folder / "graphs", "MLG", replayed, serialized=False, **_FACTS)
    write_run(folder / "no-graphs", "MLG", eager, **{"serialized": False, **_FACTS, **more})
    return merged(folder)


def _work(profile: Trace) -> pl.DataFrame:
    """Replayed work with the names of its layer and of the operator that launched its counterpart."""
    spans = profile.frame("spans").with_columns(pl.col("name").cast(pl.String))
    names = profile.frame("layers").select(pl.col("span_id").alias("layer_id"), pl.col("layer_name").cast(pl.String))
    launches = spans.select(pl.col("span_id").alias("captured_in_id"), pl.col("parent_id").alias("operator_id"))
    operators = spans.select(pl.col("span_id").alias("operator_id"), pl.col("name").alias("operator"))
    graph = spans.filter(pl.col("name") == "cudaGraphLaunch")["span_id"]
    return (
        spans.filter(pl.col("parent_id").is_in(graph.implode()))
        .with_columns(pl.col("attribution", "phase").cast(pl.String))
        .join(names, on="layer_id", how="left", maintain_order="left")
        .join(
            profile.frame("kernels").select("span_id", "captured_in_id"),
            on="span_id",
            how="left",
            maintain_order="left",
        )
        .join(launches, on="captured_in_id", how="left", maintain_order="left")
        .join(operators, on="operator_id", how="left", maintain_order="left")
    )


def _time_by_layer(profile: Trace) -> dict[str | None, int]:
    sums = _work(profile).group_by("layer_name").agg(pl.col("duration_ns").sum())
    return dict(sums.iter_rows())


def _ledger(profile: Trace, kind: str) -> list[tuple[int, int, str]]:
    return profile.frame("ledger").filter(pl.col("kind") == kind).select("count", "duration_ns", "detail").rows()


def _conserved(profile: Trace, total_ns: int) -> bool:
    """Whether aligned and not aligned work is all replayed work, each counted once."""
    rows = [*_ledger(profile, "graph_aligned"), *_ledger(profile, "graph_not_aligned")]
    return sum(duration for _, duration, _ in rows) == total_ns


def test_each_kernel_has_the_layer_operator_and_phase_of_its_counterpart(tmp_path: Path) -> None:
    work = _work(_profile(tmp_path, replayed_run(), eager_run()))
    expected = [("gemm", "Linear_0"), ("bias", "Linear_0"), ("gemm", "Linear_1"), ("relu", "ReLU_0")]
    assert work.select("name", "layer_name").rows() == expected * 3
    assert work["operator"].to_list() == [f"aten::{layer.lower()}" for _, layer in expected] * 3
    assert set(work["attribution"]) == {"layer"}
    assert set(work["phase"]) == {"forward"}


def test_the_trace_says_how_it_is_known(tmp_path: Path) -> None:
    profile = _profile(tmp_path, replayed_run(), eager_run())
    rows = profile.frame("attributions").with_columns(pl.col("basis").cast(pl.String))
    assert rows.select("span_id", "layer_id").rows() == _work(profile).select("span_id", "layer_id").rows()
    assert rows.select("weight", "basis").unique().rows() == [(1.0, "aligned")]
    ((count, duration, detail),) = _ledger(profile, "graph_aligned")
    assert (count, duration) == (12, _REPLAYED_NS)
    assert detail == (
        "replayed work of the kernels run (graphs/trace.json.gz) has the layers of the same work in the kernels run "
        "(no-graphs/trace.json.gz), by name, grid and block and order in its step"
    )
    assert not _ledger(profile, "graph_not_aligned")


def test_times_are_of_the_replay_and_never_of_the_run_without_graphs(tmp_path: Path) -> None:
    view = StepView.of(_profile(tmp_path, replayed_run(), eager_run()))
    by_layer = run(find("A11"), view).table
    assert by_layer.select("layer_name", "layer_latency_ns", "kernel_duration_ns").rows() == [
        ("Linear_0", 1_300.0, 1_300.0), ("Linear_1", 1_200.0, 1_200.0), ("ReLU_0", 400.0, 400.0)]  # fmt: skip
    assert run(find("A15"), view).table["model_latency_ns"].to_list() == [60_000.0]


def test_model_latency_is_of_the_replay_where_another_run_has_layers(tmp_path: Path) -> None:
    write_run(tmp_path / "m", "M", step_durations_ns=[50_000, 50_000, 50_000], **_FACTS)
    view = StepView.of(_profile(tmp_path, replayed_run(), eager_run()))
    assert run(find("A15"), view).table["model_latency_ns"].to_list() == [50_000.0]
    overhead = run(find("B02"), view).table.select("level", "scope", "baseline_ns", "measured_ns").rows()
    assert overhead == [("total", "model", 50_000.0, 60_000.0)]


def test_a_serialised_run_tells_the_layers_as_well(tmp_path: Path) -> None:
    profile = _profile(tmp_path, replayed_run(), eager_run(), serialized=True)
    assert _time_by_layer(profile) == _IN_LAYERS
    assert profile.frame("runs")["role"].to_list() == ["kernels", "kernels, eager"]


def test_a_run_of_layers_gives_its_identities(tmp_path: Path) -> None:
    write_run(tmp_path / "layers", "ML", eager_run(), serialized=True, **_FACTS)
    profile = _profile(tmp_path, replayed_run(), eager_run())
    assert _time_by_layer(profile) == _IN_LAYERS
    assert profile.frame("runs")["role"].to_list() == ["layers", "kernels", "kernels, eager"]
    by_layer = run(find("A11"), StepView.of(profile)).table
    assert by_layer["layer_latency_ns"].to_list() == [29_000.0] * 3  # of the run that waits for the device


def _long(count: int = 40) -> list[DeviceKernel]:
    """As many kernels, each of a name of its own, in modules of two."""
    return [DeviceKernel(f"kernel_{n}", f"Linear_{n // 2}", 4, 100) for n in range(count)]


def test_a_kernel_without_a_counterpart_stays_a_replay_and_is_counted(tmp_path: Path) -> None:
    kernels = _long()
    profile = _profile(tmp_path, replayed_run(kernels), eager_run([k for k in kernels if k.name != "kernel_7"]))
    left = _work(profile).filter(pl.col("layer_name").is_null())
    assert left.select("name", "attribution").rows() == [("kernel_7", "graph_replay")] * 3
    ((count, duration, detail),) = _ledger(profile, "graph_not_aligned")
    assert (count, duration) == (3, 300)
    assert detail == "replayed work without a counterpart in the kernels run (no-graphs/trace.json.gz)"
    assert _conserved(profile, 12_000)


def test_a_kernel_that_may_be_of_two_layers_stays_a_replay(tmp_path: Path) -> None:
    """Of the kernels `same` of Linear_2 and Linear_3 the graph has one: nothing says whose."""
    kernels = _long()
    same = [k._replace(name="same") if n in {5, 6} else k for n, k in enumerate(kernels)]
    profile = _profile(tmp_path, replayed_run([*same[:6], *same[7:]]), eager_run(same))
    assert set(_work(profile).filter(pl.col("layer_name").is_null())["name"]) == {"same"}
    ((count, duration, detail),) = _ledger(profile, "graph_not_aligned")
    assert (count, duration) == (3, 300)
    assert detail == "replayed work that may be of several layers in the kernels run (no-graphs/trace.json.gz)"


def test_under_the_match_rate_nothing_is_given_and_a_sentence_says_why(tmp_path: Path) -> None:
    other = [kernel._replace(name=f"other_{n}") if n % 2 else kernel for n, kernel in enumerate(KERNELS)]
    profile = _profile(tmp_path, replayed_run(), eager_run(other))
    assert _time_by_layer(profile) == {None: _REPLAYED_NS}
    assert not profile.frame("attributions").height
    ((count, duration, detail),) = _ledger(profile, "graph_not_aligned")
    assert (count, duration) == (12, _REPLAYED_NS)
    assert detail == (
        "steps of the kernels run (graphs/trace.json.gz) were given no layers, as their work and that of the kernels "
        "run (no-graphs/trace.json.gz) match at 0.500, less than 0.95: at 0: Memcpy HtoD (Pinned -> Device) against "
        "nothing; at 2: bias against other_1; at 4: relu against other_3"
    )


def test_another_grid_is_another_kernel(tmp_path: Path) -> None:
    bigger = [kernel._replace(grid=2 * kernel.grid) for kernel in KERNELS]
    profile = _profile(tmp_path, replayed_run(), eager_run(bigger))
    assert _time_by_layer(profile) == {None: _REPLAYED_NS}


def test_grids_count_only_where_both_runs_have_them(tmp_path: Path) -> None:
    replayed = replayed_run()
    for event in replayed.events:
        arguments = event.get("args")
        if event.get("cat") == "kernel" and isinstance(arguments, dict):
            del arguments["grid"], arguments["block"]
    profile = _profile(tmp_path, replayed, eager_run())
    assert _time_by_layer(profile) == _IN_LAYERS
    assert _ledger(profile, "graph_aligned")[0][2].endswith("by name and order in its step")


def _two_streams() -> list[DeviceKernel]:
    """Two branches with kernels of the same names, on a stream each."""
    names = [f"kernel_{n}" for n in range(4)]
    left = [DeviceKernel(name, "Linear_0", 4, 5_000, 7) for name in names]
    return [*left, *(DeviceKernel(name, "Linear_1", 4, 3_000, 9) for name in [*names, "last"])]


def test_work_of_streams_side_by_side_is_in_order_within_each(tmp_path: Path) -> None:
    branches = _two_streams()
    profile = _profile(tmp_path, replayed_run(branches, concurrent=True), eager_run(branches, concurrent=True))
    assert _time_by_layer(profile) == {"Linear_0": 3 * 20_000, "Linear_1": 3 * 15_000}


def test_streams_of_the_same_work_in_other_layers_are_not_told_apart(tmp_path: Path) -> None:
    branches = _two_streams()[:-1]
    profile = _profile(tmp_path, replayed_run(branches, concurrent=True), eager_run(branches, concurrent=True))
    assert _time_by_layer(profile) == {None: 3 * 32_000}
    assert "several layers" in _ledger(profile, "graph_not_aligned")[0][2]


def test_one_chain_on_several_streams_is_one_order(tmp_path: Path) -> None:
    """Some profilers spread the nodes of a graph over streams although they ran one after the other."""
    spread = [kernel._replace(stream_id=20 + n) for n, kernel in enumerate(KERNELS)]
    assert _time_by_layer(_profile(tmp_path, replayed_run(spread), eager_run())) == _IN_LAYERS


def test_without_steps_a_graph_is_looked_for_in_the_other_run(tmp_path: Path) -> None:
    profile = _profile(tmp_path, replayed_run(marked=False), eager_run(marked=False, steps=5))
    assert _time_by_layer(profile) == _IN_LAYERS
    assert _ledger(profile, "graph_aligned")[0][2].endswith("order in its graph")


def test_without_steps_a_layer_takes_what_its_work_takes_and_not_the_time_between_replays(tmp_path: Path) -> None:
    profile = _profile(tmp_path, replayed_run(marked=False), eager_run(steps=5))
    table = run(find("A11"), StepView.of(profile, steps="all")).table
    assert dict(table.select("layer_name", "layer_latency_ns").rows()) == _IN_LAYERS


def test_a_graph_that_the_run_has_in_several_layers_stays_a_replay(tmp_path: Path) -> None:
    only_gemm = [KERNELS[0]]
    profile = _profile(tmp_path, replayed_run(only_gemm, marked=False), eager_run(marked=False))
    assert _time_by_layer(profile) == {None: 3_000}
    assert "several layers" in _ledger(profile, "graph_not_aligned")[0][2]


def test_a_graph_that_the_run_does_not_have_stays_a_replay(tmp_path: Path) -> None:
    profile = _profile(tmp_path, replayed_run(marked=False), eager_run(KERNELS[:3], marked=False))
    assert _time_by_layer(profile) == {None: _REPLAYED_NS}
    ((count, _, detail),) = _ledger(profile, "graph_not_aligned")
    assert count == 12
    assert "nowhere has, in this order, gemm, bias, gemm ..." in detail


def test_copies_and_fills_in_a_graph_count_too(tmp_path: Path) -> None:
    replayed, eager = replayed_run(copied=False), eager_run()
    for step in range(3):
        start = 240_000 * step
        eager.memset(start + 20_000, start + 100_000, 600, size=64)
        launch = [event for event in replayed.events if event["name"] == "cudaGraphLaunch"][step]
        arguments = launch["args"]
        assert isinstance(arguments, dict)
        replayed.device("gpu_memset", "Memset (Device)", step * 100_000 + 40_000, 300,
                        correlation=arguments["correlation"], args={"bytes": 64})  # fmt: skip
    times = _time_by_layer(_profile(tmp_path, replayed, eager))
    assert times == {**_IN_LAYERS, "Linear_0": 3_900 + 3 * 300}


def test_work_of_no_layer_in_the_other_run_stays_a_replay(tmp_path: Path) -> None:
    eager = eager_run()
    eager.events = [
        event for event in eager.events if "Linear_1" not in str(event["name"]) and "linear_1" not in str(event["name"])
    ]
    profile = _profile(tmp_path, replayed_run(), eager)
    assert _time_by_layer(profile) == {"Linear_0": 3_900, "ReLU_0": 1_200, None: 3_600}
    ((count, duration, detail),) = _ledger(profile, "graph_not_aligned")
    assert (count, duration) == (3, 3_600)
    assert "lies in no layer" in detail


def test_a_run_without_graphs_alone_is_merged_as_before(tmp_path: Path) -> None:
    write_run(tmp_path / "graphs", "MLG", replayed_run(), serialized=False, **_FACTS)
    profile = merged(tmp_path)
    assert _time_by_layer(profile) == {None: _REPLAYED_NS}
    assert not _ledger(profile, "graph_not_aligned")


def test_the_command_takes_two_files_and_says_what_was_matched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [replayed_run().write(tmp_path / "graphs.json"), eager_run().write(tmp_path / "eager.json")]
    out = tmp_path / "profile.xsp"
    assert main(["merge", "--kernels", str(files[0]), "--kernels", str(files[1]), "-o", str(out)]) == 0
    output = " ".join(capsys.readouterr().err.split())
    assert "12 activities: replayed work of the kernels run (graphs.json) has the layers of the same work" in output
    assert _time_by_layer(bundle.read(out)) == _IN_LAYERS


def _shuffled(trace: KinetoTrace, rng: random.Random, shift_ns: int) -> KinetoTrace:
    for event in trace.events:
        start = event["ts"]
        assert isinstance(start, int)
        event["ts"] = start + shift_ns
    rng.shuffle(trace.events)
    return trace


@pytest.mark.parametrize("seed", range(5))
def test_neither_order_of_rows_nor_time_of_day_matters(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 (a test's dice)
    replayed, eager = _random_model(rng)
    expected = _answers(_profile(tmp_path / "a", replayed_run(replayed), eager_run(eager)))
    moved = (_shuffled(t, rng, rng.randrange(10**15)) for t in (replayed_run(replayed), eager_run(eager)))
    profile = _profile(tmp_path / "b", *moved)
    assert _answers(profile) == expected
    assert _conserved(profile, 3 * sum(kernel.duration_ns for kernel in replayed))


def _random_model(rng: random.Random) -> tuple[Sequence[DeviceKernel], Sequence[DeviceKernel]]:
    """Kernels of few names, and the same with one or two fewer."""
    kernels = [
        DeviceKernel(rng.choice("abc"), f"Linear_{n // 3}", rng.choice((1, 2)), rng.randrange(100, 900))
        for n in range(60)
    ]
    left_out = rng.sample(range(60), rng.randrange(3))
    return kernels, [kernel for n, kernel in enumerate(kernels) if n not in left_out]


def _answers(profile: Trace) -> Mapping[str | None, int]:
    return _time_by_layer(profile)
