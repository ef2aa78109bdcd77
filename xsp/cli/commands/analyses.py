"""`xsp analyses`: what can be asked."""

from __future__ import annotations

from xsp.cli.output import print_text

__all__ = ["analyses"]


def analyses() -> None:
    """List the analyses: id, title, and the levels a trace must hold for each.

    Example: `xsp analyses`, then `xsp analyze trace.json.gz -a A10`.
    """
    from xsp_analyze.catalog import all_analyses  # noqa: PLC0415 (--help must not wait for polars)

    width = max(len(a.id) for a in all_analyses())
    title_width = max(len(a.title) for a in all_analyses())
    for one in all_analyses():
        needs = f"needs {', '.join(map(str, one.needs))}" if one.needs else ""
        print_text(f"{one.id:<{width}}  {one.title:<{title_width}}  {needs}".rstrip())
