"""Finds the profiles in TensorBoard's log folders: `LOGS/plugins/profile/RUN/HOST.xplane.pb`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xsp_ingest.files.probe import Probe
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["profiles"]

_LAYOUT = ("plugins", "profile")


def profiles(folder: Path, is_profile: Callable[[Probe], object]) -> Sequence[Path]:
    """The profiles of the folder's only session, one a host; none where the folder is no log folder.

    `folder` is the log folder, a session in it, or anything between; XspError where it holds several sessions.
    """
    files_of = {session: files for session in _sessions(folder) if (files := _inside(session, is_profile))}
    if len(files_of) > 1:
        raise XspError(
            f"the log folder holds {len(files_of)} profiling sessions",
            path=folder,
            advice=f"Give one of them, as {next(reversed(files_of))}",
        )
    return next(iter(files_of.values()), [])


def _sessions(folder: Path) -> list[Path]:
    parts = folder.absolute().parts
    if parts[-3:-1] == _LAYOUT:
        return [folder]
    for below in (folder.joinpath(*_LAYOUT), folder / _LAYOUT[1], folder):
        if below.is_dir() and below.absolute().parts[-2:] == _LAYOUT:
            return sorted(path for path in below.iterdir() if path.is_dir() and not path.is_symlink())
    return []


def _inside(session: Path, is_profile: Callable[[Probe], object]) -> list[Path]:
    files = (path for path in sorted(session.iterdir()) if path.is_file() and not path.is_symlink())
    return [path for path in files if path.stat().st_size and _is_claimed(path, is_profile)]


def _is_claimed(path: Path, is_profile: Callable[[Probe], object]) -> bool:
    try:
        return bool(is_profile(Probe(path)))
    except XspError:
        return False
