"""What was measured, kept as one JSON file an experiment, so that experiments may be run one at a time."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Measured", "Sample", "load", "save"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one way; `parts` are those that the program told of, as processor and wall time in s."""

    cpu_s: float
    wall_s: float
    peak_bytes: int
    private_bytes: int
    load: float  # of the machine over the last minute, when it ended
    parts: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """An experiment's outcome: for each way its samples, a round each; of ways that failed the reason."""

    key: str
    title: str
    what: str
    command: str
    commit: str
    date: str
    ways: Mapping[str, str]  # name to title
    samples: Mapping[str, Sequence[Sample]]
    skipped: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)  # of the input: events, bytes

    def values(self, way: str, take: Callable[[Sample], float]) -> list[float]:
        """The measure in each round; empty where the way was not measured."""
        return [take(sample) for sample in self.samples.get(way, ())]

    def ratios(self, way: str, to: str, take: Callable[[Sample], float]) -> list[float]:
        """How many times as much `way` took as `to`, round by round."""
        return [a / b for a, b in zip(self.values(way, take), self.values(to, take), strict=True) if b]

    def middle(self, way: str, take: Callable[[Sample], float]) -> float | None:
        """The median over rounds."""
        values = self.values(way, take)
        return median(values) if values else None

    @property
    def loads(self) -> list[float]:
        """The machine's load beside each sample."""
        return [sample.load for samples in self.samples.values() for sample in samples]


def save(measured: Measured, folder: Path) -> None:
    """Writes the experiment's file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{measured.key}.json").write_text(json.dumps(asdict(measured), indent=1) + "\n", encoding="utf-8")


def load(folder: Path) -> dict[str, Measured]:
    """All experiments that were kept, by key."""
    return {path.stem: _of(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))}


def _of(document: Mapping[str, Any]) -> Measured:
    samples = {way: [Sample(**each) for each in rounds] for way, rounds in document["samples"].items()}
    return Measured(**{**document, "samples": samples})
