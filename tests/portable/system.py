"""macOS or Windows as far as Linux can play them, for the product alone.

`XSP_SYSTEM=win32 pytest -p tests.portable.system` (or `darwin`). What our modules import is what that system has: some
modules are missing, and functions of `os`, `signal`, `mmap` and others; `sys.platform` is its name; there is no /proc.
pytest, libraries and Python's own modules see Linux as it is. On Windows moreover no file is renamed, replaced or
deleted while it is open or mapped, none gets a name that Windows refuses, and no process is forked. Not played: drives
and separators of paths, which tests of their own hold, and what a system's own calls do otherwise within.
"""

from __future__ import annotations

import builtins
import os
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["SYSTEM"]

SYSTEM = os.environ.get("XSP_SYSTEM", "linux")
_IS_WINDOWS = SYSTEM == "win32"
_PRODUCT = {"xsp", "xsp_ingest", "xsp_model", "xsp_analyze"}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MISSING_MODULES = _names("fcntl grp pty pwd readline resource syslog termios tty") if _IS_WINDOWS else frozenset[str]()
_OF_LINUX = "posix_fallocate posix_fadvise sched_getaffinity sched_setaffinity memfd_create splice pidfd_open O_TMPFILE"
_MISSING: Mapping[str, Mapping[str, frozenset[str]]] = {
    "darwin": {
        "os": _names(f"{_OF_LINUX} preadv O_DIRECT"),  # versions before 11 have no preadv
        "mmap": _names("MAP_POPULATE MADV_HUGEPAGE MADV_DONTFORK"),
        "select": _names("epoll"),
    },
    "win32": {
        "os": _names(
            f"""{_OF_LINUX} preadv O_DIRECT fork forkpty posix_spawn pread pwrite readv writev sendfile sysconf confstr
            getuid geteuid getgid getegid setuid getresuid getpgid killpg setsid mkfifo mknod nice wait wait3 wait4
            waitid statvfs fstatvfs register_at_fork fchmod fchown chown getloadavg uname ttyname openpty pathconf
            O_CLOEXEC O_NOFOLLOW O_DIRECTORY O_NONBLOCK WNOHANG WIFSIGNALED WTERMSIG"""
        ),
        "signal": _names(
            """SIGKILL SIGHUP SIGALRM SIGPIPE SIGUSR1 SIGUSR2 SIGQUIT SIGCHLD SIGBUS SIGTRAP SIGSTOP SIGTSTP SIGCONT
            SIGXCPU SIGWINCH SIGTTOU SIG_BLOCK SIG_UNBLOCK SIG_SETMASK setitimer alarm pause pthread_sigmask
            pthread_kill sigwait siginterrupt"""
        ),
        "mmap": _names(
            """MAP_PRIVATE MAP_SHARED MAP_ANONYMOUS MAP_POPULATE PROT_READ PROT_WRITE MADV_DONTNEED MADV_SEQUENTIAL
            MADV_WILLNEED MADV_HUGEPAGE"""
        ),
        "select": _names("epoll poll"),
        "time": _names("clock_gettime"),
    },
}

_FREE_BYTES, _HELD_BYTES = 8 << 30, 200 << 20


def _say_machine(status: object) -> None:
    machine: Any = getattr(status, "_obj", None)  # of what `byref` made
    machine[1:3] = 2 * _FREE_BYTES, _FREE_BYTES


def _say_process(_process: object, counters: object, _size: int) -> None:
    held: Any = getattr(counters, "_obj", None)
    held[1:3] = 2 * _HELD_BYTES, _HELD_BYTES


_KERNEL32 = SimpleNamespace(GlobalMemoryStatusEx=_say_machine, K32GetProcessMemoryInfo=_say_process)
_OTHERWISE: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "darwin": {"sys": {"platform": "darwin"}},
    "win32": {
        "sys": {"platform": "win32"},
        "os": {"name": "nt"},
        "ctypes": {"windll": SimpleNamespace(kernel32=_KERNEL32)},
    },
}


