"""Every rule, listed once, and what they find in a trace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_analyze.findings import (
    compiled,
    computing,
    confidence,
    copying,
    fusion,
    idle,
    leveled,
    ranks,
    roof,
    shapes,
    thresholds,
    traffic,
    training,
    uneven,
    waves,
)
from xsp_analyze.findings.advice import Advice
from xsp_analyze.findings.elsewhere import advice_for
from xsp_analyze.findings.facts import Facts
from xsp_analyze.needs import holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from xsp_analyze.findings.advice import Observation, Rule
    from xsp_analyze.trace.step_view import StepView

__all__ = ["RULES", "advise"]

RULES: tuple[Rule, ...] = (
    confidence.device_only,
    confidence.orphans,
    confidence.unattributed,
    compiled.graph_replays,
    confidence.no_modules,
    confidence.profiling_overhead,
    confidence.few_steps,
    confidence.unmatched,
    leveled.runs_disagree,
    uneven.ramp_up,
    uneven.host_ahead,
    ranks.straggler,
    ranks.unbalanced_pipeline,
    ranks.small_collectives,
    idle.data_wait,
    compiled.recompilation,
    idle.host_sync,
    compiled.graph_breaks,
    idle.launch_bound,
    idle.gpu_idle,
    uneven.uneven_steps,
    ranks.uneven_devices,
    ranks.exposed_communication,
    copying.pageable_copies,
    copying.copies_in_step,
    computing.fp32_products,
    fusion.unfused_chains,
    roof.below_roof,
    roof.memory_bound,
    traffic.excess_traffic,
    shapes.far_from_peak,
    waves.tail_waste,
    waves.small_grids,
    computing.dominant_kernel,
    computing.dominant_layer,
    training.recompute,
    training.many_optimizer_kernels,
    training.small_batch,
)
"""In the order in which findings of equal gain are told."""


def advise(frames: StepView, captures: Sequence[str] = ()) -> list[Advice]:
    """What the rules find: what promises most first, unknown gains after it, doubts about the numbers last.

    Gains are upper bounds, each alone: they overlap, and do not add up. `captures` are paths beside the trace that look
    like traces of graphs' capture.
    """
    facts = Facts(frames, captures)
    advice = _unexplained([_advice(rule, _fitted(rule, one, facts), facts) for rule, one in _fired(facts)])
    kept = [one for one in advice if one.rule.on_trust or one.gain_share is None or one.gain_share >= thresholds.FLOOR]
    return sorted(kept, key=lambda a: (a.rule.on_trust, -(a.gain_ns if a.gain_ns is not None else -1.0)))


def _fitted(rule: Rule, observation: Observation, facts: Facts) -> Observation:
    """The observation with what to do under the framework of the trace; rules speak of PyTorch."""
    elsewhere = advice_for(rule.id, facts.context.framework)
    return replace(observation, do=elsewhere) if elsewhere else observation


def _fired(facts: Facts) -> Iterator[tuple[Rule, Observation]]:
    for rule in RULES:
        if all(holds(facts.frames.of_trace, need) for need in rule.needs):
            for observation in rule.find(facts):
                yield rule, observation


def _advice(rule: Rule, observation: Observation, facts: Facts) -> Advice:
    """The finding with its gain, which no step can exceed."""
    gain = observation.gain_ns
    if gain is None or not facts.latency_ns:
        return Advice(rule, observation, gain, None)
    gain = min(gain, facts.latency_ns)
    return Advice(rule, observation, gain, gain / facts.latency_ns)


def _unexplained(advice: Sequence[Advice]) -> list[Advice]:
    """Those of which no other finding explains most; of two that explain each other the first stays."""
    kept: list[Advice] = list(advice)
    for one in advice:
        causes = [a for a in kept if one.rule.id in a.rule.explains and a is not one]
        is_known = one.gain_ns is None or any(a.rule.on_trust for a in causes)
        if causes and (
            is_known or sum(a.gain_ns or 0.0 for a in causes) >= thresholds.EXPLAINED * (one.gain_ns or 0.0)
        ):
            kept.remove(one)
    return kept
