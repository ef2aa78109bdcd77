"""Folders and files that are this user's alone: what others could have written there is not used."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["is_own", "make_private"]

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_own(path: Path) -> bool:
    """Whether the file or folder, itself and no link, is this user's, and no one else may write into it."""
    if not hasattr(os, "geteuid"):  # Windows has other means, and folders of users there are their own
        return path.exists()
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode) and not status.st_mode & _OTHERS_WRITE


def make_private(folder: Path) -> bool:
    """Makes the folder, and those around it, for this user alone; whether it is that now.

    One that is there already and this user's is shut to others; another user's is left as it is.
    """
    with suppress(OSError):
        for each in (*reversed(folder.parents), folder):
            if not each.exists():
                each.mkdir(mode=0o700, exist_ok=True)
        if not folder.is_symlink() and (not hasattr(os, "geteuid") or folder.stat().st_uid == os.geteuid()):
            if folder.stat().st_mode & 0o077:
                folder.chmod(0o700)
            return True
    return False
