"""Checksums of outputs: what they are of, and distances between outputs that two runs saved."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import TYPE_CHECKING, Any

import pytest

from xsp_runners.outputs import Outputs, StepInputs, main

if TYPE_CHECKING:
    from pathlib import Path

np = pytest.importorskip("numpy")


def _kept(
    out: Path, result: object, step_inputs: StepInputs | None = None, kept: str = "checksums"
) -> list[dict[str, Any]]:
    outputs = Outputs(out, kept)
    outputs.note_inputs(step_inputs or StepInputs())
    outputs.note_output(result, step_inputs or StepInputs(), step=4)
    tensors = outputs.facts.get("tensors", [])
    assert isinstance(tensors, list)
    return tensors


def test_a_checksum_is_of_the_bytes_and_a_norm_of_what_is_finite(tmp_path: Path) -> None:
    (tensor,) = _kept(tmp_path, np.array([[3.0, -4.0], [np.inf, 0.0]], dtype=np.float32))
    assert tensor["sha256"] == hashlib.sha256(struct.pack("<4f", 3.0, -4.0, float("inf"), 0.0)).hexdigest()
    assert (tensor["kind"], tensor["name"], tensor["step"], tensor["shape"]) == ("output", "output", 4, [2, 2])
    assert (tensor["l2_norm"], tensor["max_abs"], tensor["non_finite"]) == (5.0, 4.0, 1)
    assert tensor["sampled_values"] == [3.0, -4.0, None, 0.0]
    assert tensor["top1"] == [0, 0]


def test_of_many_elements_sixty_four_are_kept_evenly_spread(tmp_path: Path) -> None:
    (tensor,) = _kept(tmp_path, np.arange(640, dtype=np.int64))
    assert tensor["sampled_values"] == list(range(0, 640, 10))
    assert "top1" not in tensor


def test_what_is_nested_is_named_by_where_it_is(tmp_path: Path) -> None:
    one = np.zeros(1)
    tensors = _kept(tmp_path, {"logits": one, "states": (one, [one])})
    assert [t["name"] for t in tensors] == ["output.logits", "output.states.0", "output.states.1"]


def test_weights_are_one_tensor_in_order_of_their_names(tmp_path: Path) -> None:
    step_inputs = StepInputs(inputs=np.array([1.0]), weights={"b": np.array([2.0, 3.0]), "a": np.array([1.0])})
    weights, inputs, _ = _kept(tmp_path, np.array([0.5]), step_inputs)
    assert (weights["kind"], weights["shape"], weights["sampled_values"]) == ("weights", [3], [1.0, 2.0, 3.0])
    assert weights["sha256"] == hashlib.sha256(struct.pack("<3d", 1.0, 2.0, 3.0)).hexdigest()
    assert (inputs["kind"], inputs["step"]) == ("input", 0)


def test_what_cannot_be_read_fails_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Odd:
        dtype = "odd"

        @property
        def shape(self) -> tuple[int, ...]:
            raise RuntimeError("no shape")

    outputs = Outputs(tmp_path, "checksums")
    outputs.note_output(Odd(), StepInputs(), step=0)
    assert outputs.facts == {"tensors_problem": "RuntimeError: no shape"}
    assert "no checksums" in capsys.readouterr().err


def test_nothing_is_kept_where_nothing_is_wanted(tmp_path: Path) -> None:
    assert _kept(tmp_path, np.zeros(1), kept="none") == []


def _run(folder: Path, values: list[list[float]]) -> Path:
    outputs = Outputs(folder, "save")
    outputs.note_output(np.array(values, dtype=np.float32), StepInputs(), step=0)
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(outputs.facts))
    return folder


def test_distances_of_saved_outputs_are_of_every_element(tmp_path: Path) -> None:
    reference = _run(tmp_path / "fp32", [[3.0, 4.0], [0.0, 0.0]])
    other = _run(tmp_path / "bf16", [[3.0, 4.5], [0.0, 1.0]])
    assert main(["distances", str(reference), str(other)]) == 0
    (row,) = json.loads((other / "run.json").read_text())["output_distances"]
    assert (row["name"], row["reference"], row["max_abs_difference"]) == ("output", "fp32", 1.0)
    assert row["relative_l2"] == pytest.approx((0.25 + 1) ** 0.5 / 5)
    assert row["cosine"] == pytest.approx((9 + 18) / (5 * (9 + 4.5**2 + 1) ** 0.5))
    assert row["top1_agreement"] == 0.5
    assert row["reference_sha256"] == json.loads((reference / "run.json").read_text())["tensors"][0]["sha256"]
    assert main(["distances", str(reference), str(other)]) == 0  # again: it takes the row's place
    assert len(json.loads((other / "run.json").read_text())["output_distances"]) == 1


def test_runs_that_saved_nothing_are_told_how(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["distances", str(tmp_path), str(tmp_path)]) == 2
    assert "--outputs save" in capsys.readouterr().err
