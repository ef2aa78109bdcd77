"""The answer to "what if": baseline, each change alone, all of them together, and how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xsp_analyze.frames.steps import StepMode
from xsp_analyze.what_if.simulate import simulation
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.what_if.changes import Change
    from xsp_analyze.what_if.simulate import Confidence, Gain

__all__ = ["WhatIf", "what_if"]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What changes would gain. `per` says what `step_ns` is of; `together` is of all changes, `alone` of each.

    `path` is what the job waits for as it is, in ns of a step; `caveats` say why to doubt the gains.
    """

    per: str
    step_ns: float
    path: Mapping[str, float]
    confidence: Confidence
    alone: Sequence[Gain]
    together: Gain
    caveats: Sequence[str]

    def document(self) -> dict[str, Any]:
        """In JSON's own types."""
        confidence = self.confidence
        return {
            "per": self.per,
            "step_ns": self.step_ns,
            "replay_error_mean": confidence.mean_error,
            "replay_error_worst": confidence.worst_error,
            "quiet_share": confidence.quiet_share,
            "unexplained_share": confidence.unexplained_share,
            "path_ns": dict(self.path),
            "alone": [_gain(each) for each in self.alone],
            "together": _gain(self.together),
            "caveats": list(self.caveats),
        }


def _gain(gain: Gain) -> dict[str, Any]:
    return {
        "changes": [str(each) for each in gain.changes],
        "step_ns": gain.step_ns,
        "gain_ns": gain.gain_ns,
        "gain_low_ns": gain.low_ns,
        "gain_high_ns": gain.high_ns,
        "path_ns": dict(gain.path),
    }


def what_if(view: StepView, changes: Sequence[Change]) -> WhatIf:
    """The answer; XspError where a replay cannot tell it, in one sentence that says why."""
    made = simulation(view)
    confidence = made.confidence
    if confidence.refusals:
        raise XspError(
            f"no gain can be told. {confidence.refusals[0].removesuffix('.')}", advice="`xsp findings` has upper bounds"
        )
    together = made.gain(changes)
    alone = [made.gain([each]) for each in changes] if len(changes) > 1 else [together]
    per = "job" if view.choice.mode is StepMode.ALL else "step"
    return WhatIf(per, made.step_ns, made.path(made.base), confidence, alone, together, made.caveats(together))
