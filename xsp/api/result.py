"""An analysis's answer as Python and notebooks show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_analyze import core
from xsp_analyze.render import html, terminal

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Result"]


class Result(core.Result):
    """An analysis's answer: the table with its columns, where it comes from, and what it does not cover."""

    @classmethod
    def of(cls, answer: core.Result) -> Self:
        """The answer, able to show itself."""
        return cls(answer.analysis, answer.table, answer.columns, answer.ledger_of, answer.provenance_of)

    def __str__(self) -> str:
        """As `xsp analyze` prints it."""
        return terminal.render(self)

    __repr__ = __str__  # what a Python prompt shows

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows in units for people, and what they do not cover."""
        return html.result(self)
