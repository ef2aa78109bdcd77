"""Where results lie and inputs come from: paths of this machine, and URLs of stores and web servers."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin, urlsplit

from xsp_model import XspError
from xsp_model.errors import install_advice, readable
from xsp_model.output_files import replace_folder, write_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "Entry",
    "absolute",
    "check_below",
    "fetch",
    "files_below",
    "from_batch",
    "http_session",
    "is_http",
    "is_url",
    "join_path",
    "list_files",
    "put_file",
    "put_folder",
    "read_bytes",
    "read_head",
    "read_many",
    "stamp",
]

# How web servers answer: redirects stay at their host, and a server's own fault is not taken for nothing there.

_FAULT = 500  # from here on the server, and not who parameters, is at fault
_PORTS = {"http": 80, "https": 443}
_MAX_DEPTH = 32  # as of folders of this machine
_MAX_LINKS = 1_000_000
_NAMED = 3  # times that a name may have been encoded


async def http_session(**options: Any) -> Any:  # noqa: ANN401 (aiohttp's session; not installed everywhere)
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


# Where inputs lie and outputs go: paths of this machine, or URLs of any kind that fsspec knows (s3, gs, http, ...).

_URL = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_FILE_URL = "file://"
_USER = re.compile(r"^([^:/]+://)[^/]*@")
_QUERY = re.compile(r"[?#].*", re.DOTALL)
_STAMPS = ("ETag", "etag", "LastModified", "last_modified", "mtime", "md5Hash", "generation")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that a URL's folder or pattern holds, and its path below it."""

    url: str
    below: str
    size: int | None  # None: its host does not say


def is_url(text: str) -> bool:
    """Whether the text is a URL; `file://` is one too."""
    return _URL.match(text) is not None


def is_http(text: str) -> bool:
    """Whether the URL is of a web server."""
    return text.lower().startswith(("http://", "https://"))


def absolute(text: str) -> str:
    """The path from the root, as workers may run elsewhere; a URL as it stands: over HTTP a slash ends a folder."""
    return text if is_url(text) else str(Path(text).absolute())


def join_path(base: str, *parts: str) -> str:
    """The path or URL of something below another."""
    return "/".join((base.rstrip("/"), *parts)) if is_url(base) else str(Path(base, *parts))


def from_batch(name: str, output: str) -> str:
    """An input's place as the files of a batch have it: relative to the batch, which says nothing of where both lie.

    Where the two have no folder in common, or the batch lies at a URL, a file's name is all. A URL goes without the
    user, password and signature that it may hold.
    """
    if name.lower().startswith(_FILE_URL):
        name = name[len(_FILE_URL) :]
    if is_url(name):
        bare = _USER.sub(r"\1", name)
        return readable(_QUERY.sub("", bare) if is_http(bare) else bare)
    if is_url(output) or os.path.commonpath((name, output)) == os.path.sep:
        return readable(os.path.basename(name))  # noqa: PTH119 (of a text)
    return readable(os.path.relpath(name, output))


def list_files(url: str) -> list[Entry]:
    """The files of a URL: itself, those below it where it is a folder, or those that match its pattern; by name."""
    with _reached(url) as (fs, path):
        if _is_file(fs, path):
            files, base = {path: fs.info(path)}, path.rpartition("/")[0]
        elif marks := [path.index(c) for c in "*?[" if c in path]:
            base = path[: min(marks)].rpartition("/")[0]
            files = _matches(fs, path, base)
        else:
            files, base = _files_below(fs, path), path
        check_below(files, base)
    entries = [
        Entry(fs.unstrip_protocol(name), name.removeprefix(base).lstrip("/"), info.get("size"))
        for name, info in sorted(files.items())
    ]
    if not entries:
        raise XspError("nothing is there", path=url)
    return entries


def _files_below(fs: Any, path: str) -> dict[str, Any]:  # noqa: ANN401
    """The files below the folder, by name; of a web server, what cannot be listed is an error."""
    files: dict[str, Any] = files_below(fs, path) if is_http(path) else fs.find(path, detail=True)
    return files


def _matches(fs: Any, pattern: str, base: str) -> dict[str, Any]:  # noqa: ANN401
    """The files that match the pattern, all of which lie below the folder; in URLs `?` is no mark of patterns."""
    if not is_http(pattern):
        return {name: info for name, info in fs.glob(pattern, detail=True).items() if info["type"] == "file"}
    from fsspec.utils import glob_translate  # noqa: PLC0415 (only for URLs)

    depth = None if "**" in pattern else pattern.count("/") - base.count("/")
    is_match = re.compile(glob_translate(pattern.replace("?", "[?]"))).match
    return {name: info for name, info in files_below(fs, f"{base}/", depth).items() if is_match(name)}


def _is_file(fs: Any, path: str) -> bool:  # noqa: ANN401 (fsspec has no types)
    """HTTP has no folders, only pages that list files: there a slash at the end tells them from files."""
    return not path.endswith("/") and bool(fs.isfile(path))


