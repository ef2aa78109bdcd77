"""The processes of `xsp batch`: they leave with who started them, and what they make does not depend on them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.generate import grow
from tests.helpers.batches import trace_of
from xsp import opening, processes
from xsp.batch import pool, work
from xsp.batch.pool import run_here
from xsp.batch.unit import Settings, Status, Unit
from xsp_model.limits import override_limits

if TYPE_CHECKING:
    from collections.abc import Callable

_REPO = Path(__file__).parents[3]
# Whoever runs the tests may have switched interrupts off.
_MAIN = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from xsp.cli.main import main; sys.exit(main())"
)


@pytest.fixture(name="many")
def fixture_many(tmp_path: Path) -> Path:
    """More traces than are done at once."""
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(40):
        (folder / f"{n}.json").write_bytes(trace_of(100 + n).to_bytes())
    return folder


def _begun(many: Path, out: Path) -> subprocess.Popen[str]:
    """A batch in a session of its own, some traces of which are done, so that it takes interrupts and all run."""
    command = [sys.executable, "-c", _MAIN, "batch", str(many), "-o", str(out), "--jobs", "2", "--no-ranks"]
    batch = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(_REPO)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _wait(lambda: len(list(out.glob("traces/*/done.json"))) >= 2)
    return batch


def _wait(until: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)


def _nobody_in(group: int) -> bool:
    """Whether no process of the group runs; one that has ended and waits to be taken note of does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of) == group and state != "Z":
            return False
    return True


@pytest.mark.slow
@pytest.mark.only_on("linux", reason="looks at /proc")
def test_no_worker_outlives_a_batch_that_is_killed(many: Path, tmp_path: Path) -> None:
    batch = _begun(many, tmp_path / "out")
    assert not _nobody_in(batch.pid)
    batch.kill()
    batch.communicate()
    _wait(lambda: _nobody_in(batch.pid))


@pytest.mark.slow
@pytest.mark.only_on("linux", reason="looks at /proc")
def test_an_interrupt_from_the_keyboard_is_one_line(many: Path, tmp_path: Path) -> None:
    batch = _begun(many, tmp_path / "out")
    os.killpg(batch.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, errors = batch.communicate(timeout=300)
    assert batch.returncode == 130
    assert errors.startswith("interrupted: ")
    assert errors.count("\n") == 1
    _wait(lambda: _nobody_in(batch.pid))


@pytest.mark.slow
def test_results_are_the_same_from_memory_and_from_the_bundle(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    grow(path, 500_000, steps=2)
    unit = Unit("trace", (str(path),))
    assert work.process(unit, Settings(str(tmp_path / "memory"))).status is Status.DONE
    with override_limits(small_trace_max_spans=-1):
        assert work.process(unit, Settings(str(tmp_path / "bundle"))).status is Status.DONE
    one, other = (sorted((tmp_path / name).rglob("*.*")) for name in ("memory", "bundle"))
    files = [path.name for path in one]
    assert files == [path.name for path in other]
    assert {"report.html", "facts.json", "spans.parquet"} <= set(files)
    assert [p.name for p, q in zip(one, other, strict=True) if p.is_file() and p.read_bytes() != q.read_bytes()] == []


def test_the_largest_come_first(tmp_path: Path) -> None:
    for name, scale in (("small", 1), ("large", 3), ("middle", 2)):
        (tmp_path / f"{name}.json").write_bytes(trace_of(100).to_bytes() + b" " * scale)
    units = [Unit(name, (str(tmp_path / f"{name}.json"),)) for name in ("small", "large", "middle", "gone")]
    outcomes = run_here(units, Settings(str(tmp_path / "out"), reports=False), jobs=1, limit_bytes=1 << 34)
    assert [outcome.unit.name for outcome in outcomes] == ["large", "middle", "small", "gone"]


def _end_at_once() -> None:
    os._exit(1)


def test_a_worker_that_cannot_begin_is_a_failed_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.json").write_bytes(trace_of(100).to_bytes())
    monkeypatch.setattr(pool, "_prepare", _end_at_once)
    unit = Unit("one", (str(tmp_path / "one.json"),))
    [outcome] = run_here([unit], Settings(str(tmp_path / "out")), jobs=1, limit_bytes=1 << 34)
    assert outcome.status is Status.FAILED
    assert "no worker could be started" in outcome.reason


@pytest.mark.only_on("linux", reason="elsewhere workers are not forked off a process of ours")
def test_where_no_process_can_begin_each_unit_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.json").write_bytes(trace_of(100).to_bytes())
    resource_tracker.ensure_running()
    processes.end()
    monkeypatch.setattr("multiprocessing.spawn._python_exe", b"/bin/false")
    try:
        units = [Unit("one", (str(tmp_path / "one.json"),))]
        [outcome] = run_here(units, Settings(str(tmp_path / "out")), jobs=1, limit_bytes=1 << 34)
    finally:
        processes.end()
    assert outcome.status is Status.FAILED
    assert "no worker could be started" in outcome.reason


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_want_of_memory_is_told_from_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(work, "load", fail)
    (tmp_path / "one.json").write_bytes(trace_of(100).to_bytes())
    outcome = work.process(Unit("one", (str(tmp_path / "one.json"),)), Settings(str(tmp_path / "out")))
    assert outcome.status is Status.FAILED
    assert "there is not enough memory for it" in outcome.reason


def test_an_input_that_changes_while_it_is_read_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(trace_of(100).to_bytes())

    def load(*arguments: Any) -> Any:  # noqa: ANN401 (those of load)
        path.write_bytes(trace_of(200).to_bytes())
        return opening.load(*arguments)

    monkeypatch.setattr(work, "load", load)
    outcome = work.process(Unit("one", (str(path),)), Settings(str(tmp_path / "out")))
    assert outcome.status is Status.FAILED
    assert "it changed while it was read" in outcome.reason
    assert not (tmp_path / "out" / "traces" / "one").exists()
