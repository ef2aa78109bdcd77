"""`xsp devices`: the table, JSON, and a user's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from xsp.cli.main import main
from xsp_model import bundle
from xsp_model.devices import device_table

if TYPE_CHECKING:
    import pytest


def test_the_table_lists_every_device_with_its_ideal_intensity(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    lines = capfd.readouterr().out.splitlines()
    rule = next(at for at, line in enumerate(lines) if line.startswith("\u2500"))
    assert len(lines[rule + 1 :]) == len(device_table())
    (line,) = [line for line in lines if line.startswith("V100 SXM2")]
    assert line.split()[2:] == [
        *("7.8", "none", "15.7", "31.4", "none", "125", "none", "none", "none", "900", "15.8", "150", "17.44"),
        *("NVIDIA", "V100", "data", "sheet,", "2020"),
    ]


def test_json_says_every_peak_with_its_source(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "-f", "json"]) == 0
    devices = {device["name"]: device for device in json.loads(capfd.readouterr().out)}
    peaks = {peak["quantity"]: peak for peak in devices["H100 SXM5"]["peaks"]}
    assert peaks["bf16_tensor"] == {
        "quantity": "bf16_tensor",
        "value": 989.4e12,
        "unit": "flop/s",
        "source": "NVIDIA H100 GPU architecture paper, 2022",
        "detail": "dense, accumulates in FP32, at 1830 MHz",
    }
    assert devices["H100 SXM5"]["boost_clock_hz"] == 1_980_000_000


def test_a_users_file_is_listed_as_it_is_understood(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[[device]]\nname = "mine"\n[device.peaks]\nfp32 = 1e12\ndram = 5e10\n', encoding="utf-8")
    assert main(["devices", "--device", str(path)]) == 0
    assert capfd.readouterr().out.splitlines()[-1].split()[-4:] == ["20.00", "user's", "file", "mine.toml"]


def test_a_file_that_is_not_understood_is_an_error_of_the_user(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[[device]]\n[device.peaks]\nfp31 = 1e12\n", encoding="utf-8")
    assert main(["devices", "--device", str(path)]) == 2
    assert "there is no peak of 'fp31'" in capfd.readouterr().err


def test_the_users_peaks_go_before_all_others(tmp_path: Path) -> None:
    file = tmp_path / "ours.toml"
    file.write_text(
        '[[device]]\nname = "ours"\n[device.peaks]\n'
        'fp32 = { value = 1e12, source = "measured" }\ndram = { value = 5e11, source = "measured" }\n'
    )
    trace = (
        Path(__file__).resolve().parents[3] / "fixtures/torch_profiler/transformer_train_gpu_synthetic/trace.json.gz"
    )
    output = tmp_path / "t.xsp"
    assert main(["convert", str(trace), "-o", str(output), "--device", str(file)]) == 0
    devices = bundle.read(output).frame("devices")
    assert devices.select("fp32_flop_per_s", "dram_byte_per_s").unique().rows() == [(1e12, 5e11)]
