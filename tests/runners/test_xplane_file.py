"""The profile as runners leave it: without private data, otherwise byte for byte, and asked for its operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.synth_xplane import Profile, space_class
from xsp_runners.frameworks.xplane import profile_in, without_private_data
from xsp_runners.run_folder import RunnerError

if TYPE_CHECKING:
    from pathlib import Path


def _profile() -> Profile:
    profile = Profile()
    profile.space.hostnames.append("secret-host")
    profile.space.errors.append("secret-host failed")
    profile.space.warnings.append("/home/someone/x")
    host = profile.plane("/host:CPU")
    line = host.line(1, "python", 5)
    host.event(line, "/home/someone/src/train.py:12 loss", 10, 20, source="&/home/someone/train.py:3")
    host.event(line, "dense/MatMul:MatMul", 30, 40, flops=300, share=0.5, note="text")
    task = profile.plane("Task Environment", profile_start_time=1_700_000_000_000_000_000)
    task.stat(task.plane.stats, "profile_options", b"/home/someone/logs")
    return profile


def _parsed(content: bytes) -> Any:  # noqa: ANN401 (a protobuf message)
    return space_class().FromString(content)


def test_nothing_tells_whose_machine_it_was() -> None:
    content = without_private_data(_profile().to_bytes()).content
    assert b"someone" not in content
    assert b"secret-host" not in content


def test_everything_else_is_as_it_was() -> None:
    profile = _profile()
    cleaned = _parsed(without_private_data(profile.to_bytes()).content)
    expected = profile.space
    for field in ("hostnames", "errors", "warnings"):
        expected.ClearField(field)
    host, task = expected.planes
    host.event_metadata[0].value.name = "train.py:12 loss"
    next(e for e in host.stat_metadata if "train.py" in e.value.name).value.name = "train.py:3"
    del task.stats[1]
    assert cleaned == expected


def test_a_profile_with_nothing_private_stays_byte_for_byte() -> None:
    profile = Profile()
    host = profile.plane("/host:CPU", number=-3)
    host.event(host.line(1 << 62, "tf_Compute", 5), "a/b:B", 10, 20, id=-(1 << 62), text="&é")
    assert without_private_data(profile.to_bytes()).content == profile.to_bytes()


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_profile_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(RunnerError, match="damaged"):
        without_private_data(_profile().to_bytes()[:-cut])


def _field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    assert number < 16
    return bytes([number << 3 | 2, len(content)]) + content


def test_a_program_names_its_operations_and_not_its_sources() -> None:
    metadata = _field(2, b"jit(step)/dense/dot") + _field(3, b"/home/someone/model.py")
    instruction = _field(1, b"dot.1") + _field(7, metadata)
    module = (
        _field(1, b"jit_step") + _field(3, _field(2, instruction)) + _field(12, _field(1, b"/home/someone/model.py"))
    )
    profile = Profile()
    programs = profile.plane("/host:metadata")
    entry = programs.plane.event_metadata.add(key=programs.name_id("jit_step(7)") + 1)
    programs.stat(entry.value.stats, "hlo_proto", _field(1, module))
    cleaned = without_private_data(profile.to_bytes())
    assert cleaned.operations == ["jit(step)/dense/dot"]
    assert b"someone" not in cleaned.content
    (stat,) = _parsed(cleaned.content).planes[0].event_metadata[1].value.stats
    kept = _field(1, b"jit_step") + _field(3, _field(2, _field(1, b"dot.1") + _field(7, metadata[:21])))
    assert stat.bytes_value == _field(1, kept)


def test_the_one_profile_of_a_log_folder_is_found(tmp_path: Path) -> None:
    session = tmp_path / "plugins" / "profile" / "2026_01_01"
    with pytest.raises(RunnerError, match="left no profiles"):
        profile_in(tmp_path)
    session.mkdir(parents=True)
    (session / "host.xplane.pb").write_bytes(b"x")
    assert profile_in(tmp_path) == b"x"
    (session / "other.xplane.pb").write_bytes(b"y")
    with pytest.raises(RunnerError, match="left 2 profiles"):
        profile_in(tmp_path)


def test_events_of_gpus_are_counted_and_no_others() -> None:
    profile = _profile()
    assert without_private_data(profile.to_bytes()).gpu_events == 0
    device = profile.plane("/device:GPU:0")
    stream = device.line(7, "Stream #7")
    device.event(stream, "gemm", 10, 20)
    device.event(stream, "relu", 30, 40)
    assert without_private_data(profile.to_bytes()).gpu_events == 2
