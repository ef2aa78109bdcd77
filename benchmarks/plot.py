"""Peak memory over the size of the trace, as an SVG: `python -m benchmarks.plot MEASURED TARGET`, with matplotlib."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.store import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.store import Measured

__all__ = ["draw"]

_MB = 1_000_000
_COLOURS = {"xsp convert": "#0b6e4f", "HTA": "#b3541e", "torch-tb-profiler": "#6a4c93", "pandas": "#555555"}
_MARKS = {"xsp convert": "o", "HTA": "s", "torch-tb-profiler": "^", "pandas": "D"}


def draw(sizes: Sequence[Measured], target: Path) -> None:
    """Resident memory, solid; for us also what of it is private, dashed. Both axes are logarithmic."""
    import matplotlib as mpl  # noqa: PLC0415 (only a plot needs it)

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    mpl.rcParams.update({"svg.hashsalt": "xsp", "font.size": 11, "svg.fonttype": "none"})
    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    for way, colour in _COLOURS.items():
        resident, private = (_line(sizes, way, private=private) for private in (False, True))
        if resident:
            axes.plot(*zip(*resident, strict=True), color=colour, marker=_MARKS[way], label=way)
        if private and way == "xsp convert":
            axes.plot(*zip(*private, strict=True), color=colour, ls="--", marker=_MARKS[way], mfc="none",
                      label="xsp convert, private")  # fmt: skip
    span = [min(s.facts["bytes"] for s in sizes) / _MB, max(s.facts["bytes"] for s in sizes) / _MB]
    axes.plot(span, span, color="#bbbbbb", lw=1, zorder=0, label="as much as the file")
    axes.set(xscale="log", yscale="log", xlabel="trace, MB of JSON", ylabel="peak memory, MB")
    axes.grid(visible=True, which="major", color="#e6e6e6")
    axes.legend(frameon=False, fontsize=10)
    for number in (axes.xaxis, axes.yaxis):
        number.set_major_formatter(lambda value, _: f"{value:,.0f}")
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)


def _line(sizes: Sequence[Measured], way: str, *, private: bool) -> list[tuple[float, float]]:
    return [
        (
            each.facts["bytes"] / _MB,
            median(each.values(way, lambda s: (s.private_bytes if private else s.peak_bytes) / _MB)),
        )
        for each in sizes
        if each.samples.get(way)
    ]


if __name__ == "__main__":
    draw([each for key, each in load(Path(sys.argv[1])).items() if key.startswith("size-")], Path(sys.argv[2]))
