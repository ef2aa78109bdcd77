"""A real example of each analysis: the sample file that fills most of its columns, the command, and the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_analyze.core import run
from xsp_analyze.render import render_one
from xsp_analyze.view import View
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.core import Analysis, Result

__all__ = ["Example", "example_of"]

_ROOT = Path(__file__).resolve().parents[2]
_ROWS = 6
_ESCAPES = ((r"\<", "&lt;"), (r"\~", "~"), (r"\&", "&amp;"))  # which MkDocs' Markdown does not know
_SAMPLES = (  # in order of preference where two fill as many columns
    "fixtures/torch_profiler/transformer_train_gpu_synthetic",
    "fixtures/nsys_sqlite/inference_2gpu_synthetic",
    "fixtures/torch_profiler/two_ranks",
    "fixtures/nsys_sqlite/nvtx_cpu",
    "fixtures/nvml_samples/beside_two_ranks_synthetic",
)
_ELSE = ("fixtures/jaeger/mlmodelscope_leveled_synthetic",)  # counters, but runs of several levels in one file
_OURS = ("case.toml", "expected.toml")


@dataclass(frozen=True, slots=True)
class Example:
    """A command on a sample file and the Markdown of its answer, cut to the first rows; `cut` says how far."""

    command: str
    answer: str
    cut: str


def example_of(analysis: Analysis) -> Example | None:
    """The example with most known columns; None where no sample answers the analysis."""
    answers = _answers(analysis, _SAMPLES) or _answers(analysis, _ELSE)
    if not answers:
        return None
    sample, result = max(answers, key=lambda pair: _known_columns(pair[1]))  # of equals the first
    rows = result.table.height
    text = render_one(replace(result, table=result.table.head(_ROWS)), "md").decode()
    cut = f"The first {_ROWS} of {rows} rows." if rows > _ROWS else ""
    return Example(f"xsp analyze {_named(sample)} -a {analysis.id}", _without_heading(text), cut)


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
def _view(sample: str) -> View:
    return View(convert([_ROOT / path for path in _files(sample)], Options()))


def _files(sample: str) -> list[str]:
    return sorted(f"{sample}/{f.name}" for f in (_ROOT / sample).iterdir() if f.name not in _OURS)


def _named(sample: str) -> str:
    return " ".join(_files(sample))


def _known_columns(result: Result) -> int:
    return sum(result.table[c.name].null_count() < result.table.height for c in result.columns)


def _without_heading(text: str) -> str:
    body = text.partition("\n\n")[2].strip()
    for escaped, plain in _ESCAPES:
        body = body.replace(escaped, plain)
    return body