def fetch(url: str, folder: Path) -> Path:
    """A copy of the URL's file or folder, in the folder."""
    with _reached(url) as (fs, path):
        last = path.rstrip("/").rpartition("/")[2]
        target = folder / (last if last not in ("", ".", "..") else "input")
        if _is_file(fs, path):
            fs.get_file(path, str(target))  # `get` takes *, ? and [ in a name for a pattern
            return target
        names = sorted(_files_below(fs, path))
        check_below(names, path)
        copies = [target / name.removeprefix(path).lstrip("/") for name in names]
        for copy in copies:
            copy.parent.mkdir(parents=True, exist_ok=True)
        fs.get(names, [str(copy) for copy in copies])
    return target


def read_bytes(location: str) -> bytes | None:
    """What a small file holds; None where there is none."""
    if not is_url(location):
        with suppress(OSError):
            return Path(location).read_bytes()
        return None
    with _reached(location) as (fs, path):
        try:
            content: bytes = fs.cat_file(path)
        except FileNotFoundError:
            return None
    return content


def read_many(locations: list[str]) -> list[bytes | OSError]:
    """What small files of one folder hold, those at a URL fetched together; or why one of them cannot be read."""
    if not locations or not is_url(locations[0]):
        return [_content_or_error(location) for location in locations]
    with _reached(locations[0]) as (fs, first):
        folder = first.rpartition("/")[0]
        paths = [f"{folder}/{location.rpartition('/')[2]}" for location in locations]
        contents: dict[str, bytes | Exception] = fs.cat([*paths, *paths[:1]], on_error="return")
        for content in contents.values():
            if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
                raise content
    return [content if isinstance(content := contents[path], bytes) else FileNotFoundError() for path in paths]


def _content_or_error(location: str) -> bytes | OSError:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        return error


def read_head(url: str, count: int) -> tuple[bytes, int | None]:
    """The first bytes of the URL's file, and how many it has as far as its host says; the rest is not fetched."""
    with _reached(url) as (fs, path), fs.open(path, "rb", block_size=count, cache_type="none") as file:
        head: bytes = file.read(count)
        size: int | None = getattr(file, "size", None)
    return head, len(head) if len(head) < count else size


def put_file(location: str, content: bytes) -> None:
    """Writes a file that appears only when it is whole."""
    if is_url(location):
        with _reached(location) as (fs, path):
            fs.pipe_file(path, content)
        return
    write_file(Path(location), content)


def put_folder(folder: Path, location: str, last: str) -> None:
    """Moves the folder there, replacing an earlier one, which has a file `last`; XspError where anything else is there.

    To a URL: uploads it, the file `last` after the rest.
    """
    if is_url(location):
        _upload(folder, location, last)
        return
    target = Path(location)
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        if target.is_symlink() or not (target / last).is_file():
            raise XspError(
                "something is there that no xsp batch wrote", path=target, advice="Choose another folder with -o"
            )
        replace_folder(target, folder)
    else:
        folder.rename(target)


def _upload(folder: Path, url: str, last: str) -> None:
    with _reached(url) as (fs, path):
        if fs.exists(f"{path}/{last}"):
            fs.rm(f"{path}/{last}")  # from here on the old result is none
        files = sorted(f for f in folder.rglob("*") if f.is_file())
        for file in sorted(files, key=lambda f: f == folder / last):
            fs.put_file(str(file), f"{path}/{file.relative_to(folder).as_posix()}")


def stamp(url: str) -> str | None:
    """What changes whenever the content of the URL's file does, without reading it; None: its host says nothing."""
    with _reached(url) as (fs, path):
        info = fs.info(path)
        if info.get("type") == "directory":
            return None
    facts = [f"{key}={info[key]}" for key in _STAMPS if info.get(key) is not None]
    return f"size={info.get('size')} {' '.join(facts)}" if facts else None


class _reached:  # noqa: N801 (read as a word: `with _reached(url)`)
    """Within `with`, the URL's file system and path; whatever its library raises becomes a sentence."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __enter__(self) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs  # noqa: PLC0415 (only for URLs)
        except ImportError as error:
            raise XspError(
                "reading URLs needs fsspec, which is not installed", path=self.url, advice=install_advice("cluster")
            ) from error
        try:
            watched = {"get_client": http_session} if is_http(self.url) else {}
            system_and_path: tuple[Any, str] = url_to_fs(self.url, use_listings_cache=False, **watched)
        except Exception as error:
            raise _unreachable(self.url, error) from error
        return system_and_path

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, XspError):
            raise _unreachable(self.url, error) from error


def _unreachable(url: str, error: Exception) -> XspError:
    """Libraries of clouds raise errors of their own, most of several lines, and some for ours."""
    if isinstance(error.__cause__, XspError):
        return error.__cause__
    reason = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, FileNotFoundError):
        reason = "nothing is there"
    return XspError(f"cannot be reached ({reason})", path=url, advice="Check the address and your credentials for it")
