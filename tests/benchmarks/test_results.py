"""What RESULTS.md says follows from what was measured."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.environments import Unavailable
from benchmarks.experiment import Experiment, Way, measure
from benchmarks.generate import grow
from benchmarks.goals import verdicts
from benchmarks.measure import Failed, run
from benchmarks.report import report
from benchmarks.store import Measured, Sample, load, save

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MB = 1_000_000


def _sample(cpu_s: float, peak_mb: float = 100, load_s: float = 1.0) -> Sample:
    return Sample(cpu_s, cpu_s * 3, int(peak_mb * _MB), int(peak_mb * _MB), 8.0, {"load": (load_s, load_s)})


def _kineto(theirs: Sequence[Sample], ours: Sequence[Sample]) -> Measured:
    samples = {"HTA": theirs, "xsp": ours, "xsp, links and steps": ours}
    ways = dict.fromkeys(samples, "a title")
    return Measured("kineto", "Traces", "a file", "a command", "abc", "a day", ways, samples, {})


def test_a_goal_is_judged_by_the_median_ratio_of_rounds() -> None:
    theirs = [_sample(10, 400, 40), _sample(30, 400, 31), _sample(20, 400, 20)]
    measured = _kineto(theirs, [_sample(1), _sample(2), _sample(2, 101)])
    rows = {(row.path, row.goal): row for row in verdicts({"kineto": measured})}
    load_row = next(row for row in rows.values() if row.goal.startswith("30 times"))
    assert (load_row.met, load_row.measured) == (True, "31 (20 to 40) times less")
    wall = next(row for row in rows.values() if "wall" in row.goal)
    assert (wall.met, wall.measured) == (True, "10 (10 to 15) times less (at a load of 8)")
    memory = next(row for row in rows.values() if row.goal == "a quarter")
    assert memory.met
    slower = _kineto([_sample(9)], [_sample(1, 100)])
    assert next(row for row in verdicts({"kineto": slower}) if "wall" in row.goal).met is False


def test_what_was_not_measured_says_why() -> None:
    assert {row.met for row in verdicts({})} == {None}
    assert all("not" in row.measured for row in verdicts({}))
    measured = _kineto([], [_sample(1)])
    skipped = Measured("kineto", "t", "w", "c", "a", "d", measured.ways, {"xsp": [_sample(1)]}, {"HTA": "no index"})
    row = next(row for row in verdicts({"kineto": skipped}) if "wall" in row.goal)
    assert (row.met, row.measured) == (None, "not measured: HTA: no index")


def test_measurements_are_read_as_they_were_kept(tmp_path: Path) -> None:
    measured = _kineto([_sample(3)], [_sample(1)])
    save(measured, tmp_path)
    (again,) = load(tmp_path).values()
    assert again.ratios("HTA", "xsp", lambda sample: sample.cpu_s) == [3.0]
    text = report({"kineto": again}, None)
    assert "| HTA | 3.00 | 9.00 | 100 | 100 | 8.00 | a title |" in text


def test_a_peer_that_cannot_be_had_or_fails_is_left_out_with_the_reason(tmp_path: Path) -> None:
    def absent(_: Path) -> Sequence[Sequence[str]]:
        raise Unavailable("there is none")

    fails = (sys.executable, "-c", "raise SystemExit('/some/folder/of/mine/file.py is broken')")
    ways = (
        Way("fine", "", lambda _: [(sys.executable, "-c", "")]),
        Way("absent", "", absent),
        Way("fails", "", lambda _: [fails]),
    )
    *_, measured = measure(Experiment("key", "", "", ways), 2, "", tmp_path, 600)
    assert {way: len(samples) for way, samples in measured.samples.items()} == {"fine": 2}
    assert measured.skipped == {"absent": "there is none", "fails": "it failed: .../file.py is broken"}


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    sleeps = (sys.executable, "-c", "import time; time.sleep(600)")
    with pytest.raises(Failed, match="more than 1 s"):
        run(sleeps, {}, tmp_path / "output", limit_s=1)


def test_a_grown_trace_has_its_lanes_and_replays(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    events = grow(path, 1, steps=2, lanes=3, replays=2)
    written = json.loads(path.read_bytes())["traceEvents"]
    assert sum(event["ph"] != "M" for event in written) == events
    assert len({event["tid"] for event in written if event.get("cat") == "cpu_op"}) == 2 * 3
    replayed = [
        event for event in written if "graph node id" in event.get("args", {}) and event["args"].get("graph id") == 1
    ]
    launches = {event["args"]["correlation"] for event in written if event["name"] == "cudaGraphLaunch"}
    assert {event["args"]["correlation"] for event in replayed} <= launches
