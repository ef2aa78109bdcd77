"""A file's content comes the same by blocks and into memory, plain and gzip, and whoever stops early leaves nothing."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from xsp_ingest.files.content import cut_off, open_source, pieces
from xsp_ingest.files.json_window import Targets, walk
from xsp_model import XspError
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONTENT = bytes(range(256)) * 5


@pytest.fixture(params=[bytes, gzip.compress], ids=["plain", "gzip"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "content"
    path.write_bytes(request.param(_CONTENT))
    return path


def _filled(path: Path, room: int) -> Iterator[bytes]:
    with open_source(path, cut_off) as source:
        target = bytearray(room)
        while count := source.fill(memoryview(target)):
            yield bytes(target[:count])


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize("room", [1, 7, 1 << 20])
def test_blocks_and_memory_get_the_same(file: Path, block: int, room: int) -> None:
    with override_limits(content_block_bytes=block, gzip_read_bytes=11):
        blocks, filled = list(pieces(file)), list(_filled(file, room))
    assert b"".join(blocks) == b"".join(filled) == _CONTENT
    assert max(map(len, blocks)) <= block
    assert max(map(len, filled)) <= min(block, room)


def _held(path: Path) -> int:
    """How many threads decompress, and files are open at the path."""
    threads = sum(thread.name.startswith("decompress") for thread in threading.enumerate())
    return threads + sum(os.path.realpath(each) == str(path.resolve()) for each in Path("/proc/self/fd").iterdir())


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="sees what is open as Linux tells")
def test_who_stops_early_leaves_no_thread_and_no_open_file(file: Path) -> None:
    with override_limits(content_block_bytes=5, gzip_read_bytes=11):
        reader = pieces(file)
        assert next(reader) == _CONTENT[:5]
        assert _held(file) > 0
        reader.close()  # type: ignore[attr-defined]
    assert _held(file) == 0


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="sees what is open as Linux tells")
def test_a_walk_that_stops_early_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"rows": [' + b"[1], " * 1000 + b"2]}"))
    with override_limits(content_block_bytes=50, gzip_read_bytes=11):
        parts = walk(path, Targets("it", lists={("rows",): list[int]}))
        assert next(parts).content[0] == [1]
        assert _held(path) == 2
        parts.close()  # type: ignore[attr-defined]
    assert _held(path) == 0


def test_the_reader_words_what_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "content.gz"
    path.write_bytes(gzip.compress(_CONTENT)[:-9])
    with pytest.raises(XspError, match="cut off: its compressed stream ends early"):
        list(pieces(path))
    with pytest.raises(XspError, match=r": mine$"):
        list(pieces(path, lambda path, _: XspError("mine", path=path)))
