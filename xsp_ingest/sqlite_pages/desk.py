"""What Python and the machine code agree on: constants, and two tables of int64 by which they talk."""

from __future__ import annotations

__all__ = [
    "ASKED",
    "COLUMNS",
    "DONE",
    "ENTRY_WORDS",
    "IS_NULL_WHERE_ABSENT",
    "KIND",
    "MISSING",
    "MOST_ASKED",
    "MOST_ROWS",
    "NUMBER",
    "PAD",
    "PAGE_BYTES",
    "PREVIOUS",
    "ROWIDS",
    "ROWS",
    "SKIPPED",
    "STATE_WORDS",
    "TEXT",
    "TEXT_BYTES",
    "TEXT_USED",
    "UNSURE",
    "USABLE",
    "VALUES",
    "WHERE_ASKED",
    "WHOLE",
]

PAD = 64
"""Bytes behind every piece of memory that the machine code reads: no load of it reaches further."""

# How it ends.
DONE, UNSURE = 0, 1

# The state: places of words.
ROWS, MOST_ROWS, PREVIOUS, USABLE, PAGE_BYTES, COLUMNS, ROWIDS, ASKED, MOST_ASKED, WHERE_ASKED, STATE_WORDS = range(11)

# The plan has an entry for each column of a record, up to the last that is wanted.
KIND, VALUES, MISSING, IS_NULL_WHERE_ABSENT, TEXT_BYTES, TEXT_USED, ENTRY_WORDS = range(7)
SKIPPED, WHOLE, NUMBER, TEXT = range(4)  # kinds
