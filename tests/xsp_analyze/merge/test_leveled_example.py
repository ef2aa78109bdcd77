"""The run sets of `../shared/tools/leveled-example`: every answer equals the one written beside them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.run_sets import merged
from xsp.cli.main import main
from xsp_analyze.catalog import find
from xsp_analyze.core import run
from xsp_analyze.frames import coverage
from xsp_analyze.frames.kernels.roofline import ideal_intensity
from xsp_analyze.merge.merge import merge
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.ingester import Options
from xsp_ingest.run_set import read_run_set
from xsp_model import XspError, bundle

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


pytestmark = pytest.mark.real

_KEYS = {
    "A01": ("batch_size",),
    "A02": ("layer_index",),
    "A05": ("layer_type",),
    "A06": ("layer_type",),
    "A08": (),  # in the order of the rows: a layer may run one kernel name twice
    "A10": ("kernel_name", "kind"),
    "A11": ("layer_index",),
    "A15": ("batch_size",),
    "B02": ("level", "scope"),
}
_PRECISION = 1e-6


@pytest.fixture(name="tool", scope="session")
def fixture_tool(real_dir: Path) -> Path:
    path = real_dir.parent / "tools" / "leveled-example"
    if not path.is_file():
        pytest.skip("the writer of leveled examples is not beside the real traces")
    return path


def _written(tool: Path, out: Path, *, seed: int, layers: int = 8, steps: int = 5, variant: str | None = None) -> Path:
    command = [sys.executable, tool, "--seed", seed, "--layers", layers, "--steps", steps, "--out", out]
    command += ["--variant", variant] if variant else []
    subprocess.run([str(argument) for argument in command], check=True)
    return out


def _expected(folder: Path) -> dict[str, list[dict[str, Any]]]:
    answers = json.loads((folder / "expected.json").read_text())
    return {identifier: answers[identifier] for identifier in _KEYS}


def _compare(identifier: str, rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    if identifier == "B02":  # it also says what both levels cost together, which follows from the two
        rows = [row for row in rows if row["level"] != "total"]
    assert len(rows) == len(expected), identifier
    if keys := _KEYS[identifier]:
        by_key = {tuple(row[key] for key in keys): row for row in rows}
        assert len(by_key) == len(rows), f"{identifier} repeats a key"
        rows = [by_key[tuple(row[key] for key in keys)] for row in expected]
    for ours, row in zip(rows, expected, strict=True):
        differ = {name: (ours[name], value) for name, value in row.items() if not _equal(ours[name], value)}
        assert not differ, identifier


def _equal(ours: object, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ours == value
    return isinstance(ours, int | float) and math.isclose(ours, value, rel_tol=_PRECISION)


@pytest.mark.parametrize(
    ("seed", "layers", "steps"),
    [(1, 8, 5), (2, 8, 1), (3, 8, 2), (4, 8, 3), (5, 8, 7), (6, 2, 5), (7, 3, 4), (8, 40, 10), (9, 150, 3)],
)
def test_every_number_equals_the_answer(tool: Path, tmp_path: Path, seed: int, layers: int, steps: int) -> None:
    folder = _written(tool, tmp_path, seed=seed, layers=layers, steps=steps)
    view = StepView.of(merged(folder))
    for identifier, expected in _expected(folder).items():
        _compare(identifier, run(find(identifier), view).table.to_dicts(), expected)
    ideal = json.loads((folder / "expected.json").read_text())["ideal_arithmetic_intensity"]
    assert view.of_trace.once(ideal_intensity) == pytest.approx(ideal)


def _of_batch_sizes(tool: Path, out: Path, seeds: Mapping[int, int]) -> dict[int, Path]:
    """One set with the runs of a seed at each batch size; and where the answers of each are."""
    answers = {}
    for batch, seed in seeds.items():
        answers[batch] = _written(tool, out / f"written-{batch}", seed=seed)
        for path in answers[batch].glob("*/run.json"):
            described = json.loads(path.read_text()) | {"batch_size": batch, "model": {"name": "of many batch sizes"}}
            path.write_text(json.dumps(described))
            path.parent.rename((out / "set").joinpath(f"{path.parent.name}-{batch}"))
    return answers


def test_every_number_of_a_set_of_several_batch_sizes_equals_its_answer(tool: Path, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    answers = _of_batch_sizes(tool, tmp_path, {4: 21, 8: 22, 32: 23})
    runs = read_run_set(tmp_path / "set", Options())
    expected = {batch: _expected(folder) for batch, folder in answers.items()}
    for batch, own in expected.items():
        inputs_per_s = batch / (own["A01"][0]["latency_ns"] * 1e-9)
        own["A01"][0] |= {"batch_size": batch, "throughput_per_s": inputs_per_s}
        own["A01"][0]["latency_per_input_ns"] = own["A01"][0]["latency_ns"] / batch
        own["A15"][0]["batch_size"] = batch
    for batch, own in expected.items():
        frames = StepView.of(merge(runs, batch_size=batch))
        for identifier, keys in _KEYS.items():
            by_batch = keys == ("batch_size",)
            rows = [row for each in expected.values() for row in each[identifier]] if by_batch else own[identifier]
            _compare(identifier, run(find(identifier), frames).table.to_dicts(), rows)


def test_the_command_prints_the_same_numbers(tool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, profile = _written(tool, tmp_path / "set", seed=11), tmp_path / "P.xsp"
    assert main(["merge", str(folder), "-o", str(profile)]) == 0
    for identifier, expected in _expected(folder).items():
        capsys.readouterr()
        assert main(["analyze", str(profile), "-a", identifier, "-f", "json"]) == 0
        _compare(identifier, _rows(json.loads(capsys.readouterr().out)), expected)


def _rows(printed: Any) -> list[dict[str, Any]]:  # noqa: ANN401 (JSON)
    rows: list[dict[str, Any]] = printed["rows"]
    return rows


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_layer_that_read_less_than_its_input_is_flagged_and_only_there(tool: Path, tmp_path: Path, seed: int) -> None:
    plain = merged(_written(tool, tmp_path / "plain", seed=seed))
    assert not [kind for kind in coverage.ledger(StepView.of(plain))["kind"] if kind.startswith("sanity_dram")]
    folder = _written(tool, tmp_path / "flat", seed=seed, variant="flat-bytes")
    view = StepView.of(merged(folder))
    (flag,) = [row for row in coverage.ledger(view).to_dicts() if row["kind"].startswith("sanity_dram")]
    assert (flag["kind"], flag["severity"], flag["count"]) == ("sanity_dram_read_bytes", "warning", 1)
    expected = _expected(folder)
    moved = {row["layer_name"]: row["dram_read_bytes"] for row in expected["A11"]}
    layer, read = next((name, read) for name, read in moved.items() if read is not None and read <= 3_000)
    assert f"{layer} ({read} of 1024000000 bytes)" in flag["detail"]
    for identifier, answers in expected.items():
        _compare(identifier, run(find(identifier), view).table.to_dicts(), answers)


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        (
            "other-model",
            r"layers of the layers run .* and the kernels run .* match at 0\.\d+, less than 0.95: at \d+: ",
        ),
        ("other-batch", r"the runs are of different batch sizes: \d+ in the model run .*, \d+ in the layers run"),
        ("autotuned", r"match at 0\.\d+, less than 0.95: at \d+: \S.* against another_algorithm_kernel"),
    ],
)
def test_sets_that_do_not_belong_together_are_refused_with_the_reason(
    tool: Path, tmp_path: Path, variant: str, reason: str
) -> None:
    folder = _written(tool, tmp_path, seed=5, variant=variant)
    with pytest.raises(XspError, match=reason):
        merged(folder)


def test_the_command_refuses_in_one_line(tool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, profile = _written(tool, tmp_path / "set", seed=5, variant="other-batch"), tmp_path / "P.xsp"
    assert main(["merge", str(folder), "-o", str(profile)]) == 2
    assert capsys.readouterr().err.startswith("error: the runs are of different batch sizes: ")
    assert not profile.exists()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_kernel_that_autotuning_replaced_has_no_counters_if_the_set_is_merged_at_all(
    tool: Path, tmp_path: Path, seed: int
) -> None:
    folder, profile = _written(tool, tmp_path / "set", seed=seed, variant="autotuned"), tmp_path / "P.xsp"
    assert main(["merge", str(folder), "-o", str(profile), "--min-match", "0.5"]) == 0
    view = StepView.of(bundle.read(profile))
    kernels = run(find("A08"), view).table.filter(kind="kernel")
    for column in ("flop_count", "dram_read_bytes", "dram_write_bytes", "achieved_occupancy", "memory_bound"):
        assert kernels[column].is_null().to_list() == [True] + [False] * (kernels.height - 1)
    assert kernels["duration_ns"].null_count() == 0
    ledger = coverage.ledger(view).filter(kind="match_kernels")
    assert ledger["severity"].to_list() == ["warning"] * 3
    assert all("against another_algorithm_kernel" in detail for detail in ledger["detail"])
    assert coverage.ledger(view).filter(kind="counters_partial")["count"].to_list() == [1.0]
