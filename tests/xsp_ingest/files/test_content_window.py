"""A window keeps what is not used yet, grows where it must, and is followed by zeros."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from xsp_ingest.files.content import ContentWindow, Refusals, cut_off, open_source
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def _window(folder: Path, content: bytes, room_bytes: int, max_bytes: int = 1000) -> Iterator[ContentWindow]:
    path = folder / "content"
    path.write_bytes(content)
    with open_source(path, cut_off) as source:
        yield ContentWindow(source, room_bytes, max_bytes, Refusals(EOFError, OverflowError), padding_bytes=3)


def test_what_is_used_leaves_and_the_rest_stays(tmp_path: Path) -> None:
    with _window(tmp_path, b"abcdefgh", 4) as window:
        assert window.fill()
        assert bytes(window.text) == b"abcd"
        window.offset = 3
        window.more()
        assert (bytes(window.rest), window.offset, window.passed_bytes) == (b"defg", 0, 3)
        window.offset = 4
        window.more()
        assert bytes(window.rest) == b"h"
        assert not window.fill()
        assert bytes(window.rest) == b"h"
        with pytest.raises(EOFError):
            window.more()


@pytest.mark.parametrize("block", [1, 3, 100])
def test_it_grows_up_to_its_limit_with_zeros_behind(tmp_path: Path, block: int) -> None:
    content = bytes(range(1, 101))
    with override_limits(content_block_bytes=block), _window(tmp_path, content, 1, 64) as window:
        while len(window.text) < 64:
            assert window.fill()
            assert bytes(window.text) == content[: len(window.text)]
            assert bytes(window.buffer.data[len(window.text) :][:3]) == bytes(3)
        assert len(window.buffer) == 64 + 3
        with pytest.raises(OverflowError):
            window.more()


@pytest.mark.parametrize("room", [1, 2, 100])
def test_the_next_byte_stands_behind_what_is_passed(tmp_path: Path, room: int) -> None:
    with _window(tmp_path, b" \n ,a ", room) as window:
        assert window.peek() == ord(",")
        assert window.peek(b" ,") == ord("a")
        window.offset += 1
        assert window.peek() is None
