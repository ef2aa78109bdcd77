"""What a rule finds: one thing worth doing, or one reason to doubt, with its evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xsp_analyze.findings.facts import Facts

__all__ = ["Advice", "Evidence", "Observation", "Rule", "rule"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that a finding rests on, in a unit at rest (ns, byte, share, or none for a count)."""

    label: str
    value: float | None
    unit: str = "ns"


@dataclass(frozen=True, slots=True)
class Observation:
    """What a rule's function says where it fires.

    `gain_ns` is the most that acting on it takes off a step (or off the trace, where that has no steps); null: unknown.
    `rows` is where the report shows the rows behind it: an analysis's id, and perhaps what to search for there.
    """

    sentence: str
    evidence: Sequence[Evidence] = ()
    gain_ns: float | None = None
    rows: str = ""
    search: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: when it fires, what is then to be gained, and what to do; these words are its page in the docs.

    `on_trust` rules doubt the numbers instead of the program: they come first and have no gain.
    """

    id: str
    title: str
    fires: str
    why: str
    gain: str
    do: str
    source: str
    find: Callable[[Facts], Iterator[Observation]] = field(compare=False)
    on_trust: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding: the rule that fired and what it observed; `gain_share` is of model latency."""

    rule: Rule
    observation: Observation
    gain_ns: float | None
    gain_share: float | None


def rule(
    id: str,  # noqa: A002 (the field's name)
    title: str,
    *,
    fires: str,
    why: str,
    gain: str,
    do: str,
    source: str,
    on_trust: bool = False,
) -> Callable[[Callable[[Facts], Iterator[Observation]]], Rule]:
    """Turns `name(facts) -> Iterator[Observation]` into a Rule."""

    def wrap(find: Callable[[Facts], Iterator[Observation]]) -> Rule:
        return Rule(id, title, fires, why, gain, do, source, find, on_trust)

    return wrap
