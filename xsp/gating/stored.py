"""Where captures of a baseline are kept: a folder a test, which a repository or a CI's cache can hold."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

__all__ = ["folder_of", "keep", "stored"]

_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_.-]+")
_NAMES = "capture*"
_MAX_LENGTH = 80


def folder_of(baselines: Path, test: str) -> Path:
    """The folder of a test, by its id: readable, and no two tests have the same."""
    digest = hashlib.sha256(test.encode(errors="surrogateescape")).hexdigest()[:8]
    return baselines / f"{_UNNAMEABLE.sub('-', test).strip('-.')[-_MAX_LENGTH:]}-{digest}"


def stored(folder: Path) -> list[Path]:
    """The captures of a baseline; none where there is none."""
    return sorted(folder.glob(_NAMES))


def keep(captures: Sequence[Path], folder: Path) -> None:
    """Puts these in place of what the folder holds, whole or not at all."""
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for number, capture in enumerate(captures, 1):
        shutil.copyfile(capture, new / f"capture{number:02}{''.join(capture.suffixes)}")
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)
