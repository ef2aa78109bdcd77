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
from xsp_ingest.formats.ncu.report import NCU_REPORT, tool
from xsp_ingest.ingester import Options, claimants_of
from xsp_ingest.registry import all_ingesters
from xsp_model import XspError

if TYPE_CHECKING:
    from collections.abc import Callable
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
    monkeypatch.setitem(sys.modules, "ncu_report", None)
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


def test_without_a_reader_the_extra_and_the_command_are_said(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    monkeypatch.delenv("XSP_NCU", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    sentence = r"pip install ncu-report.* ncu --import .* --csv --page raw --print-units base"
    with pytest.raises(XspError, match=sentence) as refused:
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


class _Samples(_Metric):
    """A counter with a value an instruction; address 0 has no line."""

    def __init__(self, *values: int) -> None:
        super().__init__(float(sum(values)), "")
        self._values = values

    def num_instances(self) -> int:
        return len(self._values)

    def correlation_ids(self) -> _Samples:
        return _Samples(*range(len(self._values)))

    def as_uint64(self, at: int) -> int:
        return self._values[at]

    def as_double(self) -> float:
        return float(sum(self._values))


class _Line:
    """Two instructions a line."""

    def __init__(self, address: int) -> None:
        self._address = address

    def file_name(self) -> str:
        return "/home/somebody/gemm.cu"

    def line(self) -> int:
        return 10 + self._address // 2


class _Domain:
    def __init__(self, name: str, ranges: tuple[str, ...], started: tuple[str, ...]) -> None:
        self._name, self._ranges, self._started = name, ranges, started

    def name(self) -> str:
        return self._name

    def push_pop_ranges(self) -> tuple[str, ...]:
        return self._ranges

    def start_end_ranges(self) -> tuple[str, ...]:
        return self._started


class _State:
    """What NVIDIA's module calls the ranges around a kernel."""

    def __init__(self, ranges: tuple[str, ...], started: tuple[str, ...]) -> None:
        self._domains = [_Domain("<default domain>", ranges, started)]

    def domains(self) -> tuple[int, ...]:
        return tuple(range(len(self._domains)))

    def domain_by_id(self, number: int) -> _Domain:
        return self._domains[number]


class _Action:
    """What NVIDIA's module calls a profiled kernel; numbers are floats there, even those of streams."""

    NameBase_DEMANGLED = 1

    def __init__(self, *ranges: str, started: tuple[str, ...] = (), duration_ns: object = 2048.0) -> None:
        self._state = _State(ranges, started) if ranges else None
        self.function: str | None = "gemm<float>(int)"
        self.counters = {
            "breakdown:sm__throughput": _Metric("sm__inst_executed.sum", ""),
            "dram__bytes_read.sum": _Metric(4096.0, "byte"),
            "gpu__time_duration.sum": _Metric(duration_ns, "nsecond"),
            "sm__throughput.avg.pct_of_peak_sustained_elapsed": _Metric(1.234, "%"),
            "launch__grid_dim_x": _Metric(64.0, ""),
            "launch__stream_id": _Metric(7.0, ""),
            "device__attribute_display_name": _Metric("NVIDIA A100", ""),
            "device__attribute_compute_capability_major": _Metric(8, ""),
            "device__attribute_compute_capability_minor": _Metric(0, ""),
            "launch__device_id": _Metric(0.0, ""),
            "device__attribute_max_threads_per_block": _Metric(1024, ""),
            "launch__occupancy_per_block_size": _Metric(2338.0, ""),
            "smsp__pcsamp_sample_count": _Samples(10, 20, 30, 40),
        }

    def name(self, base: int) -> str | None:
        assert base == self.NameBase_DEMANGLED
        return self.function

    def nvtx_state(self) -> _State | None:
        return self._state

    def source_info(self, address: int) -> _Line | None:
        return _Line(address) if address else None

    def rule_results_as_dicts(self) -> list[dict[str, object]]:
        link = "@url:Hardware Model:https://x.y/z@ and @section:LaunchStats:Launch Statistics@"
        return [{"name": "Launch", "rule_message": {"title": "Small Grid", "message": f"Few blocks, see {link}."}}]

    def metric_names(self) -> list[str]:
        return list(self.counters)

    def metric_by_name(self, name: str) -> _Metric:
        return self.counters[name]


class _Report:
    def __init__(self, actions: list[_Action]) -> None:
        self._actions = actions

    def num_ranges(self) -> int:
        return 1

    def range_by_idx(self, at: int) -> list[_Action]:
        assert at == 0
        return self._actions


@pytest.fixture
def module(report: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Makes a report that holds these kernels, by a module that stands in for NVIDIA's."""

    def holding(*actions: _Action) -> Path:
        stand_in = types.ModuleType("ncu_report")
        stand_in.__spec__ = types.SimpleNamespace(name="ncu_report")  # type: ignore[assignment]
        stand_in.load_report = lambda path: _Report(list(actions))  # type: ignore[attr-defined]  # noqa: ARG005
        monkeypatch.setitem(sys.modules, "ncu_report", stand_in)
        monkeypatch.setattr(tool, "_load_apart", lambda path: None)  # noqa: ARG005
        monkeypatch.delenv("XSP_NCU", raising=False)
        return report

    return holding


def test_the_module_is_used_where_no_program_is_named(module: Callable[..., Path]) -> None:
    raw = NCU_REPORT.read(module(_Action(), _Action()), Options())
    values = metrics(raw, 1)
    assert (values["dram_read_bytes"], values["compute_utilization"]) == (4096, 0.01234)
    assert raw.tables["spans"]["start_ns"].to_list() == [0, 2048]
    assert raw.tables["spans"]["stream_id"].to_list() == [7, 7]
    assert raw.tables["kernels"]["grid_x"].to_list() == [64, 64]
    (device,) = raw.tables["devices"].to_dicts()
    assert (device["name"], device["compute_capability"]) == ("NVIDIA A100", "8.0")


def test_lines_of_source_with_most_samples_are_metrics(module: Callable[..., Path]) -> None:
    values = metrics(NCU_REPORT.read(module(_Action()), Options()))
    lines = {name: value for name, value in values.items() if name.startswith("samples at")}
    assert lines == {"samples at gemm.cu:11": 0.7, "samples at gemm.cu:10": 0.2}


def test_what_its_rules_say_is_in_the_ledger(module: Callable[..., Path]) -> None:
    raw = NCU_REPORT.read(module(_Action(), _Action()), Options())
    (advice,) = [each for each in raw.findings if each.kind == "profiler_advice"]
    sentence = "Launch: Small Grid: Few blocks, see Hardware Model and Launch Statistics."
    assert (advice.count, advice.detail) == (2, sentence)


def test_a_report_that_ends_the_process_that_loads_it_is_refused(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ncu_report.py").write_text("import os\ndef load_report(path): os.abort()\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    monkeypatch.delenv("XSP_NCU", raising=False)
    with pytest.raises(XspError, match="cannot load the report: it is damaged, or newer"):
        NCU_REPORT.read(report, Options())


def test_an_empty_report_of_the_module_is_said(module: Callable[..., Path]) -> None:
    with pytest.raises(XspError, match="holds no kernel's counters"):
        NCU_REPORT.read(module(), Options())


def test_attributes_without_a_unit_lack_none(module: Callable[..., Path]) -> None:
    raw = NCU_REPORT.read(module(_Action()), Options())
    assert [each for each in raw.findings if each.kind == "counter_without_unit" and each.count] == []


def test_a_report_that_is_cut_off_is_refused(module: Callable[..., Path]) -> None:
    cut = _Action()
    cut.counters, cut.function = {}, None
    with pytest.raises(XspError, match="neither name nor counters: the file is cut off"):
        NCU_REPORT.read(module(_Action(), cut), Options())
    replayed = _Action()
    replayed.function = None
    assert NCU_REPORT.read(module(replayed), Options()).tables["spans"]["name"].to_list() == ["range"]


def test_ranges_that_were_started_and_not_pushed_are_counted(module: Callable[..., Path]) -> None:
    raw = NCU_REPORT.read(module(_Action("step 0", started=("request 5",)), _Action("step 0")), Options())
    assert [each.count for each in raw.findings if each.kind == "nvtx_state_left_out"] == [1]
    assert raw.tables["ranges"]["text"].to_list() == ["step 0"]


@pytest.mark.parametrize("duration_ns", [2048.0, None])
def test_kernels_belong_to_layers_by_the_ranges_they_were_launched_in(
    duration_ns: object, module: Callable[..., Path]
) -> None:
    path = module(
        _Action("step 0", "model", "conv", duration_ns=duration_ns),
        _Action("step 0", "model", "conv", duration_ns=duration_ns),
        _Action("step 0", "model", "relu", duration_ns=duration_ns),
        _Action("step 1", "model", "conv", duration_ns=duration_ns),
        _Action(duration_ns=duration_ns),
    )
    trace = convert([path], Options())
    spans = trace.frame("spans")
    layers = dict(trace.frame("layers").select("span_id", pl.col("layer_name").cast(pl.String)).iter_rows())
    work = spans.filter(pl.col("level").cast(pl.String) == "kernel").sort("span_id")
    assert [layers.get(layer) for layer in work["layer_id"]] == ["conv", "conv", "relu", "conv", None]
    assert work["step"].to_list() == [0, 0, 0, 1, None]
    assert sum(name == "conv" for name in layers.values()) == 2, "two calls, one in each step"


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


@pytest.mark.real
@pytest.mark.parametrize("name", ["mistic.a100.ncu2021_2", "mojo.gtx1660ti.ncu2022_4"])
def test_module_and_program_read_the_same(name: str, real_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ncu_report")
    program = os.environ.get("XSP_NCU")
    if not program:
        pytest.skip("needs NVIDIA's ncu: set XSP_NCU to its path")
    path = real_dir / "ncu" / f"{name}.ncu-rep"
    by_program = convert([path], Options())
    monkeypatch.delenv("XSP_NCU")
    by_module = convert([path], Options())
    for table in ("devices", "peaks", "kernels"):
        assert by_module.frame(table).to_dicts() == by_program.frame(table).to_dicts()
    columns = ["start_ns", "duration_ns", "stream_id"]
    assert by_module.frame("spans").select(columns).equals(by_program.frame("spans").select(columns))
    both = by_module.frame("metrics").join(
        by_program.frame("metrics"), on=["span_id", "metric", "unit"], suffix="_page"
    )
    assert both.height == by_program.frame("metrics").height
    off = (both["value"] - both["value_page"]).abs()
    assert (off <= 0.0051).all() or (off / both["value_page"].abs().clip(1e-9)).filter(off > 0.0051).max() < 0.005  # type: ignore[operator]
