"""What a rule finds: one thing worth doing, or one reason to doubt, with its evidence; and words that several say."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from shlex import quote
from typing import TYPE_CHECKING

from xsp_analyze.text.table import clean
from xsp_analyze.text.units import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from xsp_analyze.findings.facts import Facts
    from xsp_analyze.needs import Need

__all__ = ["RECORD_NODES", "Advice", "Basis", "Evidence", "Observation", "Rule", "give_captures", "rule", "times"]


class Basis(StrEnum):
    """What a gain is estimated from."""

    MEASURED = "times in the trace"
    PEAKS = "times in the trace and peak rates of the device"
    MODELLED = "shapes of operators, times in the trace and peak rates of the device"
    LAUNCHES = "times in the trace, grids and blocks of kernels and the size of the device"
    COUNTERS = "hardware counters and peak rates of the device"
    UNKNOWN = "nothing: the trace does not say"
    DOUBT = "nothing: this is about the numbers"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that a finding rests on, in a unit at rest (ns, byte, share, or none for a count)."""

    label: str
    value: float | None
    unit: str = "ns"


@dataclass(frozen=True, slots=True)
class Observation:
    """What a rule's function says where it fires.

    `gain_ns` is the most that acting on it takes off a step (or off the trace, where that has no steps); null: unknown,
    and then `about_ns`, the time that it is about, ranks it. `coverage` is the part of what the rule judges that it
    could judge. `rows` is where the report shows the rows behind it: an analysis's id, and perhaps what to search for
    there. `do` replaces the rule's where it depends on the trace; `is_for_any`: whatever the framework.
    """

    sentence: str
    evidence: Sequence[Evidence] = ()
    gain_ns: float | None = None
    rows: str = ""
    search: str = ""
    do: str = ""
    is_for_any: bool = False
    coverage: float = 1.0
    basis: Basis | None = None
    about_ns: float | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: when it fires, what is then to be gained, and what to do; these words are its page in the docs.

    `needs`: without each of these the rule has nothing to say. `explains`: ids of rules that tell of the
    same time with less to do about it; they are silent where this one explains most of what they would gain.
    `on_trust` rules doubt the numbers instead of the program: they stand apart and have no gain. What `first` ones say
    is to be known before any number.
    """

    id: str
    title: str
    fires: str
    why: str
    gain: str
    do: str
    source: str
    find: Callable[[Facts], Iterator[Observation]] = field(compare=False)
    basis: Basis = Basis.MEASURED
    needs: Sequence[Need] = ()
    explains: Sequence[str] = ()
    on_trust: bool = False
    first: bool = False


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding: the rule that fired and what it observed; `gain_share` is of model latency.

    `simulated_ns` is what a simulation gains (null: none was made), of an unknown gain were all that it is about gone;
    `together_ns` of the first of a list what the first few gain together.
    """

    rule: Rule
    observation: Observation
    gain_ns: float | None
    gain_share: float | None
    simulated_ns: float | None = None
    together_ns: float | None = None

    @property
    def do(self) -> str:
        """What to do about it, in this trace."""
        return self.observation.do or self.rule.do

    @property
    def basis(self) -> Basis:
        """What the gain is estimated from."""
        if self.gain_ns is None and not self.rule.on_trust:
            return Basis.UNKNOWN
        return self.observation.basis or self.rule.basis


def rule(
    id: str,  # noqa: A002 (the field's name)
    title: str,
    *,
    fires: str,
    why: str,
    gain: str,
    do: str,
    source: str,
    basis: Basis = Basis.MEASURED,
    needs: Sequence[Need] = (),
    explains: Sequence[str] = (),
    on_trust: bool = False,
    first: bool = False,
) -> Callable[[Callable[[Facts], Iterator[Observation]]], Rule]:
    """Turns `name(facts) -> Iterator[Observation]` into a Rule."""

    def wrap(find: Callable[[Facts], Iterator[Observation]]) -> Rule:
        return Rule(
            id, title, fires, why, gain, do, source, find,
            basis=Basis.DOUBT if on_trust else basis, needs=needs, explains=explains, on_trust=on_trust, first=first,
        )  # fmt: skip

    return wrap


# Words that several sentences have in common.

RECORD_NODES = (
    "Record each node of a replay, from before the graphs are captured on (nsys profile --cuda-graph-trace=node): nodes"
    " tell where they were captured"
)
"""What to do about replays in traces that hold no PyTorch launches to pair them with."""


def times(number: float) -> str:
    """How often: `once`, `twice`, `17 times`, `0.5 times` (of a mean step)."""
    named = {1: "once", 2: "twice"}
    return named.get(round(number, 1), f"{count(round(number, 1))} times")  # type: ignore[call-overload, no-any-return]


def give_captures(paths: Sequence[str]) -> str:
    """What to do where traces of graphs' capture seem to lie beside the trace."""
    options = " ".join(f"--graph-capture {clean(quote(path))}" for path in paths)
    return f"Give the capture that lies beside the trace: {options}"
