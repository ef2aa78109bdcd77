"""How well two runs match at a level, and what to say of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xsp_model import Finding, LedgerKind, Severity, XspError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xsp_analyze.merge.alignment import Alignment

__all__ = ["Matched"]

_MAX_SHOWN = 3
_LONGEST_NAME = 120


@dataclass(frozen=True, slots=True)
class Matched:
    """An alignment of `what` (layers or kernels), with the words for each side's items."""

    what: str
    alignment: Alignment
    first: Sequence[str]
    second: Sequence[str]

    def require(self, min_rate: float, first: str, second: str) -> None:
        """XspError with the match rate and the first mismatches where fewer than `least` match."""
        if self.alignment.rate < min_rate:
            raise XspError(
                f"{self.what} of {first} and {second} match at {self.alignment.rate:.3f}, less than {min_rate:g}: "
                + self.differences(),
                advice="Take both runs of the same work with autotuning off, or accept less with --min-match",
            )

    def differences(self) -> str:
        """The first mismatches, in one line."""
        gaps = self.alignment.mismatches()
        shown = [self._difference(a, b) for a, b in gaps[:_MAX_SHOWN]]
        more = f"; and {len(gaps) - _MAX_SHOWN} more places" if len(gaps) > _MAX_SHOWN else ""
        return "; ".join(shown) + more

    def _difference(self, first: Sequence[int], second: Sequence[int]) -> str:
        index = first[0] if first else second[0]
        return f"at {index}: {_list_labels(self.first, first)} against {_list_labels(self.second, second)}"

    def finding(self, first: str, second: str) -> Finding:
        """The ledger's row: the match rate, and the first mismatches where there are any."""
        pairs, rate = len(self.alignment.pairs), self.alignment.rate
        longest = max(self.alignment.first_count, self.alignment.second_count)
        detail = f"{self.what} of {first} and {second} match at {rate:.3f} ({pairs} of {longest})"
        if pairs == longest:
            return Finding(LedgerKind(f"match_{self.what}"), detail, max(pairs, 1), Severity.INFO)
        return Finding(
            LedgerKind(f"match_{self.what}"),
            f"{detail}; {self.differences()}",
            longest - pairs,
            Severity.WARNING,
            advice="What has no counterpart keeps its own run's numbers and has no others",
        )


def _list_labels(labels: Sequence[str], indices: Sequence[int]) -> str:
    if not indices:
        return "nothing"
    shown = ", ".join(_short(labels[p]) for p in indices[:_MAX_SHOWN])
    return shown + (f" and {len(indices) - _MAX_SHOWN} more" if len(indices) > _MAX_SHOWN else "")


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_NAME else label[: _LONGEST_NAME - 3] + "..."
