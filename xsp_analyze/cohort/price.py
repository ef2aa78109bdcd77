"""What a system costs by the hour, as the user's file says."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["NO_PRICES", "Prices", "read_prices"]

_INPUTS = 1000
_S_PER_HOUR = 3600
_NS_PER_HOUR = _S_PER_HOUR * 10**9


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per hour by a part of the system's name; the longest part that a system's name holds is its price."""

    currency: str = ""
    per_hour: Mapping[str, float] = field(default_factory=dict)

    def per_thousand(self, system: str | None, throughput_per_s: float | None) -> float | None:
        """Cost of 1,000 inputs at the throughput; None where price or throughput is unknown."""
        per_hour = self._of(system)
        return per_hour / _S_PER_HOUR * _INPUTS / throughput_per_s if per_hour and throughput_per_s else None

    def of_time(self, system: str | None, time_ns: int | None) -> float | None:
        """Cost of that time on the system; None where price or time is unknown."""
        per_hour = self._of(system)
        return None if per_hour is None or time_ns is None else per_hour * time_ns / _NS_PER_HOUR

    def _of(self, system: str | None) -> float | None:
        matching = [part for part in self.per_hour if system and part.casefold() in system.casefold()]
        return self.per_hour[max(matching, key=len)] if matching else None


NO_PRICES = Prices()
"""Nothing is known of prices."""


def read_prices(path: Path) -> Prices:
    """The prices of a TOML file: `currency = "USD"` and a table `[per_hour]` with `"NVIDIA H100" = 2.5` in it."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise XspError(f"the prices cannot be read ({error.strerror})", path=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise XspError(f"the prices are no TOML: {error}", path=path) from error
    table = document.get("per_hour")
    sound = isinstance(table, dict) and table and all(_is_price(v) for v in table.values())
    if not isinstance(table, dict) or not sound or not isinstance(document.get("currency", ""), str):
        raise XspError(
            "the prices need a table per_hour with a number above 0 for each system",
            path=path,
            advice='Write [per_hour] and below it, for example, "NVIDIA H100" = 2.5',
        )
    return Prices(document.get("currency", ""), {str(name): float(value) for name, value in table.items()})


def _is_price(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
