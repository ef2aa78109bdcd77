"""What a shell offers after Tab: ids of analyses and names of formats."""

from __future__ import annotations

__all__ = ["analysis_ids", "format_names"]


def analysis_ids(incomplete: str) -> list[tuple[str, str]]:
    """The ids that begin so, in any case, each with its title."""
    from xsp_analyze.catalog import all_analyses  # noqa: PLC0415 (--help must not wait for polars)

    return [(a.id, a.title) for a in all_analyses() if a.id.lower().startswith(incomplete.lower())]


def format_names(incomplete: str) -> list[tuple[str, str]]:
    """The names of formats that begin so, each with its title."""
    from xsp_ingest.registry import all_ingesters  # noqa: PLC0415 (--help must not wait for polars)

    return [(i.name, i.title) for i in all_ingesters() if i.name.startswith(incomplete)]
