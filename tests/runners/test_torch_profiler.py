"""The runner: what it writes with torch, and what it says when it cannot."""

from __future__ import annotations

import gzip
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_runners import torch_profiler
from xsp_runners.torch_profiler import RunnerError, capture

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace


@pytest.fixture
def torch() -> Any:  # noqa: ANN401 (torch's types are not known where it is not installed)
    """The module, where it is installed; the profiler's own warnings are not ours to fail on."""
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.torch
@pytest.mark.usefixtures("torch")
class TestCommandLine:
    def test_a_run_has_a_trace_and_a_run_json(self, tmp_path: Path) -> None:
        assert _run(tmp_path, "--workload", "mlp", "--batch", "4", "--steps", "2") == 0
        facts = json.loads((tmp_path / "run.json").read_text())
        assert facts["schema_version"] == 1
        assert facts["level"] == "ML"
        assert facts["batch_size"] == 4
        assert facts["files"] == [{"path": "trace.json.gz", "format": "torch_profiler"}]
        assert len(facts["step_durations_ns"]) == facts["steps"] == 2
        assert all(isinstance(ns, int) and ns > 0 for ns in facts["step_durations_ns"])
        assert sorted(file.name for file in tmp_path.iterdir()) == ["run.json", "trace.json.gz"]

    def test_nothing_tells_whose_machine_it_was(self, tmp_path: Path) -> None:
        assert _run(tmp_path, "--workload", "mlp", "--python-calls") == 0
        text = gzip.decompress((tmp_path / "trace.json.gz").read_bytes()).decode()
        assert "host_name" not in text
        assert str(tmp_path) not in text + (tmp_path / "run.json").read_text()

    def test_xsp_reads_what_torch_wrote_just_now(self, tmp_path: Path) -> None:
        assert _run(tmp_path, "--workload", "convnet", "--steps", "2", "--batch", "2") == 0
        trace = _converted(tmp_path)
        assert trace.levels[:2] == ("model", "layer")
        layers = trace.frame("layers")
        assert layers["source"].cast(str).unique().to_list() == ["module"]
        assert "ConvNet_0" in layers["layer_name"].cast(str).to_list()
        assert trace.frame("spans").filter(level="model").height == 2

    def test_checkpointing_runs_modules_again_in_the_backward_pass(self, tmp_path: Path) -> None:
        options = ("--workload", "transformer", "--mode", "training", "--batch", "1", "--steps", "1")
        assert _run(tmp_path / "plain", *options) == 0
        assert _run(tmp_path / "checkpointed", *options, "--checkpointing") == 0
        calls = [_calls(_converted(tmp_path / name), "EncoderBlock_1") for name in ("plain", "checkpointed")]
        assert calls == [1, 2]

    def test_a_gpu_that_is_not_there_is_one_sentence(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        torch: Any,  # noqa: ANN401
    ) -> None:
        if torch.cuda.is_available():
            pytest.skip("there is a GPU here")
        assert torch_profiler.main(["--device", "cuda", "--out", str(tmp_path / "out")]) == 2
        assert capsys.readouterr().err == "torch_profiler: torch sees no CUDA device here: choose --device cpu\n"
        assert not (tmp_path / "out").exists()


@pytest.mark.torch
@pytest.mark.usefixtures("torch")
class TestCapture:
    def test_a_loop_of_ones_own(self, tmp_path: Path, torch: Any) -> None:  # noqa: ANN401
        model = torch.nn.Linear(4, 4)
        with capture(tmp_path, steps=2, warmup=2, device="cpu", model="mine", batch_size=3) as session:
            steps = 0
            while not session.is_finished:
                model(torch.ones(3, 4))
                session.step()
                steps += 1
        assert steps == 4
        facts = json.loads((tmp_path / "run.json").read_text())
        assert (facts["model"]["name"], facts["batch_size"], facts["warmup_steps"]) == ("mine", 3, 2)
        assert _calls(_converted(tmp_path), "Linear_0") == 2

    def test_steps_past_the_last_are_ignored(self, tmp_path: Path) -> None:
        with capture(tmp_path, steps=1, device="cpu") as session:
            assert [session.step() for _ in range(4)] == [False, True, True, True]
        assert len(session.durations_ns) == 1

    def test_too_few_steps_write_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(RunnerError, match="ended after 1 of 4 steps"), capture(tmp_path, device="cpu") as session:
            session.step()
        assert list(tmp_path.iterdir()) == []

    def test_an_error_inside_travels_up_and_nothing_is_written(self, tmp_path: Path) -> None:
        with pytest.raises(ZeroDivisionError), capture(tmp_path, device="cpu"):
            raise ZeroDivisionError
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("numbers", [{"steps": 0}, {"warmup": 0}])
def test_no_steps_are_refused(tmp_path: Path, numbers: dict[str, int]) -> None:
    with pytest.raises(RunnerError, match="at least 1"), capture(tmp_path, **numbers):  # type: ignore[arg-type]
        pass


def test_a_batch_of_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert torch_profiler.main(["--batch", "0", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "torch_profiler: --batch must be at least 1\n"


def test_without_torch_the_runner_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert torch_profiler.main(["--out", str(tmp_path)]) == 2
    assert "torch is not installed: pip install torch\n" in capsys.readouterr().err


def _run(out: Path, *arguments: str) -> int:
    return torch_profiler.main([*arguments, "--device", "cpu", "--out", str(out)])


def _converted(folder: Path) -> Trace:
    return convert([folder / "trace.json.gz"], Options())


def _calls(trace: Trace, name: str) -> int:
    return trace.frame("layers").filter(layer_name=name).height
