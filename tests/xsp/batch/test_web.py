"""Folders of web servers that lead elsewhere, or whose server fails."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from xsp.batch import locations
from xsp.batch.locations import check_below
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sessions of fsspec live as long as the process
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

Act = Callable[[str], object]
Answer = tuple[int, str, str]  # status, body, where it leads


@contextmanager
def _served(answers: Mapping[str, Answer], otherwise: Answer = (404, "", "")) -> Iterator[str]:
    """A server of these answers by path."""
    for package in ("fsspec", "aiohttp"):
        pytest.importorskip(package, reason=f"{package} is not installed (the extra `cluster`)")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text, leads = answers.get(self.path, otherwise)
            self.send_response(status)
            if leads:
                self.send_header("Location", leads)
            self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text.encode())

        do_HEAD = do_GET  # noqa: N815 (likewise)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _links(*names: str) -> Answer:
    return (200, "".join(f'<a href="{name}">{name}</a>' for name in names), "")


def test_what_lies_below_a_folder_is_listed() -> None:
    with _served(
        {"/t/": _links("a.json", "/u/b.json", "http://127.0.0.2:1/t/c.json"), "/t/a.json": (200, "x", "")}
    ) as at:
        assert [entry.url for entry in locations.list_files(f"{at}/t/")] == [f"{at}/t/a.json"]


def test_files_of_one_name_in_several_folders_are_all_listed() -> None:
    page = _links("r0/t.json", "r1/t.json", "./r1/t.json", "?C=N;O=D", "/t/sub/", "sub/")
    with _served({"/t/": page, "/t/sub/": _links("t.json"), "/t/sub": (301, "", "/t/sub/")}) as at:
        for url in (f"{at}/t/", f"{at}/t/**/*.json"):
            listed = [entry.url.removeprefix(f"{at}/t/") for entry in locations.list_files(url)]
            assert listed == ["r0/t.json", "r1/t.json", "sub/t.json"]
        assert [entry.url for entry in locations.list_files(f"{at}/t/r[1]/*.json")] == [f"{at}/t/r1/t.json"]


def test_a_folder_below_that_fails_is_not_taken_for_an_empty_one() -> None:
    fails = pytest.raises(XspError, match="the server answers 500")
    with _served({"/t/": _links("a.json", "sub/"), "/t/sub/": (500, "", "")}) as at, fails:
        locations.list_files(f"{at}/t/")


@pytest.mark.parametrize("links", [("t/",), ("t/", "u/", "./")])
def test_folders_without_end_are_an_error(links: tuple[str, ...]) -> None:
    refused = pytest.raises(XspError, match=r"no end to the folder \(32 folders lie in one another\)")
    with _served({}, _links(*links)) as at, refused:
        locations.list_files(f"{at}/t/")


@pytest.mark.parametrize("name", ["a*.json", "a[1].json", "a?.json"])
def test_a_name_with_marks_of_a_pattern_is_one_file(name: str, tmp_path: Path) -> None:
    memory = pytest.importorskip("fsspec", reason="fsspec is not installed (the extra `cluster`)").filesystem("memory")
    for each in (name, "a1.json", "ab.json"):
        memory.pipe_file(f"/marks/{each}", each.encode())
    try:
        (entry,) = locations.list_files(f"memory://marks/{name}")
        assert locations.fetch(entry.url, tmp_path).read_text() == name
        assert len(locations.list_files("memory://marks")) == 3
    finally:
        memory.rm("/marks", recursive=True)


@pytest.mark.parametrize("name", ["../secret.json", "%2e%2e/secret.json", "%252e%252e%252fsecret.json", r"..\secret"])
def test_names_that_lead_out_of_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    with _served({"/t/": _links(name), "/secret.json": (200, "x", "")}) as at:
        for act in (locations.list_files, lambda url: locations.fetch(url, tmp_path)):
            with pytest.raises(XspError, match="names a file outside of itself"):
                act(f"{at}/t/")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("act", [locations.list_files, locations.read_bytes, locations.stamp])
def test_a_redirect_to_another_host_is_refused(act: Act) -> None:
    refused = pytest.raises(XspError, match=r"is redirected to another host \(http://127\.0\.0\.2:9/a\.json\)")
    with _served({"/a.json": (302, "", "http://127.0.0.2:9/a.json")}) as at, refused:
        act(f"{at}/a.json")


def test_a_redirect_at_the_same_host_is_followed() -> None:
    with _served({"/a.json": (302, "", "/b.json"), "/b.json": (200, "x", "")}) as at:
        assert locations.read_bytes(f"{at}/a.json") == b"x"


@pytest.mark.parametrize("act", [locations.list_files, locations.read_bytes, locations.stamp])
@pytest.mark.parametrize("path", ["/t/", "/a.json"])
def test_a_fault_of_the_server_is_not_taken_for_nothing(act: Act, path: str) -> None:
    with _served({path: (500, "", "")}) as at, pytest.raises(XspError, match="the server answers 500"):
        act(f"{at}{path}")


def test_what_is_not_there_is_said_to_be_absent() -> None:
    with _served({}) as at:
        assert locations.read_bytes(f"{at}/a.json") is None
        with pytest.raises(XspError, match="nothing is there"):
            locations.list_files(f"{at}/a.json")


@pytest.mark.parametrize("name", ["bucket/f/../../x", "bucket/other/x", "bucket/f/a/..", "bucket/fx"])
def test_names_of_a_bucket_stay_below_the_folder(name: str) -> None:
    with pytest.raises(XspError, match="names a file outside of itself"):
        check_below([name], "bucket/f")
    check_below(["bucket/f/x", "bucket/f/a..b", "bucket/f"], "bucket/f/")
