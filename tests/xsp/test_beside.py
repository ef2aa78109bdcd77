"""What lies beside the inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp.opening import captures_beside

if TYPE_CHECKING:
    from pathlib import Path


def _laid_out(folder: Path) -> Path:
    """A trace beside a folder and a file of captures, and what is none."""
    (folder / "capture_traces").mkdir()
    for name in ("trace.json.gz", "decode_capture.json", "capture_notes.txt", "other.json"):
        (folder / name).touch()
    return folder / "trace.json.gz"


def test_captures_are_folders_and_traces_named_so(tmp_path: Path) -> None:
    trace = _laid_out(tmp_path)
    expected = [tmp_path / "capture_traces", tmp_path / "decode_capture.json"]
    assert captures_beside([trace]) == expected
    assert captures_beside([tmp_path]) == expected


def test_what_was_named_or_taken_is_not_beside(tmp_path: Path) -> None:
    trace = _laid_out(tmp_path)
    assert captures_beside([trace, tmp_path / "decode_capture.json"], taken=[tmp_path / "capture_traces"]) == []


def test_nothing_is_beside_a_bundle_or_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    _laid_out(tmp_path)
    assert captures_beside([tmp_path / "trace.xsp", tmp_path / "away" / "trace.json"]) == []
