"""What is planted in made traces is found, first from a strength that the docs state; the clean job has no findings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.planted.answers import answer, findings_of
from tests.helpers.planted.kinds import KINDS, Kind
from tests.helpers.planted.model import simulate
from tests.helpers.planted.page import page
from tests.helpers.planted.parts import Plan
from xsp_analyze.findings import RULES

if TYPE_CHECKING:
    from tests.helpers.synth import KinetoTrace

_STRONGEST = 2
_CASES = [  # the strongest in the quick tier, the others in the slow one
    pytest.param(kind, index, id=f"{kind.rule}-{index}", marks=[pytest.mark.slow] if index < _STRONGEST else [])
    for kind in KINDS
    for index in range(_STRONGEST + 1)
]
_CLEAN = list(dict.fromkeys(strength.clean for kind in KINDS for strength in kind.strengths))
_PAGE = Path(__file__).parents[3] / "docs" / "planted-bottlenecks.md"


def test_thirteen_kinds_are_planted_each_for_a_rule_of_its_own() -> None:
    rules = [kind.rule for kind in KINDS]
    assert len(set(rules)) == len(rules) == 13
    assert set(rules) <= {rule.id for rule in RULES}


@pytest.mark.parametrize(("kind", "index"), _CASES)
def test_the_first_finding_names_what_was_planted(kind: Kind, index: int) -> None:
    judged = kind.judged(answer(kind.strengths[index]).findings)
    if index >= kind.first_named:
        assert judged[0].rule.id == kind.rule
    else:  # too weak to be told, or told; but nothing greater is made of it
        assert all((one.gain_share or 0) < 0.06 for one in judged)


@pytest.mark.parametrize("plan", _CLEAN)
def test_the_clean_job_has_no_findings(plan: Plan) -> None:
    assert [one.rule.id for one in findings_of(plan)] == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.has_gain], ids=lambda kind: kind.rule)
def test_the_gain_estimated_is_near_the_true_one(kind: Kind) -> None:
    strongest = answer(kind.strengths[-1])
    gain = next(one.gain_ns for one in strongest.findings if one.rule.id == kind.rule)
    assert gain == pytest.approx(strongest.true_gain_ns, rel=0.15)


_OF_RANKS = ("straggler", "small-collectives", "unbalanced-pipeline")  # of which none is simulated


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.has_gain and kind.rule not in _OF_RANKS])
def test_the_gain_simulated_is_near_the_true_one_and_never_above_the_most(kind: Kind) -> None:
    strongest = answer(kind.strengths[-1])
    one = next(one for one in strongest.findings if one.rule.id == kind.rule)
    assert one.simulated_ns == pytest.approx(strongest.true_gain_ns, rel=0.15)
    assert (one.simulated_ns or 0.0) <= (one.gain_ns or 0.0)


@pytest.mark.slow
def test_the_page_in_the_docs_is_current() -> None:
    assert _PAGE.read_text(encoding="utf-8") == page(), f"python -m tests.helpers.planted {_PAGE}"


def _works(trace: KinetoTrace, *categories: str) -> list[dict[str, Any]]:
    """The events of these categories, in order of start."""
    events: list[dict[str, Any]] = trace.events
    return sorted((e for e in events if e.get("cat") in categories), key=lambda e: int(e["ts"]))


@pytest.mark.parametrize("plan", [Plan(values_read=2, pageable_bytes=1_000_000), Plan(ranks=3, steps=2, slower=0.2)])
def test_the_simulation_obeys_causes(plan: Plan) -> None:
    for trace in simulate(plan):
        calls = {e["args"]["correlation"]: e["ts"] for e in _works(trace, "cuda_runtime")}
        ends: dict[int, int] = {}
        for one in _works(trace, "kernel", "gpu_memcpy"):
            assert one["ts"] >= calls[one["args"]["correlation"]] + 5_000
            assert one["ts"] >= ends.get(one["tid"], 0)
            ends[one["tid"]] = one["ts"] + one["dur"]


def test_ranks_leave_a_collective_together() -> None:
    ends = [
        [e["ts"] + e["dur"] for e in _works(trace, "kernel") if e["name"].startswith("nccl")]
        for trace in simulate(Plan(ranks=3, steps=2, slower=0.2))
    ]
    assert ends[0] == ends[1] == ends[2]
    assert len(ends[0]) == 6
