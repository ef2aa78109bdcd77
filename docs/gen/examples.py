"""A real example of each analysis: the sample file that fills most of its columns, the command, and the answer."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import xsp
from xsp_analyze.core import run
from xsp_analyze.render import render_one
from xsp_analyze.trace.step_view import StepView
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.core import Analysis, Result

__all__ = ["Example", "example_of", "plain"]

_ROOT = Path(__file__).resolve().parents[2]
_ROWS = 6
_ESCAPES = ((r"\<", "&lt;"), (r"\~", "~"), (r"\&", "&amp;"))
_SAMPLES = (  # in order of preference where two fill as many columns
    "fixtures/torch_profiler/transformer_train_gpu_synthetic",
    "fixtures/nsys_sqlite/inference_2gpu_synthetic",
    "fixtures/torch_profiler/two_ranks",
    "fixtures/torch_profiler/serving_synthetic",
    "fixtures/nsys_sqlite/nvtx_cpu",
    "fixtures/nvml_samples/beside_two_ranks_synthetic",
    "fixtures/system_samples/beside_a_run_synthetic",
)
_ELSE = ("fixtures/run_set/convnet_v100_synthetic", "fixtures/run_set/results_synthetic")  # leveled runs
_OURS = ("case.toml", "expected.toml")


@dataclass(frozen=True, slots=True)
class Example:
    """A command on a sample file, what to know of its answer (that times are invented, rows left out), the answer."""

    command: str
    about: str
    answer: str


def example_of(analysis: Analysis) -> Example | None:
    """The example with most known columns; None where no sample answers the analysis."""
    answers = _answers(analysis, _SAMPLES) or _answers(analysis, _ELSE)
    if not answers:
        return None
    sample, result = max(answers, key=lambda pair: _known_columns(pair[1]))  # of equals the first
    text = render_one(result, "md").decode()
    return Example(
        f"xsp analyze {' '.join(_inputs(sample))} -a {analysis.id}", _about(sample, result), _without_heading(text)
    )


def _about(sample: str, result: Result) -> str:
    case = tomllib.loads((_ROOT / sample / "case.toml").read_text(encoding="utf-8"))
    invented = "No GPU ran this sample, its times are invented. " if case["synthetic"] else ""
    rows = result.table.height
    return invented + (f"The first {_ROWS} of {rows} rows:" if rows > _ROWS else "")


def _answers(analysis: Analysis, samples: Sequence[str]) -> list[tuple[str, Result]]:
    """The samples that give it rows, with what they give."""
    answers = [(sample, _answer(analysis, sample)) for sample in samples]
    return [(sample, result) for sample, result in answers if result is not None and result.table.height]


def _answer(analysis: Analysis, sample: str) -> Result | None:
    try:
        return run(analysis, _view(sample))
    except XspError:
        return None


@cache
def _view(sample: str) -> StepView:
    return StepView.of(xsp.open(*(_ROOT / path for path in _inputs(sample))).trace)


def _inputs(sample: str) -> list[str]:
    """What to name: a run set as a whole, else each file."""
    if sample in _ELSE:
        return [sample]
    return sorted(f"{sample}/{f.name}" for f in (_ROOT / sample).iterdir() if f.name not in _OURS)


def _known_columns(result: Result) -> int:
    return sum(result.table[c.name].null_count() < result.table.height for c in result.columns)


def _without_heading(text: str) -> str:
    """What stands below the heading, with the first rows of its table."""
    lines = plain(text.partition("\n\n")[2].strip()).splitlines()
    end = next((n for n, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return "\n".join([*lines[: min(end, 2 + _ROWS)], *lines[end:]])


def plain(text: str) -> str:
    """Markdown with entities for the escapes that MkDocs does not know."""
    for escaped, entity in _ESCAPES:
        text = text.replace(escaped, entity)
    return text
