"""What lies beside the files that the user named, and may belong to them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["captures_beside"]

_NAMED = "capture"
_BUNDLE = ".xsp"
_TRACES = (".json", ".json.gz", ".json.zst")


def captures_beside(paths: Iterable[Path], taken: Iterable[Path] = ()) -> list[Path]:
    """Files and folders whose name speaks of a capture, next to the files named or in the folders named.

    vLLM writes a folder `capture_traces`, SGLang `graph_capture_profile` or `capture_traces`. What was named itself, or
    `taken` as a capture already, is none; nor is anything beside a bundle, which is converted.
    """
    inputs = [path.resolve() for path in paths if path.suffix != _BUNDLE]
    beside = {
        one
        for folder in {path if path.is_dir() else path.parent for path in inputs}
        for one in _entries_by_name(folder)
    }
    return sorted(beside - set(inputs) - {path.resolve() for path in taken})


def _entries_by_name(folder: Path) -> Iterator[Path]:
    with suppress(OSError):  # a folder that may not be listed holds nothing for us
        for one in folder.iterdir():
            if _NAMED in one.name.lower() and (one.is_dir() or one.name.endswith(_TRACES)):
                yield one
