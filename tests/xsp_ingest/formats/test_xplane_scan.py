"""The scanner of XPlane lines: both engines give the same, and damage is found wherever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.guarded import guarded_memory
from tests.helpers.examples import examples
from tests.helpers.synth_xplane import Profile
from xsp_ingest.convert import convert
from xsp_ingest.formats.xplane import wire
from xsp_ingest.formats.xplane.scan import scan_compiled, scan_plain
from xsp_ingest.formats.xplane.sweep import EVENT, LINE, STAT
from xsp_ingest.ingester import Options
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from xsp_model.columns.arrays import Ints

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_NUMBERS = (0, 1, 127, 128, -1, (1 << 56) - 1, 1 << 56, -(1 << 56), _LOWEST, _HIGHEST)


def _profile() -> Profile:
    profile = Profile()
    plane = profile.plane("/host:CPU")
    for number, value in enumerate(_NUMBERS):
        line = plane.line(value, f"line {number}", value)
        event = plane.event(line, "x", 0, 0, number=value, other=5, real=-1.5, text="abc", referred="&name")
        event.offset_ps, event.duration_ps, event.num_occurrences = value, value, 3
    return profile


def _lines(profile: Profile, path: Path) -> tuple[memoryview, list[int], list[int]]:
    data = memoryview(profile.write(path).read_bytes())
    (plane,) = wire.fields(data, 0, len(data), path)
    extents = [(f.start, f.end) for f in wire.fields(data, plane.start, plane.end, path) if f.number == 3]
    return data, [start for start, _ in extents], [end for _, end in extents]


def _column(table: Ints, names: tuple[str, ...], name: str) -> list[int]:
    return [int(value) for value in table[names.index(name)]]


@pytest.mark.parametrize("scan", [scan_plain, scan_compiled])
def test_numbers_of_any_size_are_read(scan: object, tmp_path: Path) -> None:
    profile = _profile()
    ids = {entry.value.name: entry.key for entry in profile.space.planes[0].stat_metadata}
    lines, events, stats, damage, _ = scan(*_lines(profile, tmp_path / "f"), [ids["number"], ids["real"]])  # type: ignore[operator]
    assert damage == -1
    for name in ("line_id", "timestamp_ns"):
        assert _column(lines, LINE, name) == list(_NUMBERS)
    for name in ("offset_ps", "duration_ps"):
        assert _column(events, EVENT, name) == list(_NUMBERS)
    assert _column(stats, STAT, "event") == [n for n in range(len(_NUMBERS)) for _ in range(2)]
    assert _column(stats, STAT, "value")[::2] == list(_NUMBERS)
    assert set(_column(stats, STAT, "field")[1::2]) == {2}
    assert stats[3, 1::2].copy().view(np.float64).tolist() == [-1.5] * len(_NUMBERS)


def test_both_engines_give_the_same(tmp_path: Path) -> None:
    data, starts, ends = _lines(_profile(), tmp_path / "f")
    stat_ids = list(range(1, 9))
    plain, compiled = (scan(data, starts, ends, stat_ids) for scan in (scan_plain, scan_compiled))
    assert all(np.array_equal(a, b) for a, b in zip(plain[:3], compiled[:3], strict=True))


@pytest.mark.parametrize("scan", [scan_plain, scan_compiled])
def test_skipped_events_leave_no_trace_but_their_count(scan: object, tmp_path: Path) -> None:
    profile = Profile()
    plane = profile.plane("/host:CPU")
    line = plane.line(1, "python")
    for number in range(5):
        plane.event(line, ("kept", "skipped")[number % 2], 10 * number, 5, number=number)
    stat_ids, skipped = [plane.stat_id("number")], [plane.name_id("skipped")]
    _, events, stats, damage, count = scan(*_lines(profile, tmp_path / "f"), stat_ids, skipped)  # type: ignore[operator]
    assert (damage, count) == (-1, 2)
    assert _column(events, EVENT, "offset_ps") == [0, 20_000, 40_000]
    assert list(zip(_column(stats, STAT, "event"), _column(stats, STAT, "value"), strict=True)) == [
        (0, 0),
        (1, 2),
        (2, 4),
    ]


@settings(max_examples=examples(300))
@given(content=st.binary(max_size=80))
def test_both_engines_find_the_same_damage(content: bytes) -> None:
    data = memoryview(content + b"\x08")  # beyond the line: no engine may look at it
    plain, compiled = (scan(data, [0], [len(content)], [1, 2, 3]) for scan in (scan_plain, scan_compiled))
    assert plain[3] == compiled[3]
    assert all(np.array_equal(a, b) for a, b in zip(plain[:3], compiled[:3], strict=True))


@settings(max_examples=examples(150))
@given(offset=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.integers(0, 40))
def test_a_changed_byte_is_refused_in_one_sentence_or_read(
    offset: int, value: int, cut: int, tmp_path_factory: pytest.TempPathFactory, fixtures_dir: Path
) -> None:
    content = bytearray((fixtures_dir / "xplane" / "jax_gpu_synthetic" / "trace.xplane.pb").read_bytes())
    content[offset % len(content)] = value
    path = tmp_path_factory.mktemp("mutated") / "f.xplane.pb"
    path.write_bytes(content[: len(content) - cut])
    assert "\n" not in _complaint(path)


def _complaint(path: Path) -> str:
    """What is said of the file; empty where it can be read. Anything but an XspError fails the test."""
    try:
        convert([path], Options())
    except XspError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("scan", [scan_plain, scan_compiled])
def test_a_line_that_would_end_beyond_the_bytes_is_damage(
    scan: Callable[..., tuple[Ints, Ints, Ints, int, int]],
) -> None:
    data = b"\x08\x01\x22\x7f"  # the line's id, then an event of more bytes than there are
    with guarded_memory():
        assert scan(memoryview(data), [0], [len(data) + 200], [])[3] == 2
