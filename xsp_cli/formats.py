"""`xsp formats`: what can be read."""

from __future__ import annotations

from xsp_cli.output import print_text

__all__ = ["formats"]


def formats() -> None:
    """List the file formats that xsp reads."""
    from xsp_ingest.registry import all_ingesters  # noqa: PLC0415 (--help must not wait for numba)

    ingesters = all_ingesters()
    width = max(len(i.name) for i in ingesters)
    for ingester in ingesters:
        print_text(f"{ingester.name:<{width}}  {ingester.title}")
    print_text(f"{'NAME.xsp':<{width}}  a bundle that `xsp convert` wrote")
