"""How web servers answer: redirects stay at their host, and a server's own fault is not taken for nothing there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit

from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["check_below", "client", "files_below"]

_FAULT = 500  # from here on the server, and not who parameters, is at fault
_PORTS = {"http": 80, "https": 443}
_MAX_DEPTH = 32  # as of folders of this machine
_MAX_LINKS = 1_000_000
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


def files_below(fs: Any, folder: str, depth: int | None = None) -> dict[str, Any]:  # noqa: ANN401 (fsspec has no types)
    """What the pages of a folder, and so deep of those below it, link to; XspError where one cannot be listed.

    fsspec's own walk keeps one of several links that end alike, and takes a folder that fails for an empty one.
    """
    files: dict[str, Any] = {}
    levels = {folder: 1}
    waiting = [folder]
    while waiting:
        at = waiting.pop()
        _check_end(folder, levels[at], len(files) + len(levels))
        for name, info in _links_of(fs, at):
            check_below([name], folder)
            if not name.endswith("/"):
                files[name] = info
            elif levels[at] != depth and name not in levels:
                levels[name] = levels[at] + 1
                waiting.append(name)
    return files or ({folder: {}} if fs.isfile(folder) else {})


def _links_of(fs: Any, folder: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """What a page links to below itself, but for itself in another order, as servers offer it."""
    try:
        listing = fs.ls(folder, detail=True)
    except FileNotFoundError as error:
        if isinstance(error.__cause__, XspError):
            raise
        return
    for info in listing:
        name = info["name"]
        while "/./" in name:
            name = name.replace("/./", "/")
        if not name.rpartition("/")[2].startswith(("?", "#")):
            yield name, info


def _check_end(folder: str, level: int, count: int) -> None:
    if level > _MAX_DEPTH or count > _MAX_LINKS:
        what = f"more than {_MAX_LINKS:,} links" if count > _MAX_LINKS else f"{_MAX_DEPTH} folders lie in one another"
        raise XspError(f"there is no end to the folder ({what})", path=folder, advice="Name the folders that you mean")


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
