"""The page of the docs on what findings say of planted bottlenecks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers.planted.answers import answer
from tests.helpers.planted.kinds import KINDS
from xsp_analyze.text.units import duration, share

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.helpers.planted.answers import Answer
    from tests.helpers.planted.kinds import Kind, Strength

__all__ = ["page"]

_HEAD = """# Planted bottlenecks

How well do the [findings](findings/README.md) find what is wrong? Here is a small training job with one bottleneck
planted at a time, at three strengths. The job is simulated: a host that launches, streams that run work when it was
launched, when they are free and when what it waits for has ended, and ranks that leave each collective together. So the
trace is such as a profiler would have written, and the true cost of the bottleneck is known: the step with it, less the
step of the same job without. The traces are PyTorch profiler files, one a rank, of an A100 that was never there; a step
is 12 ms, of 12 layers forward and backward.

The clean job, and the clean job beside each of the strengths below, has no finding at all, not even a doubt.

*found first* is the first finding that tells what to do; of a bottleneck that is none but spoils the numbers (the last
rows) it is the first doubt. *rank* is where the finding of this bottleneck stands among those; `-`: it is silent.

*simulated* is what a [replay](what-if.md) of the trace gains where that is done which the finding advises; findings are
ranked by it. `-`: what a finding between ranks comes to is not simulated.

| planted | how strong | of the step | found first | rank | gain at most | simulated | gain true |
|---|---|---:|---|---:|---:|---:|---:|
"""

_BETWEEN = """
The first finding names the bottleneck from these strengths on; below them it may be silent. They are strengths that
were tried, not exact limits: those are in the [rules](findings/README.md).

| planted | finding | first from |
|---|---|---|
"""

_TAIL = """
The gain of a finding is an upper bound, so it may be above the truth; where it is below, the trace does not show all of
what the bottleneck costs: a launch that comes late also ends its gap with the kernel's own way to the device.

`python -m tests.helpers.planted docs/planted-bottlenecks.md` writes this page; a test holds it to be current.
"""


def page() -> str:
    """The Markdown of the page."""
    answers = [(kind, strength, answer(strength)) for kind in KINDS for strength in kind.strengths]
    rows = [_row(kind, strength, answered) for kind, strength, answered in answers]
    return _HEAD + "".join(rows) + _BETWEEN + "".join(_limits()) + _TAIL


def _row(kind: Kind, strength: Strength, answered: Answer) -> str:
    named = next((i for i, one in enumerate(kind.judged(answered.findings), 1) if one.rule.id == kind.rule), None)
    first = next((one.rule.id for one in kind.judged(answered.findings)), "-")
    own = next((one for one in answered.findings if one.rule.id == kind.rule), None)
    estimated = "-" if own is None or own.gain_ns is None else duration(own.gain_ns)
    simulated = "-" if own is None or own.simulated_ns is None else duration(own.simulated_ns)
    true = f"{duration(answered.true_gain_ns)}" if kind.has_gain else "none a step"
    part = share(answered.true_gain_ns / answered.step_ns) if kind.has_gain else "-"
    cells = (kind.title, strength.label, part, first, str(named or "-"), estimated, simulated, true)
    return f"| {' | '.join(cells)} |\n"


def _limits() -> Iterator[str]:
    for kind in KINDS:
        weakest = kind.strengths[kind.first_named]
        answered = answer(weakest)
        part = f", {share(answered.true_gain_ns / answered.step_ns)} of the step" if kind.has_gain else ""
        yield f"| {kind.title} | [{kind.rule}](findings/{kind.rule}.md) | {weakest.label}{part} |\n"
