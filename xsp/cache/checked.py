"""Tables of bundles whose rows were held against the model's rules, where nobody has written to the bundle since."""

from __future__ import annotations

import time
from functools import cached_property
from typing import TYPE_CHECKING

from xsp_model.limits import limits
from xsp_model.schema import SCHEMA_VERSION, TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from xsp.cache.key import Notes, Stamp

__all__ = ["Checked"]

_MAX_TABLES = 200  # columns of one that were asked for at once among them


class Checked:
    """The tables of one bundle, remembered by the stamps of its files: to look at all rows takes a while."""

    def __init__(self, folder: Path, bundle: Path) -> None:
        self._folder = folder
        self._bundle = bundle
        self._began_ns = time.time_ns()

    def __contains__(self, what: object) -> bool:
        """Whether this table, or these columns of one, are as they were when this version checked them."""
        return self._is_worth_it(str(what)) and what in self._tables

    def add(self, what: str) -> None:
        """Remembers that it is sound, unless the bundle was written to just before it was opened, or since."""
        if not self._is_worth_it(what) or self._stamps is None or self._stamps != self._stamps_now():
            return
        if all(stamp.is_settled(self._began_ns) for _, stamp in self._stamps):
            self._tables.append(what)
            self._notes.write(self._bundle, {**self._of_the_bundle, "tables": self._tables[-_MAX_TABLES:]})

    def _is_worth_it(self, what: str) -> bool:
        table, min_bytes = what.partition(":")[0], limits().checked_table_min_bytes
        try:
            return table in TABLES and (self._bundle / f"{table}.parquet").stat().st_size >= min_bytes
        except OSError:
            return False

    @cached_property
    def _notes(self) -> Notes:
        from xsp.cache.key import Notes  # noqa: PLC0415 (small bundles need none)

        return Notes(self._folder)

    @cached_property
    def _tables(self) -> list[str]:
        noted = self._notes.of(self._bundle)
        tables = noted.pop("tables", None)
        return tables if noted == self._of_the_bundle and isinstance(tables, list) else []

    @cached_property
    def _of_the_bundle(self) -> dict[str, object]:
        from xsp.cache.key import version_of  # noqa: PLC0415 (small bundles need none)

        stamps = [[name, stamp.numbers()] for name, stamp in self._stamps or ()]
        return {"version": version_of("xsp"), "schema": SCHEMA_VERSION, "stamps": stamps}

    @cached_property
    def _stamps(self) -> list[tuple[str, Stamp]] | None:
        return self._stamps_now()

    def _stamps_now(self) -> list[tuple[str, Stamp]] | None:
        from xsp.cache.key import stamps_in  # noqa: PLC0415 (small bundles need none)

        try:
            return stamps_in(self._bundle)
        except OSError:
            return None
