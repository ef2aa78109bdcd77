"""`xsp mcp`: answers for agents."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import reads_input
from xsp.cli.output import note, print_text
from xsp.reading import Reading

__all__ = ["mcp"]

_SKILL = Path(__file__).resolve().parents[2] / "agents" / "skill" / "SKILL.md"


@reads_input(answers=False)
def mcp(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]INPUT...",
            help="What agents may ask about: each a file, a folder, a quoted pattern or a bundle, and a trace of"
            " its own. An agent sees the name alone; without one it is the file's.",
            show_default=False,
        ),
    ] = None,
    *,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long a query may take; 0: any time.")
    ] = 60,
    skill: Annotated[
        bool, typer.Option("--skill", help="Print the skill that tells agents how to read the answers, and exit.")
    ] = False,
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Answer an agent's questions about these files, and no others, over the Model Context Protocol.

    It speaks on stdin and stdout, as agents start such servers, and writes nothing. Needs the protocol's
    SDK, mcp 2 or newer.

    Examples: `xsp mcp before=old.json.gz after=new.json.gz`, `xsp mcp --skill`.
    """
    if skill:
        print_text(_SKILL.read_text(encoding="utf-8").removesuffix("\n"))
        return
    _require_sdk()
    from xsp.agents.service import Service, name_inputs  # noqa: PLC0415 (only here)

    service = Service(name_inputs(_some(inputs)), reading, cache, timeout or None)
    note(f"xsp mcp serves {', '.join(service.aliases)} on stdin and stdout.")
    from xsp.agents.server import serve  # noqa: PLC0415 (imports the SDK)

    serve(service)


def _some(inputs: list[str] | None) -> list[str]:
    from xsp_model import XspError  # noqa: PLC0415 (--help must not wait for polars)

    if not inputs:
        raise XspError("xsp mcp was given no file that agents may ask about", advice="Write: xsp mcp trace.json.gz")
    return inputs


def _require_sdk() -> None:
    """XspError where what it is to be installed with is missing, or too old."""
    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        from xsp_model import XspError  # noqa: PLC0415
        from xsp_model.errors import install_advice  # noqa: PLC0415

        raise XspError(
            "xsp mcp needs the SDK of the Model Context Protocol, version 2 or newer", advice=install_advice("mcp")
        )
