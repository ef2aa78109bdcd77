"""What LoadGen says of a test as a whole: which test it was, its latencies, and whether it was valid."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Outcome", "combined", "sentences"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one log says; None and empty: it does not say.

    `figures` are keyed by metric: `latency_min_ns`, `latency_p99_90_ns`, `completed_sample_per_s`, ...
    `rules` says of each rule whether it was kept; a rule that was not judged is not in it.
    """

    version: str | None = None
    scenario: str | None = None
    mode: str | None = None
    valid: bool | None = None
    rules: Mapping[str, bool] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    samples_per_query: int | None = None
    reason: str = ""
    warnings: int = 0
    errors: int = 0
    epoch_ns: int | None = None  # Unix time when the first query was due


def combined(first: Outcome, second: Outcome) -> Outcome:
    """What both logs say together; where they differ the first one counts."""
    return Outcome(
        version=first.version or second.version,
        scenario=first.scenario or second.scenario,
        mode=first.mode or second.mode,
        valid=second.valid if first.valid is None else first.valid,
        rules={**second.rules, **first.rules},
        figures={**second.figures, **first.figures},
        samples_per_query=first.samples_per_query or second.samples_per_query,
        reason=first.reason or second.reason,
        warnings=max(first.warnings, second.warnings),
        errors=max(first.errors, second.errors),
        epoch_ns=second.epoch_ns if first.epoch_ns is None else first.epoch_ns,
    )


def sentences(text: str) -> str:
    """LoadGen's list of remarks as running text."""
    return " ".join(text.replace("*", " ").split())
