"""What fuzzing starts from: the fixtures of a format, sound and broken ones, and inputs that once broke a reader."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["Seed", "formats", "seeds"]

_FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
_OURS = {"case.toml", "expected.toml"}


@dataclass(frozen=True, slots=True)
class Seed:
    """A fixture's folder and the files in it, by their paths inside it."""

    name: str
    folder: Path
    files: tuple[str, ...]


@cache
def seeds(format_name: str) -> tuple[Seed, ...]:
    """The format's seeds in order of their names."""
    collected = []
    for about in sorted((_FIXTURES / format_name).rglob("case.toml")):
        folder = about.parent
        files = sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file() and f.name not in _OURS)
        collected.append(Seed(str(folder.relative_to(_FIXTURES)), folder, tuple(files)))
    return tuple(seed for seed in collected if seed.files)


def formats() -> tuple[str, ...]:
    """The formats that have fixtures."""
    return tuple(sorted({about.relative_to(_FIXTURES).parts[0] for about in _FIXTURES.rglob("case.toml")}))
