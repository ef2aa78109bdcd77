"""What several results share, said once: where their numbers come from, and what no table of them holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from xsp_analyze.text.table import ledger_lines, provenance_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xsp_analyze.core import Result

__all__ = ["origin_line", "shared_ledger_lines"]

_MAX_IDS = 4
_NOTHING: tuple[object, ...] = (None, "", [], ())


def shared_ledger_lines(results: Sequence[Result]) -> list[str]:
    """Each warning and error of the results' ledgers once."""
    return list(dict.fromkeys(line for result in results for line in ledger_lines(result)))


def origin_line(results: Sequence[Result]) -> str:
    """Where all the numbers come from, in one line; a fact that differs names the analyses that it is of."""
    if not results:
        return ""
    shared = _shared_provenance(results)
    return provenance_line(replace(results[0], provenance_of=lambda: shared))


def _shared_provenance(results: Sequence[Result]) -> Mapping[str, object]:
    keys = dict.fromkeys(key for result in results for key in result.provenance)
    return {key: _value(key, results) for key in keys}


def _value(key: str, results: Sequence[Result]) -> object:
    """The fact as it is where all results that know it agree; else each value with the analyses that have it."""
    holders: dict[str, list[Result]] = {}
    values = {}
    for result in results:
        value = result.provenance.get(key)
        if value not in _NOTHING:
            values[str(value)] = value
            holders.setdefault(str(value), []).append(result)
    first = next(iter(values.values()), None)
    if len(values) <= 1 or isinstance(first, bool):  # which is for programs
        return first
    return [f"{text} ({_ids(of)})" for text, of in holders.items()]


def _ids(results: Sequence[Result]) -> str:
    ids = [result.analysis.id for result in results]
    more = len(ids) - _MAX_IDS
    return ", ".join(ids if more <= 1 else [*ids[:_MAX_IDS], f"{more} more"])
