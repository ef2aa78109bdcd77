"""Answers as JSON that an agent can afford: some rows at a time, texts cut to a length, and all of it said."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from xsp_analyze.render.json_text import plain
from xsp_analyze.text.units import plain_spaces
from xsp_model.errors import clean

__all__ = ["Page", "Rows", "json_text", "one_page", "plain_sentences"]

_MAX_BYTES = 24_000
"""Of the rows of one answer: some six thousand tokens."""

Rows = pl.DataFrame | Sequence[Mapping[str, object]]
"""All rows of an answer, of which some are sent."""


@dataclass(frozen=True, slots=True)
class Page:
    """Which rows are wanted: at most `limit` from `offset` on, their texts cut to so many characters."""

    limit: int = 20
    offset: int = 0
    max_text: int = 200


def one_page(rows: Rows, page: Page, *, key: str = "rows") -> dict[str, object]:
    """The rows of the page, fewer where they are long but one at least; `next_offset` null: there are no more."""
    cut = 0
    sent: list[object] = []
    room = _MAX_BYTES
    part = rows[page.offset : page.offset + page.limit]
    for row in part.to_dicts() if isinstance(part, pl.DataFrame) else part:
        short, cuts = _cut(plain(dict(row)), page.max_text)
        room -= len(json_text(short))
        if room < 0 and sent:
            break
        sent.append(short)
        cut += cuts
    end = page.offset + len(sent)
    answer: dict[str, object] = {
        "total_rows": len(rows),
        "offset": page.offset,
        "next_offset": end if end < len(rows) else None,
        key: sent,
    }
    return {**answer, "texts_cut": cut} if cut else answer


def _cut(value: object, length: int) -> tuple[object, int]:
    """The value with its texts cut in the middle, and how many were."""
    if isinstance(value, str):
        if len(value) <= length:
            return value, 0
        head = (length - 1) // 2
        return f"{value[: length - 1 - head]}\N{HORIZONTAL ELLIPSIS}{value[len(value) - head :] if head else ''}", 1
    if isinstance(value, list):
        parts = [_cut(item, length) for item in value]
        return [part for part, _ in parts], sum(cuts for _, cuts in parts)
    if isinstance(value, dict):
        cells = {key: _cut(item, length) for key, item in value.items()}
        return {key: part for key, (part, _) in cells.items()}, sum(cuts for _, cuts in cells.values())
    return value, 0


def json_text(value: object) -> str:
    """Compact JSON in ASCII: what acts in a name, a control code or a direction of writing, stands as its code."""
    return json.dumps(plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def plain_sentences(sentences: Iterable[str]) -> list[str]:
    """Sentences, in which names of a trace may stand, as a terminal has them."""
    return [clean(plain_spaces(sentence)) for sentence in sentences]