class _View(ModuleType):
    """A module as that system has it; all but what is missing or otherwise there is the module itself."""

    def __init__(self, module: ModuleType, missing: frozenset[str], otherwise: Mapping[str, object]) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(_module=module, _missing=missing, _otherwise=otherwise)

    _module: ModuleType
    _missing: frozenset[str]
    _otherwise: Mapping[str, object]

    def __getattr__(self, name: str) -> object:
        if name in self._missing:
            message = f"module {self.__name__!r} has no attribute {name!r} on {SYSTEM}"
            raise AttributeError(message)
        return self._otherwise[name] if name in self._otherwise else getattr(self._module, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._module, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._module, name)


def _importing(original: Callable[..., ModuleType]) -> Callable[..., ModuleType]:
    """`__import__` that gives the product's modules what that system has."""
    missing, otherwise = _MISSING[SYSTEM], _OTHERWISE[SYSTEM]
    views = {
        name: _View(original(name), missing.get(name, frozenset()), otherwise.get(name, {}))
        for name in {*missing, *otherwise}
    }

    def find(name: str, globals: Mapping[str, object] | None = None, *more: object, **named: object) -> ModuleType:  # noqa: A002 (its name in Python)
        if str((globals or {}).get("__name__", "")).partition(".")[0] in _PRODUCT:
            if name in _MISSING_MODULES:
                message = f"No module named {name!r} on {SYSTEM}"
                raise ModuleNotFoundError(message, name=name)
            if name in views:
                return views[name]
        return original(name, globals, *more, **named)

    return find


# What the system refuses when the product asks for it, by itself or through Python's own modules.

_REFUSED_NAME = re.compile(r'[<>:"|?*\x00-\x1f]|[ .]$|^(?:CON|PRN|AUX|NUL|COM\d|LPT\d)(?:\.|$)', re.IGNORECASE)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_FORKS = {"os.fork", "os.forkpty", "os.posix_spawn"}
_MOVES = {"os.rename", "os.remove", "os.rmdir"}
_NAMES = {"os.rename": 1, "os.mkdir": 0}  # which argument is the new name
_looking: list[bool] = []
_STREAMS = re.compile(r"/proc/self/fd/\d+$")


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Raises as that system would."""
    if _looking:  # it is this hook that opens something
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, str) and _is_of_product():
            if path.startswith(("/proc/", "/sys/")) and not _STREAMS.match(path):
                raise FileNotFoundError(2, "No such file or directory", path)
            if (flags or 0) & _WRITES:
                _check_name(path)
    elif _IS_WINDOWS and event in {*_FORKS, *_MOVES, *_NAMES} and _is_of_product():
        if event in _FORKS:
            message = "no process is forked on Windows"
            raise AssertionError(message)
        if event in _NAMES:
            _check_name(os.fspath(arguments[_NAMES[event]]))
        if event in _MOVES:
            _check_closed(each for each in arguments[:2] if not isinstance(each, int))


def _check_name(path: str | bytes) -> None:
    if _IS_WINDOWS and _REFUSED_NAME.search(Path(os.fsdecode(path)).name):
        raise OSError(22, "Invalid argument", path)


def _check_closed(paths: Iterator[str | bytes | os.PathLike[str]]) -> None:
    _looking.append(True)
    try:
        held = _paths_held()
    finally:
        _looking.pop()
    for path in paths:
        real = os.path.realpath(os.fsdecode(path))
        if real in held or any(each.startswith(f"{real}/") for each in held):
            raise PermissionError(13, "The process cannot access the file, which another uses", real)


def _paths_held() -> set[str]:
    """Files that this process has open or mapped."""
    held = set()
    for each in Path("/proc/self/fd").iterdir():
        try:
            held.add(str(each.readlink()))
        except OSError:  # that of the folder itself
            continue
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return held | {line[line.index("/") :] for line in maps if "/" in line}


def _is_of_product() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        root = module.partition(".")[0]
        if root in _PRODUCT:
            return True
        if module != __name__ and root not in sys.stdlib_module_names:
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return False


# What pytest is told.


def pytest_report_header() -> str:
    """Which system it is."""
    return f"system played: {SYSTEM}"


if SYSTEM != "linux":
    builtins.__import__ = _importing(builtins.__import__)
    sys.addaudithook(_refuse)
