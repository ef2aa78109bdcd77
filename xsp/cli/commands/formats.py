"""`xsp formats`: what can be read."""

from __future__ import annotations

from typing import Annotated

import typer

from xsp.cli.options import format_names
from xsp.cli.output import print_text

__all__ = ["formats"]


def formats(
    name: Annotated[
        str | None, typer.Argument(autocompletion=format_names, help="Say of this format what is used and what is not.")
    ] = None,
    *,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/formats.md.")] = False,
) -> None:
    """List the file formats that xsp reads, or tell all about one.

    Examples: `xsp formats`, `xsp formats nsys_sqlite`.
    """
    from xsp_ingest.ingester import no_format  # noqa: PLC0415 (--help must not wait for polars)
    from xsp_ingest.registry import about, all_ingesters, page  # noqa: PLC0415

    ingesters = all_ingesters()
    if name is not None:
        chosen = next((i for i in ingesters if i.name == name), None)
        if chosen is None:
            raise no_format(name, ingesters)
        print_text(about(chosen).rstrip())
        return
    if markdown:
        print_text(page(ingesters).rstrip("\n"))
        return
    width = max(len(i.name) for i in ingesters)
    for ingester in ingesters:
        print_text(f"{ingester.name:<{width}}  {ingester.title}")
    print_text(f"{'NAME.xsp':<{width}}  a bundle that `xsp convert` wrote")
    print_text("\n`xsp formats NAME` says what of a format is used and what is not.")
