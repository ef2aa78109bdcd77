"""What stands above a comparison's tables: what was compared, how well it matches, and what moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.compare.side import DifferenceKind
from xsp_analyze.pages.compare.results import result_sentences
from xsp_analyze.pages.compare.texts import signed_duration, unit_of_time
from xsp_analyze.text.shown import clean
from xsp_analyze.text.units import apart, share

if TYPE_CHECKING:
    from xsp_analyze.compare.comparison import Comparison
    from xsp_analyze.compare.rows import ClassMoves
    from xsp_analyze.compare.side import Facts, Side

__all__ = ["sentences", "side_line"]

_MOVED_TOLD = 3
_CLASSES_TOLD = 3


def sentences(c: Comparison) -> list[str]:
    """What stands above all tables: whether the two compare, in what they differ, how well they match.

    Of the same content that it is the same, and nothing else.
    """
    if c.same_content:
        return [clean(f"{c.before.name} and {c.after.name} hold the same: there is nothing to compare.")]
    lines = [f"before: {side_line(c.before)}", f"after:  {side_line(c.after)}"]
    if not c.comparable:
        lines.append(f"NOT COMPARABLE: {'; '.join(c.reasons)}. The ratios below compare different work.")
    other = [d for d in c.differences if d.kind is not DifferenceKind.WORK]
    differences = "; ".join(f"{d.what} ({d.before} before, {d.after} after)" for d in other)
    if differences:
        lines.append(f"Different: {differences}.")
    elif c.comparable:
        lines.append("Model, system and settings are the same, as far as the files tell.")
    else:
        lines.append("Nothing else that the files tell is different.")
    lines += result_sentences(c)
    lines.append(_match(c))
    lines += [_moves_sentence(one, unit_of_time(c)) for one in c.moves[:_CLASSES_TOLD]]
    return [clean(line) for line in lines]


def side_line(side: Side) -> str:
    """One side in a line: its file, what ran, on what, how often."""
    facts: Facts = side.facts
    batch = f"batch {facts.batch_size}" if facts.batch_size else None
    framework = " ".join(filter(None, (facts.framework, facts.framework_version)))
    steps = f"{facts.steps} {'step' if facts.steps == 1 else 'steps'}" if facts.steps else "taken whole"
    if facts.captures > 1:
        steps += f" in each of {facts.captures} captures"
    parts = (facts.model, batch, facts.precision, framework, facts.device, steps)
    return f"{side.name} ({', '.join(part for part in parts if part)})"


def _match(c: Comparison) -> str:
    layers = (
        "unknown (a side has no layers)" if c.layer_match is None else f"{share(c.layer_match)} by {c.layer_pairing}"
    )
    kernels = "unknown (a side has none)" if c.kernel_match is None else share(c.kernel_match)
    return f"Counterparts found: layers {layers}; kernels {kernels} by name and launch."


def _moves_sentence(one: ClassMoves, per: str) -> str:
    before, after = apart((one.before_ns, one.after_ns), "ns")
    times = f"takes {before} of {per} before and {after} after"
    less, more = (
        ", ".join(_part_with_difference(part) for part in parts[:_MOVED_TOLD]) for parts in (one.losses, one.gains)
    )
    return f"Time moved: {one.kernel_class} {times}; less in {less}, more in {more}."


def _part_with_difference(part: tuple[str, float]) -> str:
    return f"{part[0]} ({signed_duration(part[1])})"
