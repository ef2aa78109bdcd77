"""Outputs: files that appear only when they are whole, are written into devices, and never over an input."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from xsp_model.errors import XspError

try:
    import fcntl
except ImportError:  # Windows
    _CAN_LOCK = False
else:
    _CAN_LOCK = True

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "check_output",
    "is_own",
    "lock_alone",
    "make_private",
    "replace_folder",
    "room_beside",
    "unwritable",
    "write_file",
    "writing",
]

_LOCK, _EARLIER = "lock", "earlier"

_PAGE_MARK = b'<meta name="generator" content="XSP'
_HEAD_BYTES = 1024
_OF_A_BUNDLE = ("manifest.json", "spans.parquet")
# May lead to a file that others write, too: so it is written into, as a device is.
_STREAM = re.compile(r"/dev/(stdin|stdout|stderr|fd/\d+)|/proc/(self|thread-self|\d+)(/task/\d+)?/fd/\d+")


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, renamed into its target when the block ends well; of a link, what it leads to.

    What is no file, such as /dev/null or a named pipe, is written into and stays what it is. XspError where the file
    cannot be written; so the block should do little else that raises OSError.
    """
    try:
        if _is_device(path):
            with path.open("wb") as device:
                yield device
            return
        with _write_beside(Path(os.path.realpath(path))) as file:
            yield file
    except BrokenPipeError:
        raise unwritable(path, OSError(0, "whoever read it has gone")) from None
    except OSError as error:
        raise unwritable(path, error) from error


@contextmanager
def _write_beside(target: Path) -> Iterator[IO[bytes]]:
    beside = target.with_name(f".{target.name[:200]}.{os.getpid()}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".{escape(target.name[:200])}.*.part"):
        with suppress(OSError), left.open("r+b") as file:
            if _is_abandoned(file, left):
                left.unlink()
    try:
        with ExitStack() as until_renamed:
            with _open_locked(beside) as file:
                if _CAN_LOCK:  # by another number, which stays when the file is closed
                    until_renamed.callback(os.close, os.dup(file.fileno()))
                yield file
            beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def _open_locked(path: Path) -> IO[bytes]:
    """A new file that is shown to be in use; again where, before it was, another took it for abandoned."""
    while True:
        file = path.open("xb")
        _lock(file)
        with suppress(OSError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()


def write_file(path: Path, content: bytes) -> None:
    """Writes the whole file; XspError where that cannot be done."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def room_beside(target: Path) -> Iterator[Path]:
    """An empty folder beside the target, on its file system, gone at the end.

    Those that killed processes left there go first; of one killed while it replaced the target, the target comes back.
    """
    for left in target.parent.glob(f".{escape(target.name[:200])}.*"):
        with suppress(OSError), (left / _LOCK).open("r+b") as lock:  # without one it is somebody else's
            if _is_abandoned(lock, left / _LOCK):
                if not os.path.lexists(target) and (left / _EARLIER).exists():
                    (left / _EARLIER).rename(target)
                shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name[:200]}.", dir=target.parent))
    try:
        if not _CAN_LOCK:
            yield folder
            return
        with (folder / "unlocked").open("xb") as lock:
            _lock(lock)
            (folder / "unlocked").rename(folder / _LOCK)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def lock_alone(file: IO[Any]) -> bool:
    """Whether no other process holds the file locked, which this one does from then on until it is closed.

    Where files cannot be locked it is true.
    """
    with suppress(BlockingIOError):
        if _CAN_LOCK:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _lock(file: IO[bytes]) -> None:
    """Shows other processes, as long as the file is open, that this one is alive."""
    if _CAN_LOCK:
        with suppress(OSError):  # where files cannot be locked, nobody takes them for abandoned
            fcntl.flock(file, fcntl.LOCK_EX)


def _is_abandoned(file: IO[bytes], path: Path) -> bool:
    """Whether nobody writes what was opened at the path any more; held from then on by whoever asked."""
    if not _CAN_LOCK:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def replace_folder(target: Path, by: Path) -> None:
    """Renames the folder `by`, on the same file system, to that of the target, which is removed once it has succeeded.

    OSError where that cannot be done; the target is then what it was.
    """
    with room_beside(target) as room:
        earlier = room / _EARLIER
        try:
            target.rename(earlier)
            by.rename(target)
        except BaseException:
            if earlier.exists():
                earlier.rename(target)
            raise


def check_output(path: Path, inputs: Iterable[Path]) -> None:
    """XspError, before work is done in vain, where the path cannot be written, is an input, or lies in an input folder.

    Two paths are one file by whatever spelling, link or hard link. A new file in an input folder is no harm, unless the
    folder is a bundle, nor is a page that we wrote there earlier.
    """
    inputs = list(inputs)
    if _is_device(path):
        if path.is_file():
            _refuse_inputs(path, inputs)
        return
    _refuse_bundles(path, inputs)
    if os.path.lexists(path):
        _refuse_inputs(path, inputs)
    parent = next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir():
        raise unwritable(path, NotADirectoryError(0, f"{parent.name} is not a folder"))
    if not os.access(parent, os.W_OK):
        raise unwritable(path, PermissionError(0, "no permission"))


def unwritable(path: Path, error: OSError) -> XspError:
    """The error for a user whose output could not be written."""
    return XspError(f"cannot be written ({error.strerror or error})", path=path, advice="Choose another place")


def _is_device(path: Path) -> bool:
    """Whether there is something that is neither file nor folder, or a stream of a process by a name of its own."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    is_other = not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return is_other or _STREAM.fullmatch(os.path.abspath(path)) is not None  # noqa: PTH100 (links stay)


def _refuse_inputs(path: Path, inputs: Iterable[Path]) -> None:
    target = Path(os.path.realpath(path))
    for name in inputs:
        source = Path(os.path.realpath(name))
        if target == source or _one_file(target, source) or (target.is_dir() and target in source.parents):
            raise XspError("the output is one of the inputs", path=path, advice="Choose another name for the output")
        if source.is_dir() and _is_inside(target, source) and not _is_own_page(target):
            raise XspError(
                f"the output is there already, in the folder {name} that is read, and may be one of the inputs",
                path=path,
                advice="Choose another name for the output",
            )


def _refuse_bundles(path: Path, inputs: Iterable[Path]) -> None:
    """A bundle is the files that its manifest names: anything new in one that is read would be lost with it."""
    target = Path(os.path.realpath(path))
    for name in inputs:
        source = Path(os.path.realpath(name))
        if source in target.parents and all((source / member).is_file() for member in _OF_A_BUNDLE):
            raise XspError(
                f"the output would lie in the bundle {name}, which is read", path=path, advice="Choose another folder"
            )


def _one_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _is_inside(target: Path, folder: Path) -> bool:
    """Whether the target is in the folder, or a file in the folder is the same one by a hard link."""
    if folder in target.parents:
        return True
    try:
        status = target.stat()
    except OSError:
        return False
    members = (Path(at, name) for at, _, names in os.walk(folder) for name in names)
    return status.st_nlink > 1 and any(_one_file(target, member) for member in members)


def _is_own_page(target: Path) -> bool:
    try:
        with target.open("rb") as file:
            return _PAGE_MARK in file.read(_HEAD_BYTES)
    except OSError:
        return False


# Folders and files that are this user's alone: what others could have written there is not used.

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
