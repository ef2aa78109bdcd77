"""What is left when the command is ended in the middle of a conversion: nothing."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING

import pytest

from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main
from xsp_ingest.files.safe_files import Digests, sha256
from xsp_ingest.link import link
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from pathlib import Path


def _trace(folder: Path) -> Path:
    trace = KinetoTrace()
    trace.span("cpu_op", "aten::mul", 10, 20)
    return trace.write(folder / "trace.json")


@pytest.mark.only_on("linux", "darwin", reason="looks for the lock that other systems lack")
@override_limits(mapped_column_min_bytes=0, spilled_min_spans=0)
def test_a_request_to_end_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    source = _trace(tmp_path)
    monkeypatch.delenv("TMPDIR", raising=False)

    def end(*_: object) -> None:
        (room,) = (tmp_path / "out").iterdir()
        assert room.name.startswith(".trace.xsp.")
        assert sorted(path.name[:4] for path in room.iterdir()) == ["lock", "xsp-"]
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    monkeypatch.setattr(link, "_add_moments", end)
    assert main(["convert", str(source), "-o", str(tmp_path / "out" / "trace.xsp")]) == 130
    assert list((tmp_path / "out").iterdir()) == []


@override_limits(spilled_min_spans=0)
def test_a_large_bundle_is_all_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.delenv("TMPDIR", raising=False)
    assert main(["convert", str(_trace(tmp_path)), "-o", str(tmp_path / "out" / "trace.xsp")]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["trace.xsp"]


def test_a_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    source = _trace(tmp_path)
    with Digests() as digests:
        assert digests.of(source).result() == hashlib.sha256(source.read_bytes()).hexdigest() == sha256(source)


def test_a_digest_is_given_up_when_reading_failed(tmp_path: Path) -> None:
    with Digests() as digests:
        digests.__exit__()
        with pytest.raises(RuntimeError):
            digests.of(_trace(tmp_path))
    left = Digests()
    left._left.set()  # as leaving does while one is under way
    with pytest.raises(CancelledError):
        left.of(_trace(tmp_path)).result()
