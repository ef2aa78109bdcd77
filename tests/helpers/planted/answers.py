"""What findings say of planted traces, beside what is true of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tests.helpers.planted.model import simulate
from xsp_analyze.findings import advise
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.helpers.planted.kinds import Strength
    from tests.helpers.planted.parts import Plan
    from tests.helpers.synth import KinetoTrace
    from xsp_analyze.findings import Advice

__all__ = ["Answer", "answer", "findings_of", "true_step_ns"]


@dataclass(frozen=True)
class Answer:
    """The findings on a planted trace, in order, and what the step would gain without what was planted."""

    findings: Sequence[Advice]
    step_ns: float
    true_gain_ns: float


@cache
def findings_of(plan: Plan) -> Sequence[Advice]:
    """The findings on the plan's traces; that there are few steps is no finding on the job."""
    with TemporaryDirectory() as folder:
        paths = [trace.write(Path(folder) / f"rank{rank}.json") for rank, trace in enumerate(_simulated(plan))]
        return advise(StepView.of(convert(paths, Options())))


@cache
def _simulated(plan: Plan) -> Sequence[KinetoTrace]:
    return simulate(plan)


def true_step_ns(plan: Plan) -> float:
    """From the start of the first step to the end of the last device work, over steps: nothing else is looked at."""
    events = [e for trace in _simulated(plan) for e in trace.events if e.get("ph") == "X"]
    starts = [int(str(e["ts"])) for e in events if str(e["name"]).startswith("ProfilerStep")]
    ends = [int(str(e["ts"])) + int(str(e["dur"])) for e in events if e["cat"] in {"kernel", "gpu_memcpy"}]
    return (max(ends) - min(starts)) / plan.steps


def answer(strength: Strength) -> Answer:
    """What is found in the planted trace, and by how much its step is longer than the clean one's."""
    step_ns = true_step_ns(strength.planted)
    return Answer(findings_of(strength.planted), step_ns, step_ns - true_step_ns(strength.clean))
