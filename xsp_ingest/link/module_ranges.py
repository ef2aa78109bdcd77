"""Ranges of modules whose text is a dict: one layer a module by its path, not one a text with other shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from xsp_ingest.link.module_text import BEGINS, module_text
from xsp_model import Finding, LedgerKind

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["module_ranges"]

_MODULE = "nn.Module: "  # which rules and layers know as the mark of a module's call, as our own runners write it
_RETURNED = "nn.Module outputs: "
_LAYERS = {"row": pl.Int64(), "layer_type": pl.String(), "path": pl.String(), "shapes": pl.String()}
_THREAD = ("process_id", "thread_id")
_Named = tuple[pl.DataFrame, pl.DataFrame, tuple[Finding, ...]]


def module_ranges(ranges: pl.DataFrame) -> _Named:
    """The ranges, those of modules with the path as their name; rows of `layers` for them; what could not be read.

    Takes row, name, text, start_ns, process_id and thread_id. A text is read once, however many ranges have it; where
    no range is of this form, that is all that is found out.
    """
    first = ranges["text"].str.starts_with("{").fill_null(value=False)
    marked = ranges.filter(first & ranges["text"].str.contains(BEGINS)) if first.any() else ranges.clear()
    if marked.is_empty():
        return ranges, pl.DataFrame(schema=_LAYERS), ()
    texts = marked["text"].unique(maintain_order=True)
    modules = marked.select("row", "text", "start_ns", *_THREAD).join(_read(texts), on="text", maintain_order="left")
    modules = modules.with_columns(_is_return(modules))
    mark = pl.when("returned").then(pl.lit(_RETURNED)).otherwise(pl.lit(_MODULE))
    names = modules.select("row", (mark + pl.col("path")).alias("module_name"))
    named = ranges.join(names, on="row", how="left", maintain_order="left")
    named = named.with_columns(pl.coalesce("module_name", "name").alias("name")).drop("module_name")
    unread = Finding(LedgerKind.MODULE_TEXT_UNREADABLE, count=marked.height - modules.height)
    layers = modules.filter(~pl.col("returned")).select(*_LAYERS)
    return named, layers, (unread,) if unread.count else ()


def _read(texts: Iterable[str]) -> pl.DataFrame:
    """A row for each text that can be read."""
    modules = {text: module for text in texts if (module := module_text(text))}
    read = [(text, m.path, m.layer_type, m.shapes, m.returned) for text, m in modules.items()]
    columns = {"text": pl.String, "path": pl.String, "layer_type": pl.String, "shapes": pl.String}
    return pl.DataFrame(read, schema={**columns, "returned": pl.Boolean}, orient="row")


def _is_return(modules: pl.DataFrame) -> pl.Series:
    """Whether each range only says what a call returned; where its text does not tell, by what stands before it.

    vLLM writes such a range behind every call, SGLang and TensorRT-LLM behind none. So of one module on one thread
    they take turns, and what is open is decided from the last range that says which it is.
    """
    returned = modules["returned"]
    if not returned.null_count() or not returned.any():
        return returned.fill_null(value=False)
    of_module = [*_THREAD, "path"]
    ordered = modules.with_row_index("at").sort(*of_module, "start_ns", "row")
    ordered = ordered.with_columns(
        pl.col("returned").is_not_null().cum_sum().over(of_module).alias("since"),
        pl.col("returned").forward_fill().over(of_module).fill_null(value=True).alias("last"),
    )
    position = pl.int_range(pl.len()).over(*of_module, "since") + (pl.col("since") == 0)
    turned = pl.when(position % 2 == 1).then(~pl.col("last")).otherwise("last")
    return ordered.with_columns(turned.alias("returned")).sort("at")["returned"]
