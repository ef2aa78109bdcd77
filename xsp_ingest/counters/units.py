"""Units as tools print them, turned into base units: byte, ns, Hz, 1, and what is counted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Unit", "base_unit", "is_unit"]


@dataclass(frozen=True, slots=True)
class Unit:
    """A base unit and how to get there: value * multiply / divide (two integers, so that 66.61 % is 0.6661)."""

    name: str
    multiply: float = 1
    divide: float = 1


_PLAIN = {"": Unit("1"), "1": Unit("1"), "%": Unit("1", divide=100)}
_POWER = {"": 0, "K": 1, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_TIME_NS: Mapping[str, float] = {
    **dict.fromkeys(("ns", "nsecond", "nsec"), 1),
    **dict.fromkeys(("us", "usecond", "usec", "\u00b5s", "\u03bcs"), 1e3),
    **dict.fromkeys(("ms", "msecond", "msec"), 1e6),
    **dict.fromkeys(("s", "second", "sec"), 1e9),
    **dict.fromkeys(("minute", "min"), 60e9),
    **dict.fromkeys(("hour", "h"), 3600e9),
}
_BYTE = re.compile(r"([KMGTP]?)(i?)(?:byte|bytes|B)\Z")
_HERTZ = re.compile(r"([KkMGT]?)[hH][zZ]\Z")
_COUNTED = re.compile(r"([KMGTP])([a-z]{2,})\Z")
_NS_PER_S = 1e9


@lru_cache(maxsize=4096)
def base_unit(text: str, *, binary: bool = False) -> Unit:
    """The base unit of a tool's unit; one that is not known stays as it is written.

    `binary`: KB, MB and GB are powers of 1024, as nvprof means them; Nsight Compute's are powers of 1000.
    A rate is per second whatever the tool chose; a percentage is a share of 0..1.
    """
    counted, _, per = text.strip().partition("/")
    unit = _simple(counted.strip(), 1024 if binary else 1000)
    per = per.strip()
    if not per:
        return unit
    if per not in _TIME_NS:
        return Unit(f"{unit.name}/{per}", unit.multiply, unit.divide)
    name = "Hz" if unit.name in {"cycle", "1"} and counted else f"{unit.name}/s"
    return Unit(name, unit.multiply * _NS_PER_S, unit.divide * _TIME_NS[per])


def is_unit(text: str) -> bool:
    """Whether it is a share, or a unit of time, bytes or frequency: none of these is anything else."""
    return text == "%" or base_unit(text).name.split("/")[0] in {"ns", "byte", "Hz"}


def _simple(text: str, step: int) -> Unit:
    if text in _PLAIN:
        return _PLAIN[text]
    if text in _TIME_NS:
        return Unit("ns", _TIME_NS[text])
    if match := _BYTE.match(text):
        return Unit("byte", (1024 if match[2] else step) ** _POWER[match[1]])
    if match := _HERTZ.match(text):
        return Unit("Hz", 1000 ** _POWER[match[1]])
    if match := _COUNTED.match(text):
        return Unit(match[2], 1000 ** _POWER[match[1]])
    return Unit(text)
