"""The mean step of every rank side by side, as a figure: what it computed, what communication it could not hide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze.pages.cohort.markup import escaped
from xsp_analyze.render.units import duration

if TYPE_CHECKING:
    import polars as pl

__all__ = ["strip"]

_WIDE, _HIGH, _LEFT, _BELOW = 1180, 190, 76, 22
_PARTS = (  # column, words, colour: from the bottom up
    ("compute_ns", "compute", "var(--g1)"),
    ("exposed_communication_ns", "exposed communication", "var(--g0)"),
    ("rest_ns", "the rest of the step", "var(--g13)"),
)
_TICKS = 4


def strip(ranks: pl.DataFrame) -> str:
    """One bar a rank, in their order; empty where no rank has a step. Takes the frame of `Job.by_rank`."""
    rows = [_parts(row) for row in ranks.iter_rows(named=True) if row["step_ns"]]
    if not rows:
        return ""
    most = max(sum(parts.values()) for _, parts in rows)
    step = (_WIDE - _LEFT) / len(rows)
    bars = "".join(_bar(n, rank, parts, step, most) for n, (rank, parts) in enumerate(rows))
    ticks = "".join(_tick(n / _TICKS, most) for n in range(_TICKS + 1))
    names = "".join(
        f'<text class="tick" x="{_LEFT + step * (n + 0.5):.1f}" y="{_HIGH + _BELOW}" text-anchor="middle">'
        f"{rows[n][0]}</text>"
        for n in _named(len(rows))
    )
    legend = "".join(f'<li><i style="background:{colour}"></i>{words}</li>' for _, words, colour in _PARTS)
    told = f"Mean step of each of {len(rows)} ranks; the longest takes {duration(round(most))}"
    return (
        f'<ul class="legend">{legend}</ul><div class="scroll" tabindex="0" role="region"'
        f' aria-label="Steps of all ranks">'
        f'<svg width="{_WIDE}" height="{_HIGH + _BELOW + 6}" viewBox="0 0 {_WIDE} {_HIGH + _BELOW + 6}" role="img"'
        f' aria-label="{escaped(told)}">{ticks}{bars}{names}</svg></div>'
    )


def _tick(part: float, most: float) -> str:
    y = _HIGH - _HIGH * part + 6
    words = escaped(duration(round(most * part))) if part else "0"
    return (
        f'<line x1="{_LEFT}" x2="{_WIDE}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{words}</text>'
    )


def _parts(row: dict[str, float]) -> tuple[int, dict[str, float]]:
    """The rank and the parts of its step; work that outlasts the step leaves nothing of the rest."""
    compute, exposed = row["compute_ns"] or 0.0, row["exposed_communication_ns"] or 0.0
    rest = max(row["step_ns"] - compute - exposed, 0.0)
    return int(row["rank"]), {"compute_ns": compute, "exposed_communication_ns": exposed, "rest_ns": rest}


def _bar(place: int, rank: int, parts: dict[str, float], step: float, most: float) -> str:
    drawn, y = [], _HIGH + 6.0
    for column, _, colour in _PARTS:
        high = _HIGH * parts[column] / most
        y -= high
        drawn.append(f'<rect x="{_LEFT + place * step:.2f}" y="{y:.2f}" width="{max(step * 0.9, 0.5):.2f}"'
                     f' height="{high:.2f}" style="fill:{colour}"/>')  # fmt: skip
    words = ", ".join(f"{text} {duration(round(parts[column]))}" for column, text, _ in _PARTS)
    return f"<g><title>rank {rank}: {escaped(words)}</title>{''.join(drawn)}</g>"


def _named(count: int) -> list[int]:
    """Which bars have their rank beneath: about ten."""
    return list(range(0, count, max(1, count // 10)))
