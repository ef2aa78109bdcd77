"""What acting on findings would gain by simulation, one by one and the first three together; they are ranked by it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from xsp_analyze.findings.thresholds import EXPLAINED
from xsp_analyze.frames.steps import StepMode
from xsp_analyze.needs import holds
from xsp_analyze.text.doubts import lost_work
from xsp_analyze.what_if.changes import Change
from xsp_analyze.what_if.simulate import simulation
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.findings.advice import Advice
    from xsp_analyze.trace.step_view import StepView
    from xsp_analyze.what_if.simulate import Simulation

__all__ = ["TOGETHER", "changes_for", "with_gain_together", "with_simulated_gains"]

TOGETHER = 3
"""How many of the first findings are simulated together."""
_ALWAYS: Mapping[str, Sequence[Change]] = {
    "data-wait": (Change("input"),),
    "host-sync": (Change("no-sync"), Change("copies", "async")),
    "launch-bound": (Change("graph", "steps"),),
    "exposed-communication": (Change("overlap"),),
    "recompilation": (Change("compilation"),),
    "unfused-chains": (Change("fuse"),),
    "recompute": (Change("no-recompute"),),
}
"""What acting on it comes to, whatever the trace."""
_OF_CLASS: Mapping[str, str] = {
    "fp32-products": "matrix product|convolution",
    "optimizer-kernels": "optimizer",
    "copies-in-step": "copy",
    **dict.fromkeys(
        ("below-roof", "far-from-peak", "memory-bound", "excess-traffic", "tail-waste", "small-grids"), ".*"
    ),
    **dict.fromkeys(("unfused-attention", "dominant-kernel", "dominant-layer", "stalled-layer"), ".*"),
}
"""Which device work, by class, is to be shorter by as much as the finding says at most."""
_PINNING, _HARDLY = "pageable-copies", 1e-9
_UPDATES = r"Optimizer\.(?:step|zero_grad)#"  # as torch.profiler names them
_OF_HOST = ("host-dominant", "short-operators", "gpu-idle", "graph-breaks")


def changes_for(made: Simulation, one: Advice) -> Sequence[Change]:
    """What acting on a finding comes to (of an unknown gain, were all that it is about gone); nothing where unknown."""
    if one.rule.id in _ALWAYS:
        return _ALWAYS[one.rule.id]
    bound = one.observation.about_ns if one.gain_ns is None else one.gain_ns
    if bound is None:
        return ()
    if one.rule.id == _PINNING:
        time = _step_time(made, made.program.pageable_work)
        return (Change("copies", "pinned", max(1 - bound / time, _HARDLY)),) if time else ()
    if one.rule.id in _OF_CLASS:
        pattern = _OF_CLASS[one.rule.id]
        is_one = pl.col("kernel_class").cast(pl.String).str.contains(f"^(?:{pattern})")
        time = _step_time(made, made.graph.work.filter(is_one))
        on_host = _updates(made, one) if one.rule.id == "optimizer-kernels" else ()
        return (*on_host, Change("scale", f"class:{pattern}", max(1 - bound / time, 0.0))) if time else ()
    if one.rule.id in _OF_HOST and made.step_ns:
        return (Change("host", "", max(1 - bound / made.step_ns, 0.0)),)
    return ()


def _step_time(made: Simulation, work: pl.DataFrame) -> float:
    """Time of such work a step of those chosen."""
    steps = 1 if made.view.choice.mode is StepMode.ALL else max(made.view.steps.height, 1)
    return float(made.view.of_chosen_steps(work)["duration_ns"].sum()) / steps


def _updates(made: Simulation, one: Advice) -> Sequence[Change]:
    """Ranges of the optimizer take as long as one of its launches; nothing where they are not recorded."""
    names = made.graph.threads.spans["name"].unique().cast(pl.String)
    kernels = next((each.value for each in one.observation.evidence if each.label == "kernels"), None)
    if not kernels or not names.str.contains(f"^(?:{_UPDATES})").any():
        return ()
    return (Change("scale", f"range:{_UPDATES}", 1 / kernels),)


def with_simulated_gains(frames: StepView, advice: Sequence[Advice]) -> list[Advice]:
    """The findings with what a simulation gains, where one can be trusted: never more than the most they say."""
    view = frames.of_trace
    if not advice or not (holds(view, "kernel") and holds(view, "runtime")) or view.is_leveled or view.once(lost_work):
        return list(advice)
    try:
        made = simulation(frames)
    except XspError:  # nothing of the host was recorded
        return list(advice)
    if made.confidence.refusals:
        return list(advice)
    return [_with_gain(made, one) for one in advice]


def _with_gain(made: Simulation, one: Advice) -> Advice:
    gain = None if one.rule.on_trust else _gain(made, changes_for(made, one))
    if gain is None:
        return one
    bound = one.observation.about_ns if one.gain_ns is None else one.gain_ns
    gain = max(gain if bound is None else min(gain, bound), 0.0)
    if made.confidence.warnings and gain < EXPLAINED * (bound or 0.0):
        return one  # what the host waited for in its quiet is not known, and may have been this
    return replace(one, simulated_ns=gain)


def with_gain_together(frames: StepView, advice: Sequence[Advice]) -> list[Advice]:
    """The findings in their order; the first says what the first three that were simulated gain together.

    What a change gains beyond the most that its finding says is not of the finding, alone or together with others.
    """
    simulated = [one for one in advice if one.gain_ns is not None and one.simulated_ns][:TOGETHER]
    if len(simulated) < 2:  # noqa: PLR2004 (of one alone it is its own)
        return list(advice)
    made = simulation(frames)
    gain = _gain(made, [change for one in simulated for change in changes_for(made, one)])
    if gain is not None:
        alone = [one.simulated_ns or 0.0 for one in simulated]
        beyond = sum(
            (_gain(made, changes_for(made, one)) or 0.0) - gained for one, gained in zip(simulated, alone, strict=True)
        )
        gain = min(max(gain - max(beyond, 0.0), *alone), sum(one.gain_ns or 0.0 for one in simulated))
    first = simulated[0]
    return [replace(one, together_ns=gain) if one is first else one for one in advice]


def _gain(made: Simulation, changes: Sequence[Change]) -> float | None:
    if not changes:
        return None
    try:
        return made.gain_ns(list(dict.fromkeys(changes)))
    except XspError:  # of a part that the trace does not have
        return None
