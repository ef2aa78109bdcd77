"""How figures look: sizes for a column of a paper, colours that people of every sight can tell apart, a style file."""

from __future__ import annotations

import difflib
import os
import re
from contextlib import chdir, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_model import XspError
from xsp_model.errors import install_advice

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "MARKERS",
    "PALETTE",
    "SUFFIXES",
    "TONES",
    "Look",
    "drawing",
    "require_matplotlib",
    "settings",
    "width_inches",
]

SUFFIXES = ("pdf", "svg", "png")
"""What a figure can be written as."""

_COLUMNS = {"single": 3.5, "double": 7.16}  # inches: one column of a two-column paper, and the page
_PER_INCH = {"in": 1.0, "cm": 2.54, "mm": 25.4, "pt": 72.27}  # points as TeX counts them
_WIDTH = re.compile(r"(\d+(?:\.\d+)?)\s*(in|cm|mm|pt)?")
_MIN_INCHES, _MAX_INCHES = 1.0, 40.0

TONES: Mapping[str, str] = {
    "gpu": "#0072B2",
    "layer": "#0072B2",
    "compute": "#009E73",
    "communication": "#D55E00",
    "memory": "#E69F00",
    "rest": "#BBBBBB",
    "idle": "#DDDDDD",
}
"""The colour of each tone of the page, from the palette of Okabe and Ito."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
"""A precision's mark, so that no two differ by colour alone."""

_DEFAULTS: Mapping[str, Any] = {
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.linewidth": 0.4,
    "grid.color": "#D0D0D0",
    "lines.linewidth": 1.0,
    "lines.markersize": 4,
    "savefig.dpi": 300,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
_ALWAYS: Mapping[str, Any] = {
    "text.parse_math": False,  # a dollar in a kernel's name is a dollar
    "text.usetex": False,
    "pdf.fonttype": 42,  # fonts are embedded whole; publishers refuse type 3
    "svg.fonttype": "path",
    "svg.hashsalt": "xsp",  # the same figure is the same file
}


@dataclass(frozen=True, slots=True)
class Look:
    """How a figure is to look: its width in inches (null: what suits it), and a matplotlib style file."""

    width: float | None = None
    style: Path | None = None


def width_inches(text: str) -> float:
    """`single`, `double`, or a length such as `3.5in`, `89mm`, `252pt` (inches without a unit); else XspError."""
    if text in _COLUMNS:
        return _COLUMNS[text]
    match = _WIDTH.fullmatch(text.strip())
    inches = float(match[1]) / _PER_INCH[match[2] or "in"] if match else 0.0
    if not _MIN_INCHES <= inches <= _MAX_INCHES:
        raise XspError(
            f"{text!r} is no width of a figure",
            advice="Give single, double or a length between 1in and 40in, such as 3.5in, 89mm or 252pt",
        )
    return inches


def require_matplotlib() -> None:
    """XspError where matplotlib is not installed.

    As it is imported it reads a `matplotlibrc` of the current folder, which may be a stranger's: so elsewhere.
    """
    elsewhere = chdir(Path(__file__).parent) if os.path.lexists("matplotlibrc") else nullcontext()
    try:
        with elsewhere:
            import matplotlib as _  # noqa: F401, ICN001, PLC0415 (an extra; only for figures)
    except ImportError as error:
        raise XspError("figures need matplotlib", advice=install_advice("figures")) from error


@contextmanager
def drawing(style: Path | None) -> Iterator[None]:
    """Within `with`, matplotlib draws by our settings and its own defaults, whatever it read when it was imported."""
    import matplotlib as mpl  # noqa: PLC0415 (only for figures)

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(settings(style))
        yield


def settings(style: Path | None) -> dict[str, Any]:
    """The rcParams of a figure: our defaults, then the user's file, then what keeps files whole and the same."""
    return {**_DEFAULTS, **(_of_file(style) if style else {}), **_ALWAYS}


def _of_file(path: Path) -> dict[str, Any]:
    import matplotlib as mpl  # noqa: PLC0415 (only for figures)

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise XspError(f"the style file cannot be read ({reason})", path=path) from error
    for number, line in enumerate(lines, 1):
        _check_line(path, number, line.partition(" #")[0].strip(), mpl.rcParams)
    try:
        return dict(mpl.rc_params_from_file(path, fail_on_error=True, use_default_template=False))
    except (ValueError, TypeError, KeyError) as error:
        raise XspError(f"the style file holds a value that matplotlib refuses: {error}", path=path) from error


def _check_line(path: Path, number: int, line: str, settings: Mapping[str, Any]) -> None:
    """XspError for what matplotlib would pass over with a warning."""
    key, colon, _ = line.partition(":")
    if not line or line.startswith("#") or (colon and key.strip() in settings):
        return
    close = difflib.get_close_matches(key.strip(), list(settings), 1)
    hint = f"Did you mean {close[0]}?" if close else "Lines read `key: value`, with matplotlib's rcParams as keys"
    raise XspError(
        f"line {number} of the style file, {line[:60]!r}, is no setting of matplotlib", path=path, advice=hint
    )
