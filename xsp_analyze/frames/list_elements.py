"""The type of the elements of tensors in lists, which profilers do not write, by the kernels that work on them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from xsp_analyze.classification import precision_of
from xsp_analyze.frames.kernels.activities import origins
from xsp_model import Level
from xsp_model.tree import innermost

if TYPE_CHECKING:
    from xsp_model import Trace
    from xsp_model.arrays import Ints

__all__ = ["LIST", "list_elements"]

LIST = "TensorList"
"""How profilers write the type of a list of tensors."""

_COPIED = re.compile(r"CatArray\w*<(?:[^<>]*::)?(?:OpaqueType<(?P<bytes>\d+)u?>|(?P<type>[\w ]+)),")
_OF_SIZE = {"1": "uint8", "2": "int16", "4": "int32", "8": "int64", "16": "complex128"}
_OF_NAME = {"long": "int64", "int": "int32", "short": "int16", "signed char": "int8", "unsigned char": "uint8"}


def list_elements(trace: Trace, operators: Ints) -> pl.DataFrame:
    """span_id, kernel_precision: of those operators whose kernels' names all tell one type, or tell none."""
    if not len(operators):
        return pl.DataFrame(schema={"span_id": pl.Int64, "kernel_precision": pl.String})
    spans = trace.scan("spans").select("span_id", "parent_id", "level", "name").collect()
    parents = spans["parent_id"].fill_null(-1).to_numpy()
    mask = np.zeros(len(parents), dtype=bool)
    mask[operators] = True
    nearest = innermost(parents, mask)
    kernels = spans.filter(pl.col("level") == str(Level.KERNEL)).select("span_id", "name")
    below = kernels.select(pl.Series("span_id", nearest[origins(trace, kernels["span_id"])]), "name")
    below = below.filter(pl.col("span_id") >= 0)
    current = below.select("span_id", _element_types(below["name"].cast(pl.String)))
    pairs = []
    while len(current := current.drop_nulls().filter(pl.col("span_id") >= 0).unique()):
        pairs.append(current)
        above = parents[current["span_id"].to_numpy()]
        current = current.with_columns(pl.Series("span_id", np.where(above >= 0, nearest[above], -1)))
    return _agreed(pl.concat(pairs) if pairs else current)


def _agreed(pairs: pl.DataFrame) -> pl.DataFrame:
    """Of each span the type that all its kernels tell."""
    one = pl.col("kernel_precision").n_unique() == 1
    types = pairs.group_by("span_id").agg(pl.when(one).then(pl.col("kernel_precision").first()))
    return types.with_columns(pl.col("span_id").cast(pl.Int64))


def _element_types(names: pl.Series) -> pl.Series:
    distinct = names.unique().drop_nulls().to_list()
    types = {name: _element_type_of_kernel(name) for name in distinct}
    return names.replace_strict(types, default=None, return_dtype=pl.String).alias("kernel_precision")


def _element_type_of_kernel(name: str) -> str | None:
    """Of a kernel that lays tensors end to end, a type of the size that it moves; of others as its name tells."""
    copied = _COPIED.search(name)
    if copied is None:
        return precision_of(name)
    return _OF_SIZE.get(copied["bytes"]) or _OF_NAME.get(copied["type"] or "") or precision_of(name)
