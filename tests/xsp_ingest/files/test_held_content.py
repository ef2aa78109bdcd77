"""What is held in memory as a whole fits into the memory that there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from xsp_ingest.files import content
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path


def test_content_is_held_as_far_as_memory_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(b" " * (17 << 20))
    monkeypatch.setattr(content, "limit_bytes", lambda: 17 * 6 << 20)
    assert len(content.read_all(file)) == 17 << 20
    monkeypatch.setattr(content, "limit_bytes", lambda: 100_000_000)
    with pytest.raises(XspError, match=r"too long for the 0\.10 GB of memory that xsp may take"):
        content.read_all(file)
    file.write_bytes(b" " * (1 << 24))  # so little is always tried
    assert len(content.read_all(file)) == 1 << 24
