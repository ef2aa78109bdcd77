"""What Python and the machine code agree on: constants, and two tables of int64 by which they talk."""

from __future__ import annotations

__all__ = [
    "COLUMNS",
    "DEFERRED",
    "DEFERRED_ROWS",
    "DONE",
    "ENTRY_WORDS",
    "INTEGER",
    "IS_NULL_WHERE_ABSENT",
    "KIND",
    "MAX_DEFERRED",
    "MAX_ROWS",
    "MISSING",
    "NULLS",
    "NUMBER",
    "OVERLAPPING",
    "PAD",
    "PAGE_BYTES",
    "PREVIOUS",
    "ROWIDS",
    "ROWS",
    "SKIPPED",
    "STATE_WORDS",
    "TEXT",
    "TEXT_BYTES",
    "TEXT_ROOM",
    "TEXT_USED",
    "UNSURE",
    "USABLE",
    "VALUES",
]

PAD = 64
"""Bytes behind every piece of memory that the machine code reads: no load of it reaches further."""

# How it ends. (2 is a record's, ASK.)
DONE, UNSURE = 0, 1
OVERLAPPING = 3  # cells of a page share bytes: SQLite would read them, each as long as a page

# The state: places of words.
(
    ROWS,
    MAX_ROWS,
    PREVIOUS,  # the rowid before
    USABLE,
    PAGE_BYTES,
    COLUMNS,  # entries of the plan
    ROWIDS,
    DEFERRED,
    MAX_DEFERRED,
    DEFERRED_ROWS,
    SHAPES,  # 0: none are kept
    SHAPE_BYTES,
    FIRST_MASK,  # which bytes of a record's first two words tell its shape
    SECOND_MASK,
    FULL_WORDS,  # so many words and then the bytes of a mask are compared
    LAST_MASK,
    SURPRISES,  # records of no kept shape
    STATE_WORDS,
) = range(18)

# The plan has an entry for each column of a record, up to the last that is wanted.
KIND, VALUES, MISSING, IS_NULL_WHERE_ABSENT, NULLS, TEXT_BYTES, TEXT_USED, TEXT_ROOM, ENTRY_WORDS = range(9)
SKIPPED, INTEGER, NUMBER, TEXT = range(4)  # kinds

# A shape: what records whose heads begin alike have in common. Behind its head are words to compare, then its steps.
SEEN, DATA_END, IS_WHOLE_HEAD, STEPS, SHAPE_HEAD_WORDS = range(5)
TARGET, OFFSET, SHIFT, EXTRA, STEP_WORDS = range(5)
KEPT_SHAPES = 16
CONSTANT, NULL = -1, -2  # instead of a shift
