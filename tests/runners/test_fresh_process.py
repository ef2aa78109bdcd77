"""Runs end with whoever started them, also by a signal that nobody can answer; looked for among the processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.nsys_tool import nsys
from tests.helpers.waiting import HANG_S, wait_until
from xsp_runners.nsys import Nsys, profile_command
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets.level_process import PlannedRun, to_its_end

if TYPE_CHECKING:
    from collections.abc import Iterator

_REPO = Path(__file__).resolve().parents[2]
_STARTER = """
import sys
from pathlib import Path
from xsp_runners.sets.level_process import to_its_end
from xsp_runners.sets.level_process import PlannedRun
to_its_end(PlannedRun("M", Path("."), sys.argv[1:], {}))
"""
_FAMILY = """
import os, signal, subprocess, sys, time
from pathlib import Path
if len(sys.argv) < 3:  # the command: a child of its own session, and an orphan that nothing but init would wait for
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    program = [sys.executable, __file__, sys.argv[1]]
    subprocess.Popen([*program, "child"], start_new_session=True)
    subprocess.run([*program, "parent-of-orphan"])
elif sys.argv[2] == "parent-of-orphan":
    subprocess.Popen([sys.executable, __file__, sys.argv[1], "orphan"], start_new_session=True)
    sys.exit()
(Path(sys.argv[1]) / f"{os.getpid()}.pid").touch()
time.sleep(600)
"""
_MEMBERS = 3

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked for in /proc")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture(name="family")
def fixture_family(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """The process that had a command started, and those that came of it: the command, its child and its orphan."""
    (tmp_path / "family.py").write_text(_FAMILY)
    command = [sys.executable, "-c", _STARTER, sys.executable, str(tmp_path / "family.py"), str(tmp_path)]
    starter = subprocess.Popen(command, cwd=_REPO)
    wait_until(lambda: len(list(tmp_path.glob("*.pid"))) == _MEMBERS or starter.poll() is not None)
    pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
    yield starter, pids
    starter.kill()
    starter.wait(HANG_S)
    for pid in filter(_runs, pids):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_nothing_outlives_who_started_it(
    family: tuple[subprocess.Popen[bytes], list[int]], sent: signal.Signals
) -> None:
    starter, pids = family
    (guard,) = _children(starter.pid)
    assert len(pids) == _MEMBERS
    assert all(map(_runs, [guard, *pids]))
    starter.send_signal(sent)
    starter.wait(HANG_S)
    wait_until(lambda: not any(map(_runs, [guard, *pids])))


def test_a_command_ends_with_its_guard(family: tuple[subprocess.Popen[bytes], list[int]]) -> None:
    (guard,) = _children(family[0].pid)
    command, *_ = [pid for pid in _children(guard) if pid in family[1]]
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: not _runs(command))


_MARKS_NOTHING = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"


def _named(text: str) -> list[int]:
    """Processes whose command line holds the text."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if text.encode() in entry.read_bytes() and _runs(int(entry.parent.name)):
                pids.append(int(entry.parent.name))
    return pids


@pytest.mark.nsys
def test_the_real_nsys_its_agent_and_its_program_end_too(tmp_path: Path) -> None:
    program = [sys.executable, "-c", _MARKS_NOTHING, str(tmp_path / "under-way")]
    command = profile_command(program, tmp_path, nsys=Nsys.locate(nsys()), on_gpu=False)
    starter = subprocess.Popen([sys.executable, "-c", _STARTER, *command], cwd=_REPO)
    wait_until(lambda: (tmp_path / "under-way").exists() or starter.poll() is not None)
    (guard,) = _children(starter.pid)
    (profiler,) = [
        pid for pid in _children(guard) if str(tmp_path).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    session = f"profile-{profiler}"  # as nsys calls its agent, a daemon of its own session
    assert _named(session)
    starter.kill()
    starter.wait(HANG_S)
    wait_until(lambda: not _named(str(tmp_path)) and not _named(session))


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("", 0),
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import os; os.abort()", -signal.SIGABRT),
    ],
)
def test_a_command_tells_how_it_ended(program: str, status: int) -> None:
    assert to_its_end(PlannedRun("M", Path(), [sys.executable, "-c", program], {})) == status


def test_a_command_has_its_signals_and_only_its_files() -> None:
    program = (
        "import os, signal, sys\n"
        "left = [signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGCHLD)] == [signal.SIG_DFL] * 2\n"
        "sys.exit(0 if left and len(os.listdir('/proc/self/fd')) <= 4 else 1)"  # three, and that of the folder
    )
    assert to_its_end(PlannedRun("M", Path(), [sys.executable, "-c", program], {})) == 0


def test_a_program_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(RunnerError, match="no-such-program cannot be started: there is no such program"):
        to_its_end(PlannedRun("M", Path(), ["no-such-program"], {}))
