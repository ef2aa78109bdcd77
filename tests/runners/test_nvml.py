"""The sampler against stand-ins for NVML and nvidia-smi, and its files read by XSP."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.helpers.waiting import HANG_S, wait_until
from tests.runners.fake_tool import write_tool
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_runners import nvml as runner
from xsp_runners.nvml import NvmlReader, SmiReader, cuda_ordinals, reasons_of
from xsp_runners.run_folder import RunnerError
from xsp_runners.tools import sampling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

_REPO = Path(__file__).resolve().parents[2]
_FAKE = Path(__file__).with_name("fake_pynvml.py")
_SAMPLER = [sys.executable, str(_REPO / "runners" / "nvml.py")]


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The stand-in as what `import pynvml` finds, here and in processes started."""
    folder = tmp_path / "packages"
    folder.mkdir()
    shutil.copy(_FAKE, folder / "pynvml.py")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    spec = importlib.util.spec_from_file_location("pynvml", _FAKE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


class _Clock:
    """Stands in for the module `time`: only sleeping takes time."""

    epoch_ns = 1_700_000_000_000_000_000

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        self._now_s += duration_s

    def time_ns(self) -> int:
        return self.epoch_ns + round(self._now_s * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Clock]:
    """The clock of a sampler in this process, whose handlers of signals it takes away again."""
    stand_in = _Clock()
    for module in (runner, sampling):
        monkeypatch.setattr(module, "time", stand_in)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield stand_in
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _line_count(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.usefixtures("nvml")
def test_a_sample_is_in_base_units_and_leaves_out_what_a_gpu_does_not_tell() -> None:
    reader = NvmlReader()
    _, (first, second) = next(iter(reader.samples(1)))
    assert first == {
        "device": 0,
        "power_w": 100.0,
        "energy_j": 5000.123,
        "sm_clock_hz": 1_980_000_000,
        "memory_clock_hz": 2_619_000_000,
        "temperature_c": 40,
        "memory_used_bytes": 1 << 30,
        "gpu_utilization": 0.93,
        "memory_utilization": 0.31,
        "throttle": ["sw_power_cap"],
    }
    assert sorted(second) == [
        *("device", "memory_clock_hz", "memory_used_bytes", "sm_clock_hz", "temperature_c", "throttle")
    ]
    assert reader.devices == [
        {"device": 0, "name": "Made-up GPU", "power_limit_w": 700.0},
        {"device": 1, "name": "Made-up GPU"},
    ]


def test_the_stand_in_has_the_names_of_the_real_package() -> None:
    real = pytest.importorskip("pynvml", reason="needs nvidia-ml-py")
    names = [
        line.split()[1].partition("(")[0] for line in _FAKE.read_text().splitlines() if line.startswith("def nvml")
    ]
    assert [name for name in [*names, "NVML_CLOCK_SM", "NVML_CLOCK_MEM", "NVMLError"] if not hasattr(real, name)] == []
    assert (real.NVML_CLOCK_SM, real.NVML_CLOCK_MEM, real.NVML_TEMPERATURE_GPU) == (1, 2, 0)
    bits = {
        attribute.removeprefix("nvmlClocksEventReason")
        for attribute in vars(real)
        if attribute.startswith("nvmlClocksEventReason")
    }
    for attribute in bits - {"All", "None", "UserDefinedClocks"}:
        (reason,) = reasons_of(getattr(real, f"nvmlClocksEventReason{attribute}"))
        assert reason.replace("_", "") == attribute.lower()


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, {0: 0, 1: 1, 2: 2}),
        ("2,0", {2: 0, 0: 1}),
        ("GPU-bb", {1: 0}),
        ("1,7,0", {1: 0}),  # CUDA stops at one that is not there
        ("", {}),
        ("-1", {}),
    ],
)
def test_gpus_have_the_numbers_that_cuda_programs_know(visible: str | None, expected: dict[int, int]) -> None:
    assert cuda_ordinals(["GPU-aa", "GPU-bb", "GPU-cc"], visible) == expected


def test_reasons() -> None:
    assert reasons_of(0) == []
    assert reasons_of(0x1 | 0x4 | 0x40) == ["gpu_idle", "sw_power_cap", "hw_thermal_slowdown"]


@pytest.mark.usefixtures("nvml")
def test_samples_come_at_the_rate_asked_for(tmp_path: Path, clock: _Clock) -> None:
    path = tmp_path / "out" / "nvml.jsonl"
    assert runner.main(["-o", str(path), "--hertz", "64", "--seconds", "0.5"]) == 0
    header, *samples, end = _lines(path)
    assert (header["source"], header["interval_ns"], header["driver_version"]) == ("nvidia-ml-py", 15_625_000, "580.65")
    times = [s["time_ns"] for s in samples if s["device"] == 0]
    assert times == [clock.epoch_ns + n * 15_625_000 for n in range(33)]
    assert end == {"end": True, "samples": 66}


@pytest.mark.usefixtures("nvml")
def test_a_sample_that_is_late_is_not_made_up_for(clock: _Clock) -> None:
    times = []
    for moment, _ in NvmlReader().samples(1):
        times.append(moment - clock.epoch_ns)
        if len(times) == 2:
            clock.sleep(3.5)
        if len(times) == 4:
            break
    assert times == [0, 1_000_000_000, 4_500_000_000, 5_500_000_000]


@pytest.mark.usefixtures("nvml")
def test_no_serial_number_is_written(tmp_path: Path) -> None:
    subprocess.run([*_SAMPLER, "-o", str(tmp_path / "n.jsonl"), "--seconds", "0.1"], check=True, stdout=subprocess.PIPE)
    assert "GPU-" not in (tmp_path / "n.jsonl").read_text()


