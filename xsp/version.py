"""Which xsp this is: its version, and the commit it was made of."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["commit", "version_line"]

_COMMIT_FILE = Path(__file__).parent / "COMMIT"
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?(?:-dirty)?")
_DESCRIBE = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def version_line() -> str:
    """One line: version and commit, or what of them is not known."""
    try:
        number = version("xsp")
    except PackageNotFoundError:
        number = "(not installed)"
    return f"xsp {number} (commit {commit() or 'unknown'})"


def commit() -> str | None:
    """The commit, with `-dirty` where files differ from it; None where it is not known.

    `git archive` writes it into a file, as building a wheel or an sdist from a checkout does; a checkout is asked.
    """
    return _match(_COMMIT_FILE.read_text(encoding="ascii") if _COMMIT_FILE.is_file() else "") or _of_checkout()


def _of_checkout() -> str | None:
    root = _COMMIT_FILE.parents[1]
    if not (root / ".git").exists():
        return None
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(_DESCRIBE, cwd=root, capture_output=True, text=True, check=True, timeout=5)  # noqa: S603 (git)
        return _match(done.stdout)
    return None


def _match(text: str) -> str | None:
    match = _COMMIT.fullmatch(text.strip())
    return match and match[0]
