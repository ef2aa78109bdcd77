"""Which device of the list at the top of a Kineto trace is the one that work ran on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_MI300X = {"name": "AMD Instinct MI300X", "numSms": 304}


def _names(folder: Path, listed: Sequence[Mapping[str, object]]) -> dict[int, str | None]:
    made = KinetoTrace(schemaVersion=1, deviceProperties=listed)
    made.launch("gemm", 1_000, 2_000, 500, device_id=2)
    devices = convert([made.write(folder / "t.json")], Options()).frame("devices")
    return dict(devices.select("device_id", "name").rows())


@pytest.mark.parametrize("count", [1, 2])
def test_a_device_that_is_not_listed_is_of_the_kind_that_all_are(tmp_path: Path, count: int) -> None:
    # As ROCm writes it on two processors: GPU 0 of the list is agent 2 of the activities.
    names = _names(tmp_path, [{"id": number, **_MI300X} for number in range(count)])
    assert names[2] == "AMD Instinct MI300X"
    assert sorted(names) == [*range(count), 2]


def test_a_listed_device_is_itself(tmp_path: Path) -> None:
    assert _names(tmp_path, [{"id": 2, "name": "this"}, {"id": 0, "name": "that"}]) == {0: "that", 2: "this"}


def test_of_several_kinds_none_is_taken(tmp_path: Path) -> None:
    assert _names(tmp_path, [{"id": 0, **_MI300X}, {"id": 1, "name": "another"}]).get(2) is None


@pytest.mark.real
@pytest.mark.parametrize("name", ["bert_small.mi300x", "graph_pairs/xdit_flux.mi300.capture"])
def test_real_traces_on_rocm_name_the_device_that_worked(name: str, real_dir: Path) -> None:
    trace = convert([real_dir / "kineto" / f"{name}.json.gz"], Options())
    used = trace.frame("spans")["device_id"].drop_nulls().unique().to_list()
    named = dict(trace.frame("devices").select("device_id", "name").rows())
    assert used == [2]
    assert named[2].startswith("AMD Instinct MI300X")
