"""The module tree as a page shows it: one row a module, phases side by side, children under their parent."""

from __future__ import annotations

import polars as pl

from xsp_analyze.formulas import known_sum

__all__ = ["module_rows"]

_PHASES = ("forward", "recompute", "backward")


def module_rows(table: pl.DataFrame) -> pl.DataFrame:
    """Rows of B06 folded over phases, in depth-first order of first call.

    Columns: module, depth, count, device_sum_ns, self_device_sum_ns, forward_ns, recompute_ns, backward_ns, host_ns;
    a phase that occurs nowhere is null throughout, and so is device time where no device work was recorded.
    """
    folded = table.group_by("module_path", maintain_order=True).agg(
        pl.col("module_instance").first().alias("module"),
        pl.col("depth").first(),
        pl.col("count").filter(pl.col("phase") == "forward").sum(),
        known_sum(pl.col("device_sum_ns")),
        known_sum(pl.col("self_device_sum_ns")),
        *(_of_phase(phase) for phase in _PHASES),
        pl.col("host_ns").sum(),
    )
    return folded[_depth_first(folded["module_path"].to_list(), folded["module"].to_list())].drop("module_path")


def _of_phase(phase: str) -> pl.Expr:
    time = pl.col("device_sum_ns").filter(pl.col("phase") == phase)
    return known_sum(time).alias(f"{phase}_ns")


def _depth_first(paths: list[str], names: list[str]) -> list[int]:
    """The order in which each row is followed by those below it; a row whose parent is not there is a root."""
    at = {path: row for row, path in enumerate(paths)}
    below: dict[int, list[int]] = {}
    for row, (path, name) in enumerate(zip(paths, names, strict=True)):
        parent = at.get(path[: -len(name) - 1], -1) if len(path) > len(name) else -1
        below.setdefault(parent, []).append(row)
    order: list[int] = []
    stack = below.get(-1, [])[::-1]
    while stack:
        row = stack.pop()
        order.append(row)
        stack.extend(below.get(row, [])[::-1])
    return order
