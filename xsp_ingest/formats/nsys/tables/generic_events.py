"""Generic events that are no samples of sensors: storage, network and other plugins; counted by the type's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from xsp_ingest.formats.nsys.tables.interface import Tables

__all__ = ["other_events"]

_EVENTS, _TYPES = "GENERIC_EVENTS", "GENERIC_EVENT_TYPES"
_SOUND = r"^[\w .:-]{1,60}$"  # no path and no address


def other_events(export: Tables, taken: Collection[int]) -> Iterator[Finding]:
    """One finding for each name of a type of events that is neither among those taken nor one of GPU metrics."""
    metrics = export.integers("TARGET_INFO_GPU_METRICS", ("typeId",))["typeId"].to_list()
    types = export.integers(_EVENTS, ("typeId",)).filter(~pl.col("typeId").is_in([*taken, *metrics]))
    named = types.join(_names(export), on="typeId", how="left").group_by("name").len().sort("name", nulls_last=True)
    for name, count in named.iter_rows():
        what = "an unnamed type" if name is None else f"the type {name}"
        yield Finding(LedgerKind.TABLE_NOT_READ, f"Events of {what} in {_EVENTS} were not read", count)


def _names(export: Tables) -> pl.DataFrame:
    types = export.integers(_TYPES, ("typeId", "nameId"))
    own = export.strings.of(types["nameId"]).cast(pl.String)
    described = pl.Series([_name(text) for text in export.texts(_TYPES, "data")], dtype=pl.String)
    both = types.with_columns(own.alias("own"), described.alias("described"))
    sound = (pl.when(pl.col(each).str.contains(_SOUND)).then(each) for each in ("own", "described"))
    return both.select("typeId", pl.coalesce(sound).alias("name")).unique("typeId", keep="first", maintain_order=True)


def _name(text: str | None) -> str | None:
    """What a description (JSON, in older exports) calls the type."""
    try:
        name = msgspec.json.decode(text or "", type=dict[str, Any]).get("Name")
    except (msgspec.DecodeError, RecursionError):
        return None
    return name if isinstance(name, str) else None
