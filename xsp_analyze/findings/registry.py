"""Every rule, listed once, and what they find in a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.findings import computing, confidence, copying, fusion, idle, roof, training, uneven
from xsp_analyze.findings.advice import Advice
from xsp_analyze.findings.facts import Facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from xsp_analyze.core import Result
    from xsp_analyze.findings.advice import Observation, Rule
    from xsp_analyze.frames.step_frames import StepFrames

__all__ = ["RULES", "advise"]

RULES: tuple[Rule, ...] = (
    confidence.orphans,
    confidence.unattributed,
    confidence.no_modules,
    confidence.profiling_overhead,
    confidence.few_steps,
    confidence.unmatched,
    idle.gpu_idle,
    idle.launch_bound,
    idle.host_sync,
    idle.data_wait,
    uneven.uneven_steps,
    uneven.uneven_devices,
    copying.exposed_communication,
    copying.copies_in_step,
    copying.pageable_copies,
    computing.dominant_kernel,
    computing.dominant_layer,
    roof.below_roof,
    roof.memory_bound,
    computing.fp32_products,
    fusion.unfused_chains,
    training.recompute,
    training.many_optimizer_kernels,
    training.small_batch,
)
"""In the order in which findings of equal gain are told."""


def advise(frames: StepFrames, of: Callable[[str], Result | str] | None = None) -> list[Advice]:
    """What the rules find: doubts about the numbers first, then what promises most; unknown gains last.

    Gains are upper bounds, each alone: they overlap, and do not add up. `of` answers analyses by id over these frames.
    """
    facts = Facts(frames, of)
    advice = [_advice(rule, one, facts) for rule, one in _fired(facts)]
    return sorted(advice, key=lambda a: (not a.rule.on_trust, -(a.gain_ns if a.gain_ns is not None else -1.0)))


def _fired(facts: Facts) -> Iterator[tuple[Rule, Observation]]:
    for rule in RULES:
        for observation in rule.find(facts):
            yield rule, observation


def _advice(rule: Rule, observation: Observation, facts: Facts) -> Advice:
    """The finding with its gain, which no step can exceed."""
    gain = observation.gain_ns
    if gain is None or not facts.latency_ns:
        return Advice(rule, observation, gain, None)
    gain = min(gain, facts.latency_ns)
    return Advice(rule, observation, gain, gain / facts.latency_ns)
