"""Limits of memory: the outcome is the answer, or one sentence and the exit status of a user's error."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from xsp.memory import ran_out

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.only_on("linux", reason="these limits hold on Linux alone")

_FILE = "fixtures/nsys_sqlite/layerwise_cpu/nvtx.sqlite"
_MB = 1 << 20


def _limited(kind: int, size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (size, size))


def _xsp(kind: int, size: int, output: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from xsp.cli.main import main; sys.exit(main())"]
    return subprocess.run(
        [*command, "convert", _FILE, "-o", str(output)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_limited(kind, size),
    )


@pytest.mark.slow
def test_an_nsight_file_is_read_under_a_limit_of_address_space(tmp_path: Path) -> None:
    done = _xsp(resource.RLIMIT_AS, 2000 * _MB, tmp_path / "out.xsp")
    assert (done.returncode, done.stderr) == (0, f"{tmp_path / 'out.xsp'}: 63 spans\n")


@pytest.mark.parametrize(
    ("kind", "name", "size"),
    [
        (resource.RLIMIT_AS, "ulimit -v", 100 * _MB),
        (resource.RLIMIT_AS, "ulimit -v", 200 * _MB),
        (resource.RLIMIT_AS, "ulimit -v", 300 * _MB),
        (resource.RLIMIT_AS, "ulimit -v", 400 * _MB),
        (resource.RLIMIT_DATA, "ulimit -d", 50 * _MB),
        (resource.RLIMIT_DATA, "ulimit -d", 100 * _MB),
    ],
)
def test_what_a_limit_leaves_no_room_for_ends_in_one_sentence(tmp_path: Path, kind: int, name: str, size: int) -> None:
    done = _xsp(kind, size, tmp_path / "out.xsp")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: xsp ran out of memory: {size / 1e9:.2f} GB is what `{name}` leaves it.")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("last_act", "status", "sentence"),
    [
        ("os.write(2, b'memory allocation of 8 bytes failed\\n'); os.abort()", 2, "error: xsp ran out of memory"),
        (  # by two threads at once
            "os.write(2, b'memory allocation of memory allocation of 8 bytes failed\\n24 bytes failed\\n'); os.abort()",
            2,
            "error: xsp ran out of memory",
        ),
        (  # said, and ended by a library on the way out
            "os.write(2, b'error: xsp ran out of memory: 0.21 GB\\n'); os.abort()",
            2,
            "error: xsp ran out of memory: 0.21 GB\n",
        ),
        ("os.write(2, b'OpenBLAS error: giving up\\n'); os._exit(1)", 2, "error: xsp ran out of memory"),
        ("os.write(2, b'a note\\n'); os._exit(1)", 1, "a note"),
        ("os._exit(3)", 3, ""),
    ],
)
def test_how_the_watched_process_ends_is_told(last_act: str, status: int, sentence: str) -> None:
    start = "import os, sys\nfrom xsp.cli.main import run_watched\ns = run_watched()"
    code = f"{start}\nif s is None: {last_act}\nsys.exit(s)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") <= 1


@pytest.mark.parametrize(
    ("error", "is_of_memory"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "any"), True),
        (ImportError("libarrow.so: failed to map segment from shared object"), True),
        (RuntimeError("can't start new thread"), True),
        (OSError(errno.ENOENT, "any"), False),
        (ValueError("any"), False),
    ],
)
def test_errors_for_want_of_memory_are_told_from_others(error: BaseException, *, is_of_memory: bool) -> None:
    assert ran_out(error) is is_of_memory
