"""The entries of the data files: patterns over names, and what each says of a name it is found in."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from xsp_analyze.classification.kernel_class import KernelClass
from xsp_analyze.classification.matching import Matcher, Pattern

__all__ = [
    "Entry",
    "PrecisionEntry",
    "kernel_entries",
    "kernel_matcher",
    "operator_entries",
    "operator_matcher",
    "precision_entries",
    "precision_matcher",
]


@dataclass(frozen=True, slots=True)
class Entry:
    """A pattern over names of kernels, or types of operators, and what has it; kernels.toml says what fields mean."""

    pattern: Pattern
    kernel_class: KernelClass
    collective: str | None
    label: str | None
    example: str
    products: bool = False


@dataclass(frozen=True, slots=True)
class PrecisionEntry:
    """A pattern over names of kernels, and the precision that it tells."""

    pattern: Pattern
    precision: str
    example: str


@cache
def kernel_entries() -> tuple[Entry, ...]:
    """Over kernels' names, in order: the first that is found decides."""
    return _entries("kernels.toml")


@cache
def operator_entries() -> tuple[Entry, ...]:
    """Over operators' types, likewise."""
    return _entries("operators.toml")


@cache
def precision_entries() -> tuple[PrecisionEntry, ...]:
    """Over kernels' names, likewise."""
    return tuple(
        PrecisionEntry(Pattern(row["pattern"]), row["precision"], row["example"]) for row in _rows("precisions.toml")
    )


@cache
def kernel_matcher() -> Matcher[Entry]:
    """The entry of each kernel's name."""
    return Matcher(kernel_entries())


@cache
def operator_matcher() -> Matcher[Entry]:
    """The entry of each operator's type."""
    return Matcher(operator_entries())


@cache
def precision_matcher() -> Matcher[PrecisionEntry]:
    """The entry of each kernel's name that tells its precision."""
    return Matcher(precision_entries())


def _entries(file: str) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            Pattern(f"(?i){row['pattern']}"),
            KernelClass(row["class"]),
            row.get("collective"),
            row.get("label"),
            row["example"],
            bool(row.get("products")),
        )
        for row in _rows(file)
    )


def _rows(file: str) -> list[dict[str, str]]:
    text = resources.files("xsp_analyze.classification").joinpath(file).read_text(encoding="utf-8")
    rows: list[dict[str, str]] = tomllib.loads(text)["entry"]
    return rows
