"""The page of facts that XSP is held against, from the table that the tests read."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["answer_pages"]

_TABLE = Path(__file__).resolve().parents[2] / "tests" / "answers" / "facts.toml"
_HEAD = """\
# Facts worked out by hand

What people act on is a sentence, a share, the first finding: these are what XSP is held against here. Each fact was
worked out of the raw file by a script that imports nothing of ours, only Python's standard library
(`tests/answers/by_hand/`), and each is asked of XSP by a test (`tests/answers/test_facts.py`), which works it out anew.
{count} facts on {files} files; {open} of them XSP does not tell yet, as the last column says: such a test is expected
to fail, and is a failure once it does not.

The files of others are not part of the project; the table names them as their folder does.
"""
_COLUMNS = "| file | fact | how it was worked out | asked of XSP |\n|---|---|---|---|"


def answer_pages() -> Mapping[str, str]:
    """Path below `docs` to Markdown: the one page."""
    facts = tomllib.loads(_TABLE.read_text(encoding="utf-8"))["fact"]
    real = [fact for fact in facts if fact["file"].startswith("real/")]
    own = [fact for fact in facts if not fact["file"].startswith("real/")]
    head = _HEAD.format(
        count=len(facts), files=len({fact["file"] for fact in facts}), open=sum("differs" in fact for fact in facts)
    )
    parts = [head, "## On files of others", _table(real), "## On the project's own samples", _table(own)]
    return {"answers.md": "\n\n".join(parts) + "\n"}


def _table(facts: Iterable[Mapping[str, Any]]) -> str:
    return "\n".join([_COLUMNS, *(_row(fact) for fact in sorted(facts, key=lambda fact: str(fact["file"])))])


def _row(fact: Mapping[str, Any]) -> str:
    file = str(fact["file"]).partition("/")[2]
    question = f"`{fact['ask']}`{_options(fact.get('of', {}))}"
    differs = f"; not yet: {_cell(fact['differs'])}" if "differs" in fact else ""
    return f"| `{file}` | {_cell(fact['says'])} | {_cell(fact['why'])} | {question}{differs} |"


def _options(options: Mapping[str, object]) -> str:
    return "".join(f" {name}=`{_cell(str(value))}`" for name, value in options.items())


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")
