"""What the text of a query may say: one SELECT over the tables of its trace, not too deep."""

from __future__ import annotations

import re

from xsp_model import XspError

__all__ = ["LOOK", "checked", "columns_in", "without_comments"]

LOOK = "`xsp schema` lists tables and columns"

_PARTS = re.compile(
    r"""
    (?P<text>'(?:[^']|'')*')                            # text: nothing in it counts
    | (?P<comment>--[^\n]* | /\*.*?\*/)
    | (?P<quoted>"(?:[^"]|"")*" | `[^`]*`)              # an identifier, which quoting does not make another one
    | (?P<mark>\b(?:[a-zA-Z]|[bB][rR]|[rR][bB]|[uU]&)['"] | \$\w*\$)   # other ways to quote
    """,
    re.DOTALL | re.VERBOSE,
)
_IDENTIFIER = re.compile(r"\w+")
_READS_A_FILE = re.compile(r"\b(?:read|scan)_\w+(?=\s*\()", re.IGNORECASE)
_STARTS = {"select", "with", "from"}
_COUNT = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)
_ANY_COLUMN = re.compile(r"\*|\b(?:natural|columns|table)\b|(?:^|\(|\bselect)\s*from\b", re.IGNORECASE)
_SELECTS = re.compile(r"\b(?:select|union|intersect|except|join)\b", re.IGNORECASE)
_COMMENT = re.compile(r"--|/\*|\*/")
_OPERATORS = re.compile(r"[^\w\s,()]|(?<![,(.\s])\s+\w+")  # signs, and words behind others: not what commas part
_MAX_SELECTS = 200
_MAX_OPERATORS = 2_000
_MAX_CHARACTERS = 200_000


def without_comments(text: str) -> str:
    """The query as it is to be run: what stands in a comment is decided here alone, as readers differ in that.

    XspError where what is left could be taken for a comment, text in it is quoted as no trace needs it, or what stands
    in it are no characters, as bytes of a command line that are not UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = f"its character {error.start + 1} is {text[error.start]!r}"
        raise XspError(f"the query is no text in UTF-8: {place}", advice="Write it in UTF-8") from error
    run = _PARTS.sub(lambda match: " " if match["comment"] else match.group(), text)
    if mark := _COMMENT.search(_bare(run)):
        raise XspError(f"the query has a {mark.group()} that belongs to no comment", advice=LOOK)
    return run


def checked(text: str) -> set[str]:
    """The identifiers of the query, in small letters; XspError where it does anything but select from the trace.

    Polars goes into a query's depth by recursion: a thousand SELECTs in one another take it minutes, and five thousand
    its life.
    """
    if len(text) > _MAX_CHARACTERS:
        raise XspError(f"a query has at most {_MAX_CHARACTERS} characters, and this one {len(text)}")
    bare = _bare(text)
    first = _IDENTIFIER.search(bare)
    if first is None or first.group().lower() not in _STARTS:
        raise XspError("a query begins with SELECT (or WITH, or FROM)", advice=LOOK)
    if reads := _READS_A_FILE.search(bare):
        raise XspError(f"a query sees the tables of its trace alone, so {reads.group()} is not for it", advice=LOOK)
    for what, pattern, ceiling in (("SELECTs", _SELECTS, _MAX_SELECTS), ("operators", _OPERATORS, _MAX_OPERATORS)):
        if sum(1 for _ in pattern.finditer(bare)) > ceiling:
            raise XspError(f"the query has more than {ceiling} {what}", advice="Ask for less at once")
    return {identifier.lower() for identifier in _IDENTIFIER.findall(bare)}


def columns_in(text: str) -> set[str] | None:
    """The words of the query, among which are the columns that it reads; None: it may read any."""
    bare = _COUNT.sub(" ", _bare(text))
    return None if _ANY_COLUMN.search(bare) else {identifier.lower() for identifier in _IDENTIFIER.findall(bare)}


def _bare(text: str) -> str:
    """The query without text and comments, and identifiers without their quotes."""

    def kept(match: re.Match[str]) -> str:
        if match["mark"]:
            raise XspError(f"a query has text in single quotes, not as {match['mark'][:2]}", advice=LOOK)
        return " ".join(_IDENTIFIER.findall(match["quoted"])) if match["quoted"] else " "

    return _PARTS.sub(kept, text)
