"""Events of a kind as they stand in the file, with all their arguments: the scanners keep known ones only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from xsp_ingest.files.content import read_all
from xsp_ingest.files.json_values import json_integer
from xsp_ingest.formats.torch_profiler import refusal

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["raw_events"]


def raw_events(
    path: Path,
    head: re.Pattern[str],
    is_one: Callable[[dict[str, Any]], bool],
    *,
    expected: int | None = None,
    parse_float: Callable[[str], Any] = float,
) -> Iterator[dict[str, Any]]:
    """The events that begin as Kineto writes them (`head`), found in the text; not finite numbers are null.

    Where none does, or another number than `expected`, another program wrote the file, with its keys in another order:
    then `is_one` chooses among all events.
    """
    text = read_all(path, damaged=refusal.cut_off).decode("utf-8", errors="replace")
    decoder = json.JSONDecoder(parse_float=parse_float, parse_int=json_integer, parse_constant=lambda _: None)
    starts = [match.start() for match in head.finditer(text)]
    if starts and expected in (None, len(starts)):
        for start in starts:
            yield decoder.raw_decode(text, start)[0]
        return
    document = decoder.decode(text)
    entries = document.get("traceEvents") if isinstance(document, dict) else document
    yield from (event for event in entries or () if isinstance(event, dict) and is_one(event))
