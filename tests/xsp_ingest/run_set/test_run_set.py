"""Run sets: what a run.json may say, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.helpers.batches import trace_of
from tests.helpers.run_sets import merged, write_run
from tests.helpers.synth import KinetoTrace
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import failed_runs, is_run_set, json_schema, read_run, read_run_set, read_sets, read_single
from xsp_model import XspError, bundle

_BASIC: dict[str, Any] = {"batch_size": 1, "device": {"name": "GPU"}}


def _described(**changes: object) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "level": "M",
        "model": {"name": "resnet50_v1.5", "task": "image classification"},
        "framework": {"name": "pytorch", "version": "2.11.0"},
        "batch_size": 32,
        "device": {"name": "NVIDIA H200", "peaks": {"fp32_flop_per_s": 6.7e13, "dram_byte_per_s": 4.8e12}},
        "steps": 2,
        "step_durations_ns": [1_000, 1_100],
        **changes,
    }


def _write(folder: Path, description: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "run.json"
    path.write_text(json.dumps(description))
    return path


def test_a_run_without_files_has_its_facts_and_step_times(tmp_path: Path) -> None:
    trace = read_run(_write(tmp_path, _described()), Options())
    run = trace.frame("runs").to_dicts()[0]
    assert (run["role"], run["model"], run["batch_size"], run["framework"], run["device_name"]) == (
        "model",
        "resnet50_v1.5",
        32,
        "pytorch 2.11.0",
        "NVIDIA H200",
    )
    assert trace.frame("step_times").rows() == [(0, 0, 1_000), (0, 1, 1_100)]
    assert trace.row_count == 0


def test_a_run_with_a_trace_is_described_by_both(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::linear", 1_000, 50_000)
    kineto.launch("gemm", 3_000, 20_000, 7_000)
    files = [{"path": "trace.json.gz", "format": "torch_profiler"}]
    path = _write(tmp_path / "MLG", _described(level="MLG", serialized=True, files=files))
    kineto.write(tmp_path / "MLG" / "trace.json.gz")
    _write(tmp_path / "M", _described())
    assert is_run_set(tmp_path)
    traces = read_run_set(tmp_path, Options())
    assert [t.frame("runs")["role"][0] for t in traces] == ["model", "kernels"]
    assert traces[1].frame("runs").select("serialised", "layer_source").row(0) == (True, "operator")
    assert read_single(path, "kernels", Options()).frame("runs")["role"].to_list() == ["kernels"]
    assert read_single(tmp_path / "MLG" / "trace.json.gz", "layers", Options()).frame("runs")["role"][0] == "layers"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": "32"}, r"Expected `int \| null`, got `str` - at `\$.batch_size`"),
        ({"batch_size": 0}, r"Expected `int` >= 1 - at `\$.batch_size`"),
        ({"level": "XL"}, r"Invalid enum value 'XL' - at `\$.level`"),
        ({"schema_version": 2}, r"Invalid enum value 2 - at `\$.schema_version`"),
        ({"steps": 3}, "steps is 3 but step_durations_ns lists 2"),
        ({"step_durations_ns": [], "steps": 0}, "must give step_durations_ns"),
        ({"files": [{"path": "../../etc/passwd"}]}, "lies outside of the run set"),
        ({"files": [{"path": "nowhere.json"}]}, "is not there"),
        ({"graph_captures": ["../../etc/passwd"]}, "lies outside of the run set"),
        ({"graph_captures": ["capture_traces"]}, "'capture_traces' is not there"),
        ({"files": [{"path": "a" * 5_000}]}, "'a{300}...' cannot be looked up"),
        ({"files": [{"path": "a/" * 5_000}]}, "cannot be looked up"),
        ({"files": [{"path": "a\0b"}]}, "cannot be looked up|is not there"),
        ({"files": [{"path": "\ud800"}]}, "wrong"),
        ({"graph_captures": ["a\0b"]}, "cannot be looked up|is not there"),
        ({"graph_captures": ["a" * 5_000]}, "cannot be looked up"),
        ({"step_durations_ns": [1, 10**30]}, r"Expected `int` <= 9007199254740992 - at `\$.step_durations_ns"),
        ({"batch_size": 10**19}, r"Expected `int` <= 9007199254740992 - at `\$.batch_size"),
        ({"graph_captures": "capture.json"}, r"Expected `array`, got `str` - at `\$.graph_captures`"),
    ],
)
def test_a_wrong_description_is_refused_in_one_sentence(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    path = _write(tmp_path, _described(**changes))
    with pytest.raises(XspError, match=message) as caught:
        read_run(path, Options())
    assert "\n" not in str(caught.value)


def test_captures_of_graphs_are_read_with_the_run(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::linear", 1_000, 50_000)
    kineto.write(tmp_path / "trace.json")
    files = [{"path": "trace.json"}]
    path = _write(tmp_path, _described(files=files, graph_captures=["trace.json"], level="MLG"))
    with pytest.raises(XspError, match="no graph was captured"):
        read_run(path, Options())


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"schema_version": 1,')
    with pytest.raises(XspError, match="description of the run is wrong"):
        read_run(path, Options())


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    assert not is_run_set(tmp_path)
    with pytest.raises(XspError, match=r"no run.json"):
        read_run_set(tmp_path, Options())
    with pytest.raises(XspError, match=r"there is no such folder"):
        read_run_set(tmp_path / "mistyped", Options())


def test_a_link_out_of_the_run_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    path = _write(tmp_path / "set" / "M", _described(files=[{"path": "link"}]))
    (path.parent / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(XspError, match="lies outside"):
        read_run_set(tmp_path / "set", Options())


@pytest.mark.parametrize("links", [{"link": "link"}, {"link": "back", "back": "link"}])
def test_links_in_a_circle_are_refused_in_one_sentence(tmp_path: Path, links: dict[str, str]) -> None:
    path = _write(tmp_path, _described(files=[{"path": "link/trace.json"}]))
    for link, target in links.items():
        (tmp_path / link).symlink_to(target)
    with pytest.raises(XspError, match=r"cannot be looked up|is not there"):
        read_run(path, Options())


def test_a_description_outside_of_the_run_set_is_refused(tmp_path: Path) -> None:
    _write(tmp_path / "elsewhere", _described())
    _write(tmp_path / "set" / "M", _described())
    (tmp_path / "set" / "ML").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(XspError, match=r"'run\.json' lies outside"):
        read_run_set(tmp_path / "set", Options())


def test_a_description_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.json")
    with pytest.raises(XspError, match="a pipe, not a file"):
        read_run(tmp_path / "run.json", Options())


def test_why_a_run_failed_is_read_from_no_pipe_and_from_nowhere_else(tmp_path: Path) -> None:
    for name in ("pipe", "link", "file"):
        (tmp_path / "set" / name).mkdir(parents=True)
    (tmp_path / "secret").write_text('{"error": "secret"}')
    (tmp_path / "set" / "link" / "error.json").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "set" / "pipe" / "error.json")
    (tmp_path / "set" / "file" / "error.json").write_text('{"error": "no memory"}')
    assert [failure.detail.partition(": ")[2] for failure in failed_runs(tmp_path / "set")] == ["file (no memory)"]


def test_the_schema_takes_what_is_right_and_only_that() -> None:
    schema = json_schema()
    jsonschema.validate(_described(), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(_described(batch_size=0), schema)


def test_the_documented_schema_is_the_one_in_force() -> None:
    documented = Path(__file__).resolve().parents[3] / "docs" / "run.schema.json"
    assert json.loads(documented.read_text()) == json_schema()


def test_a_run_is_taken_for_what_the_option_says_or_refused(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::linear", 1_000, 50_000)
    trace = kineto.write(tmp_path / "cpu.json")
    assert read_single(trace, "layers", Options()).frame("runs")["role"].to_list() == ["layers"]
    with pytest.raises(XspError, match="holds no kernels"):
        read_single(trace, "kernels", Options())
    described = _write(tmp_path / "M", _described())
    with pytest.raises(XspError, match="holds no layers"):
        read_single(described, "layers", Options())
    assert read_single(described, "model", Options()).frame("runs")["source_path"].to_list() == ["M/run.json"]


def test_quality_and_outputs_that_a_run_records_are_kept(tmp_path: Path) -> None:
    digest = "0" * 64
    described = _described(
        accuracies=[{"metric": "top1", "value": 0.7613, "unit": "share", "dataset": "ImageNet", "samples": 50_000}],
        training_curve=[{"metric": "top1", "time_s": 1.5, "value": 0.25}],
        tensors=[
            {"kind": "output", "name": "output", "step": 5, "shape": [2, 3], "dtype": "float32", "sha256": digest,
             "l2_norm": 3.0, "max_abs": 2, "non_finite": 0, "sampled_values": [1.0, None], "top1": [2, 0]},
        ],
        output_distances=[{"name": "output", "reference": "fp32", "relative_l2": 0.001, "top1_agreement": 1.0}],
    )  # fmt: skip
    trace = read_run(_write(tmp_path, described), Options())
    assert trace.frame("accuracies").rows() == [
        (0, "top1", "ImageNet", None, 0.7613, "share", 50_000, None),
        (0, "top1", None, 1_500_000_000, 0.25, None, None, None),
    ]
    assert trace.frame("tensors").rows() == [
        (0, "output", "output", 5, "[2, 3]", "float32", 6, digest, 3.0, 2.0, 0, "[1.0, null]", "[2, 0]")
    ]
    assert trace.frame("output_distances").rows() == [(0, "output", "fp32", None, None, 0.001, None, 1.0)]


def test_a_checksum_that_is_none_is_refused(tmp_path: Path) -> None:
    tensor = {"kind": "output", "name": "output", "sha256": "deadbeef"}
    with pytest.raises(XspError, match=r"sha256"):
        read_run(_write(tmp_path, _described(tensors=[tensor])), Options())


@pytest.mark.parametrize(
    ("deepest", "with_kernel", "sentence"),
    [
        ("kernel", False, "MLG/run.json says kernel, and no kernel is there"),
        ("operator", True, "MLG/run.json says operator, and kernels are there"),
        ("kernel", True, None),
        ("operator", False, None),
        (None, False, None),
    ],
)
def test_a_description_that_says_another_level_than_its_files_hold_is_noted(
    tmp_path: Path, deepest: str | None, sentence: str | None, *, with_kernel: bool
) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::linear", 1_000, 50_000)
    if with_kernel:
        kineto.launch("gemm", 3_000, 20_000, 7_000)
    files = [{"path": "trace.json.gz", "format": "torch_profiler"}]
    path = _write(tmp_path / "MLG", _described(level="MLG", files=files, deepest_level=deepest))
    kineto.write(tmp_path / "MLG" / "trace.json.gz")
    ledger = read_run(path, Options()).frame("ledger")
    details = ledger.filter(ledger["kind"].cast(str) == "deepest_level_differs")["detail"].cast(str).to_list()
    assert [detail.rpartition(": ")[2] for detail in details] == ([sentence] if sentence else [])


@pytest.mark.parametrize("second", ["t.json", "./t.json", "link.json", "hard.json", "."])
def test_a_file_that_is_listed_twice_would_count_twice(second: str, tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::linear", 1_000, 50_000)
    path = _write(tmp_path / "MLG", _described(level="MLG", files=[{"path": "t.json"}, {"path": second}]))
    kineto.write(path.with_name("t.json"))
    path.with_name("link.json").symlink_to("t.json")
    path.with_name("hard.json").hardlink_to(path.with_name("t.json"))
    with pytest.raises(XspError, match=r"the file '\S+' is listed twice"):
        read_run(path, Options())


@pytest.mark.parametrize(("target", "reason"), [("run.json", "lead in a circle"), ("nowhere", "is not there")])
def test_a_description_that_leads_nowhere_is_no_run_to_leave_out(target: str, reason: str, tmp_path: Path) -> None:
    _write(tmp_path / "M", _described())
    (tmp_path / "ML").mkdir()
    (tmp_path / "ML" / "run.json").symlink_to(target)
    with pytest.raises(XspError, match=reason):
        read_run_set(tmp_path, Options())


def test_a_format_is_no_text_without_end(tmp_path: Path) -> None:
    path = _write(tmp_path / "MLG", _described(level="MLG", files=[{"path": "t.json", "format": "x" * 5_000}]))
    with pytest.raises(XspError, match="length <= 100") as refusal:
        read_run(path, Options())
    assert len(str(refusal.value)) < 300


def test_copies_of_runs_are_read_once_and_said(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    for name, scale in (("MLG", 100), ("MLG-other", 200)):
        write_run(folder / name, "MLG", trace_of(scale), **_BASIC)
    write_run(folder / "M", "M", None, **_BASIC, step_durations_ns=[1_000, 1_100])
    write_run(folder / "M-other", "M", None, **_BASIC, step_durations_ns=[1_000, 1_200])
    alone = read_run_set(folder, Options())
    for name in ("M", "MLG"):
        shutil.copytree(folder / name, folder / f"{name}-again")
    unpacked = folder / "unpacked"
    shutil.copytree(folder / "MLG", unpacked)
    (unpacked / "trace.json").write_bytes(gzip.decompress((unpacked / "trace.json.gz").read_bytes()))
    (unpacked / "trace.json.gz").unlink()
    description = (unpacked / "run.json").read_text(encoding="utf-8")
    (unpacked / "run.json").write_text(description.replace("trace.json.gz", "trace.json"), encoding="utf-8")
    (runs,) = read_sets(folder, Options())
    assert len(runs.traces) == len(alone) == 4
    (again,) = (finding for finding in runs.findings if finding.count)
    assert (again.kind, again.count) == ("same_run_again", 3)
    assert again.detail.endswith(": M-again (as M), MLG-again (as MLG), unpacked (as MLG)")


def test_a_profile_in_the_folder_of_its_runs_is_said(tmp_path: Path) -> None:
    write_run(tmp_path / "MLG", "MLG", trace_of(100), **_BASIC)
    bundle.write(merged(tmp_path), tmp_path / "profile.xsp")
    (runs,) = read_sets(tmp_path, Options())
    (again,) = (finding for finding in runs.findings if finding.count)
    assert again.kind == "same_content_again"
    assert again.detail.endswith(": profile.xsp (as trace.json.gz)")
