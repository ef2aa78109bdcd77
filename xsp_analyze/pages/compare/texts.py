"""A comparison's numbers as people read them: changes, intervals, verdicts, differences with their sign."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.compare.rows import Conclusion
from xsp_analyze.text.units import THIN_SPACE, UNKNOWN, count, duration, share

if TYPE_CHECKING:
    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rows import Row

__all__ = [
    "change",
    "change_columns",
    "interval",
    "percent_change",
    "signed_duration",
    "unit_of_time",
    "verdict",
    "with_sign",
]


def unit_of_time(c: Comparison) -> str:
    """What all times of the comparison are of."""
    frames = c.before.views[0]
    step = f"a {frames.serving_phase} step" if frames.serving_phase else "a step"
    return "an input" if c.per_input else step if frames.averaged else "the whole trace"


def change(row: Row) -> str:
    """The change in percent, or in words where one side has none; large ones as a factor."""
    if row.change in {"appeared", "vanished"}:
        return "new" if row.change == "appeared" else "gone"
    return UNKNOWN if row.ratio is None else percent_change(row.ratio)


_AS_FACTOR = 10.0
_UNBOUNDED = 1e4  # an interval this wide says nothing


def percent_change(ratio: float) -> str:
    change = ratio - 1
    return f"{count(ratio)}{THIN_SPACE}x" if ratio >= _AS_FACTOR else with_sign(change, share(change))


def interval(row: Row) -> str:
    """The ends of the interval as changes; empty where they are not known."""
    if row.low is None or row.high is None:
        return ""
    if row.high > _UNBOUNDED * row.low:
        return "unbounded"
    low, high = percent_change(row.low), percent_change(row.high)
    return f"{low.removesuffix(f'{THIN_SPACE}%')} to {high}" if high.endswith("%") else f"{low} to {high}"


_VERDICTS = {
    Conclusion.CHANGED: "significant",
    Conclusion.UNCHANGED: "within noise",
    Conclusion.INCONCLUSIVE: "inconclusive",
}


def verdict(row: Row) -> str:
    """Whether the change is more than noise, in a word; empty where that is not known."""
    return "" if row.conclusion is None else _VERDICTS[row.conclusion]


def signed_duration(value: float | None) -> str:
    """A difference of times, with its sign and the unit that suits it."""
    return with_sign(value, duration(value))


def with_sign(value: float | None, text: str) -> str:
    """What a difference reads as, with a plus where it is more than nothing."""
    return f"+{text}" if value is not None and value > 0 else text


def change_columns(unit: str) -> list[tuple[str, str, bool, int]]:
    """The columns of a change; where there is no room the interval goes first, then the difference."""
    return [
        ("before", unit, True, 1),
        ("after", unit, True, 1),
        ("difference", unit, True, 4),
        ("change", "", True, 1),
        ("95 % interval", "", True, 5),
        ("significance", "", False, 2),
    ]
