"""How web servers answer: redirects stay at their host, and a server's own fault is not taken for nothing there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit

from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check_below", "client", "raise_but_absent"]

_FAULT = 500  # from here on the server, and not who parameters, is at fault
_PORTS = {"http": 80, "https": 443}
_NAMED = 3  # times that a name may have been encoded


async def client(**options: Any) -> Any:  # noqa: ANN401 (aiohttp's session; not installed everywhere)
    """The session of fsspec's HTTP, which looks at every answer."""
    import aiohttp  # noqa: PLC0415 (only for URLs)

    watch = aiohttp.TraceConfig()
    watch.on_request_redirect.append(_check_redirect)
    watch.on_request_end.append(_check_answer)
    return aiohttp.ClientSession(trace_configs=[watch], **options)


async def _check_redirect(_session: Any, _context: Any, parameters: Any) -> None:  # noqa: ANN401
    here = str(parameters.url)
    there = urljoin(here, parameters.response.headers.get("Location") or parameters.response.headers.get("URI") or "")
    if not _is_same_server(here, there):
        parameters.response.close()
        raise XspError(
            f"is redirected to another host ({there})", path=here, advice="Name that address, if it is meant"
        )


async def _check_answer(_session: Any, _context: Any, parameters: Any) -> None:  # noqa: ANN401
    response = parameters.response
    if response.status >= _FAULT and parameters.method != "HEAD":  # not every server knows HEAD
        response.close()
        what = f"cannot be read: the server answers {response.status} {response.reason or ''}".rstrip()
        raise XspError(what, path=str(parameters.url), advice="Try again later")


def _is_same_server(one: str, other: str) -> bool:
    """Whether both are of one host and port, or the second the safe port of the same host."""
    here, there = urlsplit(one), urlsplit(other)
    if here.hostname != there.hostname or there.scheme not in _PORTS:
        return False
    ports = tuple(each.port or _PORTS[each.scheme] for each in (here, there))
    return ports[0] == ports[1] or ports == (_PORTS["http"], _PORTS["https"])


def raise_but_absent(error: OSError) -> None:
    """Of a folder that is walked: a folder that is named and is not there is none, all else is an error."""
    if not isinstance(error, FileNotFoundError) or isinstance(error.__cause__, XspError):
        raise error


def check_below(names: Iterable[str], folder: str) -> None:
    """XspError where a name, as it is or decoded, leads out of the folder whose files it is said to be one of."""
    top = folder.rstrip("/")
    for name in names:
        below = name.removeprefix(top)
        is_below = not top or (name.startswith(top) and below[:1] in ("", "/"))
        for _ in range(_NAMED):
            below = unquote(below)
        if not is_below or ".." in below.replace("\\", "/").split("/"):
            raise XspError(
                f"the folder names a file outside of itself ({name})",
                path=folder,
                advice="Name the files that you mean, one by one",
            )
