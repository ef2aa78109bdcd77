"""`xsp view`: the whole trace in the browser, served from this machine."""

from __future__ import annotations

import sys
from os import environ
from typing import TYPE_CHECKING, Annotated

import typer

from xsp.cache.cache import Cache
from xsp.cli.options import Inputs, ServingPhase, reads_input
from xsp.cli.output import note, print_text
from xsp.cli.progress import Progress, ended_politely
from xsp.opening import load
from xsp.reading import Reading

if TYPE_CHECKING:
    from xsp.view.server import PrivateServer

__all__ = ["view"]


@reads_input()
def view(
    inputs: Inputs,
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port to serve at; 0 for any free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    perfetto: Annotated[bool, typer.Option("--perfetto", help="Hand the trace to ui.perfetto.dev instead.")] = False,
    serving_phase: ServingPhase = None,
    reading: Reading,
    cache: Cache | None,
) -> None:
    """Look at a whole trace over time in the browser, served from this machine to this machine alone.

    It prints the address, which holds a secret of this run, and serves until Ctrl-C. Nothing can be changed through it.

    Examples: `xsp view trace.json.gz`, `xsp view job.xsp --no-browser --port 8000`, `xsp view job.xsp --perfetto`.
    """
    from xsp.view.server import server_of  # noqa: PLC0415 (--help must not wait for polars)

    with Progress() as progress:
        trace = load(inputs, reading, progress.note, cache=cache)
        progress.note("laying out the trace")
        server = server_of(trace, serving_phase, port, perfetto=perfetto)
    with ended_politely(), server:
        _serve(server, in_browser=browser and _has_screen())
    note("xsp view has ended.")


def _serve(server: PrivateServer, *, in_browser: bool) -> None:
    try:
        print_text(server.url)
        note("Serving this machine alone; Ctrl-C ends it.")
        if in_browser:
            import webbrowser  # noqa: PLC0415 (looks for browsers when imported)

            webbrowser.open(f"{server.origin}/{server.once}")
        server.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        pass


def _has_screen() -> bool:
    """Whether a browser would open a window: one in the terminal would take it away from us."""
    return sys.platform in {"darwin", "win32"} or bool(environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY"))
