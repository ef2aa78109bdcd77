"""What changes would gain, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.render.terminal import table_lines
from xsp_analyze.text.table import Table, of_rows
from xsp_analyze.text.units import duration, share

if TYPE_CHECKING:
    from xsp_analyze.what_if.answer import WhatIf
    from xsp_analyze.what_if.simulate import Gain

__all__ = ["as_text", "gains_table", "path_table"]

_MAX_PARTS = 8


def gains_table(answer: WhatIf) -> Table:
    """A row a change, and one of all together."""
    rows = [_row(" ".join(map(str, each.changes)), each, answer.step_ns) for each in answer.alone]
    if len(answer.alone) > 1:
        rows.append(_row("all together", answer.together, answer.step_ns))
    columns = (
        ("change", "", False, 0), (answer.per, "", True, 0), ("gain", "", True, 0), ("share", "", True, 1),
        ("range of the gain", "", True, 2),
    )  # fmt: skip
    return of_rows("What it would gain", columns, rows)


def _row(name: str, gain: Gain, step_ns: float) -> tuple[str, ...]:
    spread = f"{duration(gain.low_ns)} to {duration(gain.high_ns)}"
    part = share(gain.gain_ns / step_ns) if step_ns else ""
    return name, duration(gain.step_ns), duration(gain.gain_ns), part, spread


def path_table(answer: WhatIf) -> Table:
    """What the job waits for, as it is and with all changes, most first."""
    before, after = answer.path, answer.together.path
    names = sorted({*before, *after}, key=lambda name: (-max(before.get(name, 0.0), after.get(name, 0.0)), name))
    rows = [(name, duration(before.get(name, 0.0)), duration(after.get(name, 0.0))) for name in names[:_MAX_PARTS]]
    return of_rows(
        "On the critical path", (("what", "", False, 0), ("before", "", True, 0), ("after", "", True, 0)), rows
    )


def as_text(answer: WhatIf, width: int | None = None) -> str:
    """For a terminal: the baseline and how well it is replayed, gains, the path before and after, and caveats."""
    confidence = answer.confidence
    head = (
        f"The {answer.per} takes {duration(answer.step_ns)}; the replay of what was recorded is off by"
        f" {share(confidence.mean_error)} (at most {share(confidence.worst_error)})."
    )
    lines = [head, "", *table_lines(gains_table(answer), width), "", *table_lines(path_table(answer), width)]
    return "\n".join([*lines, *(["", *answer.caveats] if answer.caveats else [])]) + "\n"
