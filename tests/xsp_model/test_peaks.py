"""Peak rates of devices: the table, users' files, what goes before what, and what is said of the unknown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.synth import KinetoTrace
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_ingest.staging.raw import frame_of
from xsp_model import TraceBuilder, XspError, bundle
from xsp_model.devices import (
    QUANTITIES,
    device_table,
    fill,
    fp32_lanes,
    peaks_for,
    read_device_file,
    spec_called,
    spec_for,
    unknown,
    with_devices,
)
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model import Trace


def _device(**facts: object) -> pl.DataFrame:
    return frame_of("devices", {name: [value] for name, value in {"device_id": 0, **facts}.items()})


def _by_quantity(peaks: pl.DataFrame) -> dict[str, dict[str, object]]:
    return {str(row["quantity"]): row for row in peaks.to_dicts()}


@pytest.mark.parametrize(
    ("name", "fp32_tflop_per_s", "gbyte_per_s", "ideal"),
    [
        ("Quadro RTX 6000", 16.3, 624, 26.12),
        ("Tesla V100-SXM2-16GB", 15.7, 900, 17.44),
        ("Tesla P100-PCIE-16GB", 9.3, 732, 12.70),
        ("Tesla P4", 5.442, 192, 28.34),
        ("Tesla M60", 9.64 / 2, 320 / 2, 30.12),  # the paper gives the board, programs see one of its two GPUs
    ],
)
def test_the_five_gpus_of_the_paper(name: str, fp32_tflop_per_s: float, gbyte_per_s: float, ideal: float) -> None:
    peaks = peaks_for(name)
    assert peaks["fp32"].value == pytest.approx(fp32_tflop_per_s * 1e12)
    assert peaks["dram"].value == pytest.approx(gbyte_per_s * 1e9)
    assert peaks["fp32"].value / peaks["dram"].value == pytest.approx(ideal, abs=0.006)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM5"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA GH200 480GB", "GH200 96 GB"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80 GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80 GB"),
        ("NVIDIA A100-PG509-200", "A100 40 GB"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("Tesla V100-PCIE-32GB", "V100 PCIe"),
        ("Tesla V100S-PCIE-32GB", "V100S PCIe"),
        ("Tesla V100-DGXS-32GB", "V100 SXM2"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("AMD Instinct MI300X VF", "Instinct MI300X"),
        ("NVIDIA A40", "A40"),
        ("AMD Instinct MI210", "Instinct MI210"),
        ("AMD Instinct MI325X", "Instinct MI325X"),
        ("AMD Instinct MI350X", "Instinct MI350X"),
        ("AMD Instinct MI355X", "Instinct MI355X"),
        ("NVIDIA GeForce GTX 1660 Ti", "GeForce GTX 1660 Ti"),
        ("NVIDIA H100", "H100 SXM5"),
        ("NVIDIA GeForce GTX 1660 Ti with Max-Q Design", None),  # lower clocks
        ("Tesla V100-SXM3-32GB", None),  # higher ones
        ("NVIDIA H100 64GB HBM2", None),  # other memory
        ("NVIDIA H100 96GB HBM3", None),
        ("NVIDIA A100-SXM-64GB", None),
        ("NVIDIA A40-48Q", None),  # a virtual part of one
        ("GRID T4-16Q", None),
        ("NVIDIA A10G", None),  # another chip than the A10: not guessed
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA GeForce RTX 5070 Ti", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),  # a part of the chip
        ("", None),
    ],
)
def test_devices_are_known_by_what_profilers_call_them(name: str, device: str | None) -> None:
    spec = spec_for(name)
    assert (spec.name if spec else None) == device


def test_a_device_without_a_name_is_known_by_its_size() -> None:
    spec = spec_for(None, capability="9.4", multiprocessors=304, memory_bytes=206_141_652_992)
    assert spec is not None
    assert spec.name == "Instinct MI300X"
    facts = {"capability": "9.4", "multiprocessors": 304, "memory_bytes": 206_141_652_992}
    assert spec_for("AMD Radeon Graphics", **facts) == spec  # type: ignore[arg-type]
    other = spec_for(None, capability="9.4", multiprocessors=304, memory_bytes=256 << 30)
    assert other is not None
    assert other.name == "Instinct MI325X"
    assert spec_for(None, capability="9.4", multiprocessors=304) is None, "MI300X and MI325X differ in memory alone"
    assert spec_for(None, capability="9.0", multiprocessors=132) is None, "several devices are so"


def test_each_entry_of_the_table_is_whole() -> None:
    for spec in device_table():
        assert spec.pattern is not None
        assert spec.multiprocessor_count
        assert {"fp32", "dram"} <= set(spec.peaks)
        assert all(peak.source and peak.unit == QUANTITIES[q] for q, peak in spec.peaks.items())
        tensor = [peak for q, peak in spec.peaks.items() if q.endswith("_tensor") or q == "tf32"]
        assert all(peak.detail.startswith("dense") for peak in tensor)
        sixteen = [peak for q, peak in spec.peaks.items() if q in {"fp16_tensor", "bf16_tensor", "fp8_tensor"}]
        assert all("accumulates in FP32" in peak.detail for peak in sixteen)


def test_each_rate_has_a_document_with_its_year_and_each_tensor_rate_is_there_or_lacking() -> None:
    tensor = {q for q in QUANTITIES if q.endswith("_tensor")} | {"tf32"}
    for spec in device_table():
        assert re.search(r", (?:19|20)\d\d$", spec.source), spec.name
        assert tensor <= set(spec.peaks) | spec.lacks, spec.name
        assert not set(spec.peaks) & spec.lacks


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("Tesla V100-SXM2-16GB", {"fp64_tensor", "tf32", "bf16_tensor", "fp8_tensor", "int8_tensor"}),
        ("NVIDIA A100-SXM4-80GB", {"fp8_tensor"}),
        ("NVIDIA H100 PCIe", set()),
        ("AMD Instinct MI355X", {"tf32"}),
    ],
)
def test_the_table_says_what_a_device_has_no_units_for(name: str, lacks: set[str]) -> None:
    spec = spec_for(name)
    assert spec is not None
    assert spec.lacks == lacks


def test_b200_is_as_the_data_sheet_of_hgx_says() -> None:
    peaks = peaks_for("NVIDIA B200")
    assert (peaks["dram"].value, peaks["tf32"].value) == (7.7e12, 1125e12)
    assert peaks["tf32"].source == "NVIDIA HGX B200 data sheet, an eighth of the board, 2025"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('lacks = "tf32"', "is no list of quantities"),
        ('lacks = ["tf23"]', "which is no quantity"),
        ('lacks = ["fp32"]', "which has a peak as well"),
    ],
)
def test_what_a_device_lacks_is_a_quantity_without_a_peak(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "d.toml"
    path.write_text(f'[[device]]\nname = "X"\n{text}\n[device.peaks]\nfp32 = 1e12\n', encoding="utf-8")
    with pytest.raises(XspError, match=message):
        read_device_file(path)


def _traced(tmp_path: Path, **facts: object) -> Trace:
    made = KinetoTrace(deviceProperties=[{"id": 0, **facts}])
    made.launch("gemm", 0, 1_000, 500)
    return convert([made.write(tmp_path / "t.json")], Options())


@pytest.mark.parametrize("facts", [{}, {"name": ""}, {"name": "AMD Radeon Graphics", "numSms": 104, "computeMajor": 9}])
def test_a_gpu_that_the_trace_does_not_name_is_what_the_user_says(facts: dict[str, object], tmp_path: Path) -> None:
    trace = with_devices(_traced(tmp_path, **facts), gpu="h100 sxm5" if not facts else "NVIDIA H100 80GB HBM3")
    assert trace.frame("devices")["name"].to_list() == ["H100 SXM5"]
    assert trace.frame("devices")["dram_byte_per_s"].to_list() == [3.35e12]
    peaks = _by_quantity(trace.frame("peaks").with_columns(pl.col("quantity").cast(pl.String)))
    assert peaks["bf16_tensor"]["value"] == 989.4e12
    assert peaks["bf16_tensor"]["source"] == "NVIDIA H100 GPU architecture paper, 2022"


def test_a_gpu_that_the_trace_names_stays_what_it_is(tmp_path: Path) -> None:
    trace = with_devices(_traced(tmp_path, name="Tesla T4"), gpu="H100 SXM5")
    assert trace.frame("devices")["name"].to_list() == ["Tesla T4"]
    assert trace.frame("devices")["dram_byte_per_s"].to_list() == [320e9]


def test_a_nameless_gpu_forgets_what_was_supposed_of_it_but_not_what_the_file_measured() -> None:
    builder = TraceBuilder()
    builder.add("runs", pl.DataFrame({"run_id": [0], "clock_origin_ns": [0]}))
    builder.add("devices", pl.DataFrame({"run_id": [0], "device_id": [0], "dram_byte_per_s": [5.3e12]}))
    rows = {"quantity": ["dram", "fp32"], "value": [5.3e12, 1e13], "unit": ["byte/s", "flop/s"]}
    sources = {"source": ["AMD Instinct MI300X data sheet, 2023", "the profiler's file"]}
    builder.add("peaks", pl.DataFrame({"run_id": [0, 0], "device_id": [0, 0], **rows, **sources}))
    trace = with_devices(builder.build(), gpu="A40")
    row = trace.frame("devices").row(0, named=True)
    assert (row["name"], row["dram_byte_per_s"], row["fp32_flop_per_s"]) == ("A40", 696e9, 1e13)


def test_a_gpu_of_no_table_is_refused_with_those_it_may_be() -> None:
    with pytest.raises(XspError, match=r"has no 'A100 80'\. Did you mean A100 SXM 80 GB or A100 PCIe 80 GB\?"):
        spec_called("A100 80")
    assert spec_called("mi355x").name == "Instinct MI355X"


def test_vector_rates_follow_from_size_and_clock() -> None:
    for spec in device_table():
        lanes = fp32_lanes(spec.compute_capability)
        if lanes is None or spec.boost_clock_hz is None or spec.multiprocessor_count is None or "MI" in spec.name:
            continue
        derived = spec.multiprocessor_count * lanes * 2 * spec.boost_clock_hz
        assert spec.peaks["fp32"].value == pytest.approx(derived, rel=0.01), spec.name


def test_a_table_entry_fills_what_the_file_does_not_say() -> None:
    devices, peaks = fill(_device(name="Tesla V100-SXM2-16GB"))
    row = devices.row(0, named=True)
    assert (row["fp32_flop_per_s"], row["dram_byte_per_s"]) == (15.7e12, 900e9)
    assert row["peak_source"] == "NVIDIA V100 data sheet, 2020; at 1530 MHz"
    by_quantity = _by_quantity(peaks)
    assert by_quantity["fp16_tensor"]["value"] == 125e12
    assert by_quantity["fp16_tensor"]["detail"] == "dense, accumulates in FP32, at 1530 MHz"
    assert "tf32" not in by_quantity, "the device has none"


def test_the_file_goes_before_the_table() -> None:
    device = _device(name="NVIDIA H100 80GB HBM3", fp32_flop_per_s=6e13, dram_byte_per_s=3e12, peak_source="the driver")
    devices, peaks = fill(device)
    assert devices["fp32_flop_per_s"].to_list() == [6e13]
    assert devices["peak_source"].to_list() == ["the driver"]
    by_quantity = _by_quantity(peaks)
    assert (by_quantity["fp32"]["value"], by_quantity["fp32"]["source"]) == (6e13, "the profiler's file")
    assert by_quantity["bf16_tensor"]["source"] == "NVIDIA H100 GPU architecture paper, 2022"


def test_size_and_clock_give_fp32_where_the_reader_did_not() -> None:
    device = _device(name="NVIDIA X", multiprocessor_count=10, compute_capability="8.6", clock_hz=2_000_000_000)
    devices, peaks = fill(device)
    assert devices["fp32_flop_per_s"].to_list() == [10 * 128 * 2 * 2e9]
    assert _by_quantity(peaks)["fp32"]["detail"] == "derived at 2000 MHz: 10 multiprocessors x 128 FP32 lanes x 2"


def test_compute_units_of_amd_are_not_taken_for_multiprocessors() -> None:
    device = _device(name="AMD gfx90a", multiprocessor_count=104, compute_capability="9.0", clock_hz=1_700_000_000)
    assert fill(device)[0]["fp32_flop_per_s"].to_list() == [None]


def test_measured_peaks_and_given_ones_go_before_others() -> None:
    measured = frame_of(
        "peaks",
        {"device_id": [0], "quantity": ["fp32"], "value": [1e13], "source": ["ncu, derived"], "detail": ["at 1 MHz"]},
    )
    device = _device(name="NVIDIA L4", fp32_flop_per_s=3e13, peak_source="the driver")
    assert _by_quantity(fill(device, measured)[1])["fp32"]["value"] == 1e13
    user_peaks = {"fp32_flop_per_s": 2e13, "dram_byte_per_s": 1e11, "bf16_tensor": 9e13}
    devices, peaks = fill(device, measured, user_peaks=user_peaks)
    assert devices.select("fp32_flop_per_s", "dram_byte_per_s").row(0) == (2e13, 1e11)
    by_quantity = _by_quantity(peaks)
    assert by_quantity["bf16_tensor"]["value"] == 9e13
    assert by_quantity["fp32"]["source"] == by_quantity["bf16_tensor"]["source"] == "given by the user"


def test_processes_that_see_other_devices_under_one_number() -> None:
    devices = frame_of("devices", {"device_id": [0, 0], "process_id": [1, 2], "name": ["NVIDIA L4", "Tesla T4"]})
    filled, peaks = fill(devices)
    assert filled["dram_byte_per_s"].to_list() == [300e9, 320e9]
    assert dict(peaks.filter(pl.col("quantity") == "dram").select("process_id", "value").iter_rows()) == {
        1: 300e9,
        2: 320e9,
    }


def test_an_unknown_device_gets_advice_and_no_number() -> None:
    devices, peaks = fill(_device(name="NVIDIA Z9000"))
    assert peaks.is_empty()
    assert devices.select("fp32_flop_per_s", "dram_byte_per_s", "peak_source").row(0) == (None, None, None)
    (finding,) = unknown(devices)
    assert finding.count == 1
    assert "NVIDIA Z9000" in finding.detail
    assert "--device FILE.toml" in finding.advice
    assert unknown(fill(_device(name="NVIDIA L4"))[0])[0].count == 0


_FILE = """
[[device]]
name = "ours"
pattern = 'H100'
boost_clock_mhz = 1755
[device.peaks]
fp32 = 60e12
bf16_tensor = { value = 900e12, accumulate = "fp32", source = "measured", note = "at 600 W" }
"""


def _written(folder: Path, text: str) -> Path:
    path = folder / "devices.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_users_file_overrides_quantity_by_quantity(tmp_path: Path) -> None:
    specs = read_device_file(_written(tmp_path, _FILE))
    by_quantity = _by_quantity(fill(_device(name="NVIDIA H100 80GB HBM3"), overrides=specs)[1])
    assert (by_quantity["fp32"]["value"], by_quantity["fp32"]["source"]) == (60e12, "user's file devices.toml")
    assert by_quantity["bf16_tensor"]["value"] == 900e12
    assert by_quantity["bf16_tensor"]["detail"] == "dense, accumulates in FP32, at 1755 MHz, at 600 W"
    assert by_quantity["dram"]["value"] == 3350e9, "what the file does not give stays"
    assert _by_quantity(fill(_device(name="NVIDIA L4"), overrides=specs)[1])["fp32"]["value"] == 30.3e12


def test_an_entry_without_a_pattern_is_for_every_device(tmp_path: Path) -> None:
    specs = read_device_file(_written(tmp_path, '[[device]]\nname = "x"\n[device.peaks]\nfp32 = 1e12\ndram = 1e11\n'))
    assert fill(_device(), overrides=specs)[0]["fp32_flop_per_s"].to_list() == [1e12]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[device", "not valid TOML"),
        ("", "no [[device]]"),
        ("device = 3", "no [[device]]"),
        ("[devices]\nx = 1", "'devices'"),
        ('[[device]]\nname = "x"', "has no peaks"),
        ('[[device]]\nname = "x"\ncolour = "red"\n[device.peaks]\nfp32 = 1.0', "'colour'"),
        ("[[device]]\n[device.peaks]\nfp31 = 1e12", "no peak of 'fp31'"),
        ("[[device]]\n[device.peaks]\nfp32 = -1", "no positive number of flop/s"),
        ("[[device]]\n[device.peaks]\nfp32 = nan", "no positive number of flop/s"),
        ('[[device]]\n[device.peaks]\ndram = "fast"', "no positive number of byte/s"),
        ("[[device]]\n[device.peaks]\nfp8_tensor = { value = 1e15, dense = false }", "counts sparsity"),
        ("[[device]]\n[device.peaks]\nfp32 = { valu = 1e12 }", "'valu'"),
        ("[[device]]\npattern = '('\n[device.peaks]\nfp32 = 1e12", "no regular expression"),
    ],
)
def test_a_file_that_says_something_else_is_refused_in_one_sentence(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(XspError) as refused:
        read_device_file(_written(tmp_path, text))
    assert says in str(refused.value)
    assert "devices.toml" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="cannot be read"):
        read_device_file(tmp_path / "none.toml")


def test_peaks_of_a_converted_trace_can_be_overridden(tmp_path: Path) -> None:
    kineto = KinetoTrace(deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}])
    kineto.operator("aten::mm", 0, 10_000)
    kineto.launch("gemm", 1000, 5000, 500)
    trace = convert([kineto.write(tmp_path / "trace.json")], Options())
    assert trace.frame("devices")["fp32_flop_per_s"].to_list() == [66.9e12]
    ours = with_devices(trace, read_device_file(_written(tmp_path, _FILE)))
    assert ours.frame("devices")["fp32_flop_per_s"].to_list() == [60e12]
    assert _by_quantity(ours.frame("peaks"))["fp32"]["source"] == "user's file devices.toml"
    assert _by_quantity(ours.frame("peaks"))["dram"]["value"] == 3350e9
    for name, spec in TABLES.items():
        assert ours.table(name).schema == spec.schema
    assert ours.frame("spans").equals(trace.frame("spans"))
    bundle.write(ours, tmp_path / "ours.xsp")
    assert bundle.read(tmp_path / "ours.xsp").frame("peaks").equals(ours.frame("peaks"))


def test_a_device_that_no_file_describes_can_be_given(tmp_path: Path) -> None:
    kineto = KinetoTrace()
    kineto.operator("aten::mm", 0, 10_000)
    kineto.launch("gemm", 1000, 5000, 500)
    trace = convert([kineto.write(tmp_path / "trace.json")], Options())
    specs = read_device_file(_written(tmp_path, '[[device]]\nname = "x"\n[device.peaks]\nfp32 = 1e12\ndram = 1e11\n'))
    (row,) = with_devices(trace, specs).frame("devices").to_dicts()
    assert (row["device_id"], row["fp32_flop_per_s"], row["dram_byte_per_s"]) == (0, 1e12, 1e11)
