"""Samples of the machine, from a /proc made by hand; and the sampler beside a program."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from xsp_runners import system_samples
from xsp_runners.run_folder import RunnerError
from xsp_runners.sets.collection import add_system_samples, sample_beside

if TYPE_CHECKING:
    from pathlib import Path

_linux = pytest.mark.only_on("linux", reason="/proc is Linux's")
_NETWORK = "head\nhead\n    lo: 900 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0\n  eth0: {0} 1 0 0 0 0 0 0 {1} 1 0 0 0 0 0 0\n"
_DISK = "".join(
    f"   8 0 {name} 1 0 {{0}} 5 1 0 {{1}} 5 0 {{2}} 9\n" for name in ("sda", "sda1", "loop0")
)  # of each: sectors read, sectors written, ms busy


def _machine(root: Path, *, cpu: str, network: tuple[int, int], disk: tuple[int, int, int]) -> Path:
    """A /proc and /sys with a loopback, one link of 10 Gbit/s, a disk with a part, and a loop device."""
    (root / "proc/net").mkdir(parents=True, exist_ok=True)
    (root / "proc/stat").write_text(f"cpu  {cpu}\ncpu0 {cpu}\n")
    (root / "proc/meminfo").write_text("MemTotal:  1000 kB\nMemFree:  1 kB\nMemAvailable:  600 kB\n")
    (root / "proc/net/dev").write_text(_NETWORK.format(*network))
    (root / "proc/diskstats").write_text(_DISK.format(*disk))
    for name in ("lo", "eth0/device"):
        (root / "sys/class/net" / name).mkdir(parents=True, exist_ok=True)
    (root / "sys/class/net/eth0/operstate").write_text("up\n")
    (root / "sys/class/net/eth0/speed").write_text("10000\n")
    for name in ("sda", "loop0"):
        (root / "sys/block" / name).mkdir(parents=True, exist_ok=True)
    return root


def test_a_sample_is_what_changed_since_the_one_before(tmp_path: Path) -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice
    first = system_samples.read(_machine(tmp_path, cpu="100 0 50 800 50 0 0 0 0 0", network=(10, 20), disk=(4, 2, 100)))
    second = system_samples.read(
        _machine(tmp_path, cpu="150 0 60 820 70 0 0 0 40 0", network=(40, 25), disk=(6, 3, 100))
    )
    lasted_ns = 1_000_000_000
    second = replace(second, time_ns=first.time_ns + lasted_ns, disk_busy_ms={"sda": 350})
    line = system_samples.between(first, first, second)
    assert line["cpu_utilization"] == pytest.approx(60 / 100)  # 50 user and 10 system of 100 ticks
    assert line["cpu_iowait"] == pytest.approx(20 / 100)
    assert line["memory_used_bytes"] == 400 * 1024
    assert (line["network_receive_bytes"], line["network_transmit_bytes"]) == (30, 5)  # not the loopback's
    assert (line["disk_read_bytes"], line["disk_write_bytes"]) == (2 * 512, 512)  # the disk, not its part as well
    assert line["disk_busy"] == pytest.approx(0.25)


def test_the_first_sample_has_no_shares(tmp_path: Path) -> None:
    first = system_samples.read(_machine(tmp_path, cpu="1 1 1 1 1 1 1 1 0 0", network=(10, 20), disk=(4, 2, 100)))
    line = system_samples.between(first, None, first)
    assert set(line) == {"time_ns", "memory_used_bytes", "network_receive_bytes", "network_transmit_bytes",
                         "disk_read_bytes", "disk_write_bytes"}  # fmt: skip


def test_the_header_says_what_the_machine_has(tmp_path: Path) -> None:
    root = _machine(tmp_path / "root", cpu="1 1 1 1 1 1 1 1 0 0", network=(10, 20), disk=(4, 2, 100))
    calls: list[str] = []
    count = system_samples.sample(
        tmp_path / "system_samples.jsonl",
        hertz=1000,
        stop=lambda: bool(calls),
        ready=lambda: calls.append("ready"),
        root=root,
    )
    header, *_, last = [json.loads(line) for line in (tmp_path / "system_samples.jsonl").read_text().splitlines()]
    assert (header["memory_bytes"], header["network_byte_per_s"]) == (1000 * 1024, 1_250_000_000)
    assert (count, last) == (1, {"end": True, "samples": 1})


def test_a_link_that_does_not_say_its_speed_is_left_out(tmp_path: Path) -> None:
    root = _machine(tmp_path, cpu="1 1 1 1 1 1 1 1 0 0", network=(10, 20), disk=(4, 2, 100))
    (root / "sys/class/net/eth0/speed").write_text("-1\n")
    assert system_samples._byte_per_s(root) is None


def test_where_there_is_no_proc_the_sentence_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="cannot be sampled"):
        system_samples.read(tmp_path)


@_linux
def test_a_program_runs_beside_the_sampler_and_gives_its_status(tmp_path: Path) -> None:
    out = tmp_path / "system_samples.jsonl"
    program = ["--hertz", "20", "--out", str(out), "--", sys.executable, "-c", "raise SystemExit(3)"]
    assert system_samples.main(program) == 3
    assert json.loads(out.read_text().splitlines()[-1])["end"] is True


def _described(folder: Path, files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    (folder / "run.json").write_text(json.dumps({"files": files}))
    add_system_samples(folder)
    listed = json.loads((folder / "run.json").read_text())["files"]
    assert isinstance(listed, list)
    return listed


@_linux
def test_samples_beside_a_run_are_listed_where_they_can_join_a_trace(tmp_path: Path) -> None:
    with sample_beside(tmp_path, power="no", system="yes"):
        pass
    trace = {"path": "trace.json"}
    assert _described(tmp_path, []) == []
    (tmp_path / "system_samples.jsonl").write_text("1\n2\n3\n4\n")
    assert _described(tmp_path, [trace]) == [trace, {"path": "system_samples.jsonl", "format": "system_samples"}]
    with sample_beside(tmp_path, power="no", system="no"):
        pass
    assert _described(tmp_path, [trace]) == [trace]  # what an earlier run left is gone
