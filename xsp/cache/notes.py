"""What was found out about files, kept in a folder: a small note a path, which nobody else can have written."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from xsp_model.output_files import is_own, make_private

__all__ = ["Notes"]

_MAX_NOTES = 2_000


class Notes:
    """The notes in one folder; the oldest are deleted once there are too many."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, path: Path) -> dict[str, object]:
        """What is noted of the path; empty: nothing, or nothing that can be read or relied upon."""
        note = self._note(path)
        with suppress(OSError, ValueError, RecursionError):
            if is_own(self._folder) and is_own(note):
                document = json.loads(note.read_text(encoding="utf-8"))
                return document if isinstance(document, dict) else {}
        return {}

    def write(self, path: Path, document: dict[str, object]) -> None:
        """Notes this of the path, where that can be done."""
        with suppress(OSError):
            if not make_private(self._folder):
                return
            with tempfile.NamedTemporaryFile("w", dir=self._folder, prefix=".", delete=False) as file:
                json.dump(document, file)
            Path(file.name).replace(self._note(path))
            notes = sorted(self._folder.glob("*.json"), key=lambda each: each.stat().st_mtime_ns)
            for old in notes[:-_MAX_NOTES]:
                old.unlink(missing_ok=True)

    def _note(self, path: Path) -> Path:
        return self._folder / f"{hashlib.sha256(os.fsencode(path.absolute())).hexdigest()}.json"
