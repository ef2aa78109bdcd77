"""Binary reports, read by a program that stands in for NVIDIA's, by a module that does, and by the real one."""

from __future__ import annotations

import os
import sys
import types
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.ncu_text import metrics, raw_page
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.formats.ncu.report import NCU_REPORT
from xsp_ingest.ingester import Options, claimants_of
from xsp_ingest.registry import all_ingesters
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PAGE = raw_page({"dram__bytes_read.sum": ("byte", ("4096",)), "gpu__time_duration.sum": ("nsecond", ("2048",))})


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Something that starts as a report does; its name has what a shell would stumble over."""
    path = tmp_path / "my report; $HOME.ncu-rep"
    path.write_bytes(b"NVR\0\2\0\0\0")
    return path


def _program(folder: Path, body: str) -> str:
    path = folder / "ncu"
    path.write_text(f"#!{sys.executable}\nimport sys\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_report_is_known_by_its_first_bytes(report: Path) -> None:
    assert [i.name for i in claimants_of(Probe(report), all_ingesters())] == ["ncu_report"]


def test_the_users_own_ncu_is_asked_for_the_raw_page(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
    monkeypatch.setenv("XSP_NCU", _program(tmp_path, f"assert sys.argv[1:] == {arguments!r}\nprint({_PAGE!r})"))
    raw = NCU_REPORT.read(report, Options())
    assert metrics(raw) == {"dram_read_bytes": 4096, "replayed_duration_ns": 2048}
    assert raw.tables["spans"]["duration_ns"].to_list() == [2048]


def test_ncu_on_the_path_is_found(report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(tmp_path, f"print({_PAGE!r})")
    monkeypatch.delenv("XSP_NCU", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert metrics(NCU_REPORT.read(report, Options()))["dram_read_bytes"] == 4096


def test_what_ncu_complains_of_is_said_in_one_sentence(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XSP_NCU", _program(tmp_path, "print('==ERROR== Report is\\n too new'); sys.exit(1)"))
    with pytest.raises(XspError, match="==ERROR== Report is too new") as refused:
        NCU_REPORT.read(report, Options())
    assert "\n" not in str(refused.value)


def test_without_nsight_compute_the_command_to_run_is_said(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XSP_NCU", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(XspError, match=r"ncu --import .* --csv --page raw --print-units base") as refused:
        NCU_REPORT.read(report, Options())
    assert "\n" not in str(refused.value)


def test_a_wrong_path_in_the_variable_is_said(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XSP_NCU", "/nowhere/ncu")
    with pytest.raises(XspError, match="XSP_NCU names '/nowhere/ncu', which is no program"):
        NCU_REPORT.read(report, Options())


class _Metric:
    def __init__(self, value: object, unit: str) -> None:
        self._value, self._unit = value, unit

    def value(self) -> object:
        return self._value

    def unit(self) -> str:
        return self._unit


class _Action:
    """What NVIDIA's module calls a profiled kernel."""

    def __init__(self) -> None:
        self.counters = {
            "dram__bytes_read.sum": _Metric(4096, "byte"),
            "gpu__time_duration.sum": _Metric(2048, "nsecond"),
            "launch__grid_dim_x": _Metric(64, ""),
            "launch__stream_id": _Metric(7, ""),
            "device__attribute_compute_capability_major": _Metric(8, ""),
            "device__attribute_compute_capability_minor": _Metric(0, ""),
        }

    def name(self) -> str:
        return "gemm<float>(int)"

    def metric_names(self) -> list[str]:
        return list(self.counters)

    def metric_by_name(self, name: str) -> _Metric:
        return self.counters[name]


class _Range:
    def __iter__(self) -> Iterator[_Action]:
        return iter([_Action(), _Action()])


class _Report:
    def num_ranges(self) -> int:
        return 1

    def range_by_idx(self, at: int) -> _Range:
        assert at == 0
        return _Range()


def test_the_module_is_used_where_there_is_no_program(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("ncu_report")
    module.__spec__ = types.SimpleNamespace(name="ncu_report")  # type: ignore[assignment]
    module.load_report = lambda path: _Report()  # type: ignore[attr-defined]  # noqa: ARG005
    monkeypatch.setitem(sys.modules, "ncu_report", module)
    monkeypatch.delenv("XSP_NCU", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    raw = NCU_REPORT.read(report, Options())
    assert metrics(raw, 1)["dram_read_bytes"] == 4096
    assert raw.tables["spans"]["start_ns"].to_list() == [0, 2048]
    assert raw.tables["spans"]["stream_id"].to_list() == [7, 7]
    assert raw.tables["kernels"]["grid_x"].to_list() == [64, 64]


@pytest.mark.real
def test_a_real_report_by_the_real_ncu(real_dir: Path) -> None:
    if not os.environ.get("XSP_NCU"):
        pytest.skip("needs NVIDIA's ncu: set XSP_NCU to its path")
    trace = convert([real_dir / "ncu" / "mistic.a100.ncu2021_2.ncu-rep"], Options())
    spans = trace.frame("spans")
    assert spans["duration_ns"].to_list()[:3] == [8_502_586_816, 8_653_646_656, 8_403_108_768]
    assert spans["stream_id"].to_list() == [15, 16, 15, 16]
    rows = trace.frame("metrics").filter(pl.col("metric") == "achieved_occupancy").sort("span_id")
    assert rows["value"].to_list()[:2] == [0.9316, 0.9196]
    (device,) = trace.frame("devices").to_dicts()
    assert (device["name"], device["dram_byte_per_s"]) == ("NVIDIA A100-PCIE-40GB", 1555.2e9)
    assert device["fp32_flop_per_s"] == 108 * 64 * 2 * 1.41e9
    assert trace.frame("kernels")["registers_per_thread"].to_list() == [30] * 4


@pytest.mark.real
def test_labels_of_the_details_page_equal_the_counters_of_the_raw_page(real_dir: Path, tmp_path: Path) -> None:
    program = os.environ.get("XSP_NCU")
    if not program:
        pytest.skip("needs NVIDIA's ncu: set XSP_NCU to its path")
    import subprocess  # noqa: PLC0415 (only here)

    report = real_dir / "ncu" / "mojo.gtx1660ti.ncu2022_4.ncu-rep"
    page = subprocess.run([program, "--import", report, "--csv"], capture_output=True, check=True).stdout
    (tmp_path / "details.csv").write_bytes(page)
    by_label, by_name = (convert([path], Options()) for path in (tmp_path / "details.csv", report))
    seen = by_label.frame("metrics").join(by_name.frame("metrics"), on=["span_id", "metric"], suffix="_raw")
    assert seen.height == by_label.frame("metrics").height, "every label is a counter of the raw page"
    off = (seen["value"] - seen["value_raw"]).abs() / seen["value_raw"].abs().clip(1e-9)
    assert off.filter(seen["value_raw"] > 0.01).max() < 0.02, "labels are rounded to two decimals"  # type: ignore[operator]
    assert (seen["unit"].cast(pl.String) == seen["unit_raw"].cast(pl.String)).all()
