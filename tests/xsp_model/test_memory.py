"""Limits of memory: those of control groups, faked, and of `ulimit`, in processes of their own."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from xsp_model import limits

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.only_on("linux", reason="these limits hold on Linux alone")

_GIB = 1 << 30


@pytest.fixture(name="groups")
def fixture_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for control groups of which none sets a limit."""
    groups = tmp_path / "cgroup"
    groups.mkdir()
    own = tmp_path / "own"
    own.write_text("4:memory:/old/inner\n0::/pod/inner\n", encoding="utf-8")
    monkeypatch.setattr(limits, "_CGROUP", groups)
    monkeypatch.setattr(limits, "_OWN_GROUPS", own)
    return groups


def _write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n", encoding="ascii")


def test_without_limits_it_is_the_machine(groups: Path) -> None:
    machine = limits.limit_bytes()
    _write(groups, memory__max="max", memory__current=5)
    assert limits.limit_bytes() == machine > limits.available_bytes() > 0


@pytest.mark.parametrize(
    ("folder", "limit", "used"),
    [
        (".", "memory__max", "memory__current"),
        ("pod", "memory__max", "memory__current"),
        ("pod/inner", "memory__max", "memory__current"),
        ("memory", "memory__limit_in_bytes", "memory__usage_in_bytes"),
        ("memory/old", "memory__limit_in_bytes", "memory__usage_in_bytes"),
        ("memory/old/inner", "memory__limit_in_bytes", "memory__usage_in_bytes"),
    ],
)
def test_the_limit_of_a_group_around_the_process_holds(groups: Path, folder: str, limit: str, used: str) -> None:
    _write(groups / folder, **{limit: 1 << 28, used: 3 << 26, "memory__stat": f"anon 9\ninactive_file {1 << 26}"})
    assert limits.limit_bytes() == 1 << 28
    assert limits.available_bytes() == (1 << 28) - (3 << 26) + (1 << 26)  # pages of files make room


def test_the_narrowest_group_counts_and_others_do_not(groups: Path) -> None:
    _write(groups / "pod", memory__max=_GIB)
    _write(groups / "pod/inner", memory__max=_GIB // 2)
    _write(groups / "neighbour", memory__max=1)
    assert limits.limit_bytes() == _GIB // 2


def test_a_group_that_is_full_leaves_nothing(groups: Path) -> None:
    _write(groups, memory__max=1000, memory__current=2000, memory__stat="anon 2000")
    assert limits.available_bytes() == 0


@pytest.mark.parametrize("kind", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_a_limit_of_the_process_holds(kind: int) -> None:
    code = "from xsp_model import limits; print(limits.limit_bytes(), limits.available_bytes())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(kind, (3 * _GIB, 3 * _GIB)),
    )
    limit, available = map(int, done.stdout.split())
    assert limit == 3 * _GIB > available
