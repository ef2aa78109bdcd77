"""What the difference of the model's latency is made of: parts in whole nanoseconds that add up to it exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["REST", "Contribution", "Waterfall", "leading", "waterfall"]

REST = {
    "device": "time with no device work, less work that overlapped",
    "host": "outside of layers",
}


@dataclass(frozen=True, slots=True)
class Contribution:
    """One part of the difference; `kernel` is what changed most within it the same way, with its own part of it."""

    name: str
    kind: str  # layer, layer_type, kernel_class, outside (device work of no layer) or rest
    before_ns: int | None
    after_ns: int | None
    difference_ns: int
    kernel: str | None = None
    kernel_difference_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Waterfall:
    """`parts` sum to `difference_ns` exactly. Times are of the device where both sides have any, else of the host.

    `by` is what the parts are: layer, layer_type or kernel_class.
    """

    basis: str
    by: str
    before_ns: int
    after_ns: int
    parts: Sequence[Contribution]

    @property
    def difference_ns(self) -> int:
        """After less before."""
        return self.after_ns - self.before_ns


Work = dict[tuple[str, str], dict[str, float]]
"""Time of a mean step by part (kind, name) and, in it, by kernel or operator."""


def waterfall(basis: str, by: str, total: tuple[float, float], before: Work, after: Work) -> Waterfall:
    """The parts by `by`, largest first, and last what is left of the total: idle time, overlap, work between layers."""
    first, last = round(total[0]), round(total[1])
    parts = [_part(key, before.get(key), after.get(key)) for key in dict.fromkeys([*before, *after])]
    parts.sort(key=lambda p: (-abs(p.difference_ns), p.kind, p.name))
    inside = [sum(getattr(p, column) or 0 for p in parts) for column in ("before_ns", "after_ns")]
    rest = Contribution(
        REST[basis], "rest", first - inside[0], last - inside[1], last - first - (inside[1] - inside[0])
    )
    return Waterfall(basis, by, first, last, [*parts, rest])


def _part(key: tuple[str, str], before: Mapping[str, float] | None, after: Mapping[str, float] | None) -> Contribution:
    one = None if before is None else round(sum(before.values()))
    two = None if after is None else round(sum(after.values()))
    names = dict.fromkeys([*(before or {}), *(after or {})])
    by_kernel = {n: (after or {}).get(n, 0.0) - (before or {}).get(n, 0.0) for n in names}
    difference = (two or 0) - (one or 0)
    cause = leading(by_kernel, difference)
    return Contribution(
        name=key[1],
        kind=key[0],
        before_ns=one,
        after_ns=two,
        difference_ns=difference,
        kernel=None if cause is None else cause[0],
        kernel_difference_ns=None if cause is None else round(cause[1]),
    )


def leading(differences: Mapping[str, float], total: float) -> tuple[str, float] | None:
    """What changed most the way the total did, so that a cause never has the other sign; null: nothing did."""
    alike = {name: ns for name, ns in differences.items() if ns * total > 0}
    return max(alike.items(), key=lambda item: abs(item[1]), default=None)
