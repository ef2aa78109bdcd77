"""The same events in another order give the same tables, and so the same bytes, but for the digest of the source."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import bundle

if TYPE_CHECKING:
    from pathlib import Path

_OF_THE_SOURCE = ("runs.parquet", "manifest.json")


def _trace(seed: int | None) -> KinetoTrace:
    """Calls that begin and end together: modules, operators, annotations."""
    kineto = KinetoTrace()
    kineto.step(1, 0, 90_000)
    for start in (1_000, 21_000, 41_000):
        kineto.module("nn.Module: Net_0", start, 10_000)
        kineto.module("nn.Module: Linear_0", start, 10_000)
        for name in ("aten::linear", "aten::addmm", "aten::linear", "aten::t"):
            kineto.operator(name, start, 10_000)
        kineto.annotation("outer", start, 10_000)
        kineto.annotation("inner", start, 10_000)
    if seed is not None:
        random.Random(seed).shuffle(kineto.events)  # noqa: S311 (a test's dice)
    return kineto


def _bytes(trace: KinetoTrace, folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    bundle.write(convert([trace.write(folder / "trace.json")], Options()), folder / "out.xsp")
    files = [file for file in (folder / "out.xsp").iterdir() if file.name not in _OF_THE_SOURCE]
    return {file.name: file.read_bytes() for file in files}


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_events_changes_no_byte(seed: int, tmp_path: Path) -> None:
    assert _bytes(_trace(seed), tmp_path / "shuffled") == _bytes(_trace(None), tmp_path / "plain")


def test_of_operators_alike_in_time_the_one_called_first_is_outside(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    for name in ("outer", "middle", "inner"):  # numbered as they are called
        kineto.operator(f"aten::{name}", 0, 1_000)
    kineto.events.reverse()
    spans = convert([kineto.write(tmp_path / "trace.json")], Options()).frame("spans").sort("span_id")
    named = dict(zip(spans["span_id"], spans["name"].cast(str), strict=True))
    parents = {name: named.get(parent) for name, parent in zip(named.values(), spans["parent_id"], strict=True)}
    assert parents == {"aten::outer": None, "aten::middle": "aten::outer", "aten::inner": "aten::middle"}