@pytest.mark.usefixtures("nvml")
def test_a_program_is_run_meanwhile_and_its_status_kept(tmp_path: Path) -> None:
    path = tmp_path / "nvml.jsonl"
    code = (
        "import sys, time\n"
        "while open(sys.argv[1]).read().count('\\n') < 5: time.sleep(0.01)\n"
        "print('done'); sys.exit(4)"
    )
    program = [sys.executable, "-c", code, str(path)]
    done = subprocess.run([*_SAMPLER, "-o", str(path), "--", *program], check=False, capture_output=True, text=True)
    assert done.returncode == 4
    assert "done\n" in done.stdout
    assert len(_lines(path)) > 4
    assert _lines(path)[-1]["end"]


@pytest.mark.usefixtures("nvml")
def test_beside_code_of_ones_own_and_read_by_xsp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "nvml.jsonl"
    monkeypatch.setattr(sampling, "_END_SECONDS", HANG_S)
    begun = time.time_ns()
    with runner.beside(path, hertz=50):
        wait_until(lambda: _line_count(path) > 2 * 3)
    ended = time.time_ns()
    counters = convert([path], Options()).frame("counters").with_columns(pl.col("counter", "unit").cast(pl.String))
    power = counters.filter(pl.col("counter") == "power_w").sort("time_ns")
    assert power["value"].to_list() == [100.0 + n for n in range(power.height)]
    assert set(power["unit"]) == {"W"}
    assert power.height >= 3
    times = [s["time_ns"] for s in _lines(path)[1:-1]]
    assert begun <= times[0] < times[-1] <= ended
    assert {"throttle_sw_power_cap", "memory_used_bytes", "sm_clock_hz"} <= set(counters["counter"])


@pytest.mark.usefixtures("nvml")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_file_well(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "nvml.jsonl"
    process = subprocess.Popen([*_SAMPLER, "-o", str(path)], stdout=subprocess.PIPE)
    wait_until(lambda: _line_count(path) > 2)
    process.send_signal(number)
    assert process.wait(timeout=HANG_S) == 0
    assert process.stdout is not None
    process.stdout.close()
    assert _lines(path)[-1]["end"]


def test_without_nvml_and_nvidia_smi_the_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert runner.main(["-o", str(tmp_path / "out" / "n.jsonl")]) == 2
    assert capsys.readouterr().err == (
        "nvml: the GPU's power cannot be sampled: nvidia-ml-py is not installed, and nvidia-smi is not there "
        "(pip install nvidia-ml-py)\n"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("nvml")
def test_beside_says_why_it_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML", "absent")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunnerError, match="NVML says: NVML Shared Library Not Found"):
        runner.beside(tmp_path / "n.jsonl").__enter__()


def test_numbers_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    for hertz in ("0", "-1", "1000"):
        assert runner.main(["-o", str(tmp_path / "n.jsonl"), "--hertz", hertz]) == 2


_SMI = """
import time
if arguments[0].startswith('--query-gpu=name'):
    print('Made-up GPU, 700.00, 580.65, GPU-aaaa1111')
    print('Made-up GPU, [N/A], 580.65, GPU-bbbb2222')
else:
    assert arguments[-1] == '--loop-ms=50', arguments
    for number in range(100):
        print(f'0, 0x0000000000000004, {100 + number}.25, 1980, 2619, 40, 1024, 93, 31', flush=True)
        print('1, [N/A], [N/A], 210, 2619, 30, 0, 0, 0', flush=True)
        print('GPU is lost', flush=True)
        time.sleep(0.05)
"""


def test_nvidia_smi_stands_in_for_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tool(tmp_path / "nvidia-smi", _SMI)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    reader = SmiReader()
    try:
        samples = [sample for _, (sample,) in zip(range(3), (s for _, s in reader.samples(0.05)), strict=False)]
    finally:
        reader.close()
    assert samples[0] == {
        "device": 0,
        "power_w": 100.25,
        "sm_clock_hz": 1_980_000_000,
        "memory_clock_hz": 2_619_000_000,
        "temperature_c": 40,
        "memory_used_bytes": 1 << 30,
        "gpu_utilization": 0.93,
        "memory_utilization": 0.31,
        "throttle": ["sw_power_cap"],
    }
    assert samples[1] == {
        "device": 1,
        "sm_clock_hz": 210_000_000,
        "memory_clock_hz": 2_619_000_000,
        "temperature_c": 30,
        "memory_used_bytes": 0,
        "gpu_utilization": 0,
        "memory_utilization": 0,
    }
    assert samples[2]["power_w"] == 101.25
    assert reader.devices == [
        {"device": 0, "name": "Made-up GPU", "power_limit_w": 700.0},
        {"device": 1, "name": "Made-up GPU"},
    ]


def test_a_sampler_that_fails_does_not_end_the_program(tmp_path: Path) -> None:
    body = _SMI.replace("range(100)", "range(2)")
    write_tool(tmp_path / "nvidia-smi", body)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": ""}
    errors = tmp_path / "errors"
    code = "import os, sys, time\nwhile not os.path.getsize(sys.argv[1]): time.sleep(0.01)\nprint('done')"
    program = [sys.executable, "-c", code, str(errors)]
    # Where nvidia-ml-py is installed it finds no driver here, and nvidia-smi is asked.
    with errors.open("wb") as stream:
        done = subprocess.run(
            [*_SAMPLER, "-o", str(tmp_path / "n.jsonl"), "--", *program],
            check=False, stdout=subprocess.PIPE, stderr=stream, text=True, env=environment, timeout=HANG_S,
        )  # fmt: skip
    assert done.returncode == 0
    assert "done\n" in done.stdout
    assert errors.read_text() == "nvml: nvidia-smi ended by itself\n"
