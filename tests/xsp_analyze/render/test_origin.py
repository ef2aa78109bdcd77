"""What several tables share stands once at their end, in the terminal's text and in Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from xsp_analyze.catalog import find
from xsp_analyze.core import Result, run
from xsp_analyze.render import Screen, render
from xsp_analyze.render.origin import origin_line
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

_TRAINING = Path(__file__).resolve().parents[3] / "fixtures" / "torch_profiler" / "transformer_train_gpu_synthetic"


@pytest.fixture(scope="module", name="answers")
def fixture_answers() -> dict[str, Result]:
    frames = StepView.of(convert([_TRAINING], Options()))
    return {name: run(find(name), frames) for name in ("A10", "A11", "B03", "cuda_gpu_kern_sum")}


@pytest.mark.parametrize("output_format", ["table", "md"])
def test_sources_and_warnings_stand_once_at_the_end(answers: dict[str, Result], output_format: str) -> None:
    results = [answers[name] for name in ("A10", "A11", "B03")]
    text = render(results, output_format, Screen()).decode()
    assert text.count("sources: ") == 1
    assert text.count("layer latency basis: device") == 1  # which B03 alone does not tell
    assert text.count("device work outside of the chosen steps") == 1
    assert text.splitlines()[-1].startswith("sources: trace.json.gz;")


def test_what_differs_names_the_analyses_that_it_is_of(answers: dict[str, Result]) -> None:
    line = origin_line([answers["A10"], answers["B03"], answers["cuda_gpu_kern_sum"]])
    assert "steps: mean (A10, B03), all (cuda_gpu_kern_sum)" in line
    assert line.count("sources") == 1
    assert "None" not in line
    assert "True" not in line


def test_one_result_says_what_it_said_alone(answers: dict[str, Result]) -> None:
    assert "steps: mean;" in origin_line([answers["A10"]])
    assert origin_line([]) == ""
