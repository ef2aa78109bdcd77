"""Samples the GPUs' power, clocks, temperature, memory and utilisation beside a run, 20 times a second by default.

    python -m xsp_runners.nvml --out runs/mlg/nvml.jsonl -- python train.py      while a program runs
    python -m xsp_runners.nvml --out nvml.jsonl --seconds 10                     for some time

`beside` is a context manager for code of one's own: it samples in a process of its own, so that the work is not
disturbed. The file is listed in run.json (`"format": "nvml_samples"`), and joins the run by Unix time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.run_folder import RunnerError
from xsp_runners.tools.tool import Parser, output_of, program_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

__all__ = [
    "BYTES_PER_MIB",
    "FORMAT",
    "HZ_PER_MHZ",
    "NAME",
    "NvmlReader",
    "Reader",
    "SmiReader",
    "Until",
    "add_sampling_options",
    "beside",
    "cuda_ordinals",
    "main",
    "open_reader",
    "reasons_of",
    "sample",
    "scale",
    "without_nulls",
]

HZ_PER_MHZ = 1_000_000
BYTES_PER_MIB = 1 << 20
_REASONS: Mapping[int, str] = {  # NVML's bits
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


def reasons_of(bits: int) -> list[str]:
    """NVML's reasons for clocks below the highest, as words."""
    return [reason for bit, reason in _REASONS.items() if bits & bit]


class Reader(Protocol):
    """Where samples come from."""

    source: str
    devices: list[dict[str, Any]]
    driver_version: str | None

    def samples(self, interval_s: float) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Unix time in ns, and a sample of each device, again and again, as near to the interval as can be."""

    def once(self) -> tuple[int, list[dict[str, Any]]]:
        """Unix time in ns, and a sample of each device."""

    def close(self) -> None:
        """Ends it."""


def cuda_ordinals(uuids: Sequence[str], visible: str | None) -> dict[int, int]:
    """What CUDA programs number the GPUs by, for each of the driver's that they see; `visible`: CUDA_VISIBLE_DEVICES.

    Without it they are numbered as the driver has them, which holds where all GPUs are alike.
    """
    if visible is None:
        return {index: index for index in range(len(uuids))}
    ordinals: dict[int, int] = {}
    for ordinal, prefix in enumerate(part.strip() for part in visible.split(",")):
        fitting = [n for n, uuid in enumerate(uuids) if prefix and (uuid.startswith(prefix) or prefix == str(n))]
        if len(fitting) != 1:
            break  # CUDA, too, sees none after one that it cannot find
        ordinals[fitting[0]] = ordinal
    return ordinals


class NvmlReader:
    """Samples through nvidia-ml-py; RunnerError where it is not installed or finds no driver."""

    source = "nvidia-ml-py"

    def __init__(self) -> None:
        try:
            import pynvml  # noqa: PLC0415 (installed on machines with a GPU only)
        except ImportError as error:
            raise RunnerError("nvidia-ml-py is not installed") from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
            uuids = [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
        except pynvml.NVMLError as error:
            raise RunnerError(f"NVML says: {error}") from error
        ordinals = cuda_ordinals(uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._handles = {ordinal: handles[index] for index, ordinal in ordinals.items()}
        if not self._handles:
            raise RunnerError("there is no GPU that this process may see")
        self.devices = [self._device(ordinal, handle) for ordinal, handle in self._handles.items()]
        self.driver_version: str | None = _text(self._query(pynvml.nvmlSystemGetDriverVersion))

    def _query(self, call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
        """The call's answer; None where this GPU or driver does not tell."""
        with suppress(self._nvml.NVMLError):
            return call(*arguments)
        return None

    def _device(self, ordinal: int, handle: object) -> dict[str, Any]:
        limit = self._query(self._nvml.nvmlDeviceGetPowerManagementLimit, handle)
        name = _text(self._query(self._nvml.nvmlDeviceGetName, handle))
        return without_nulls({"device": ordinal, "name": name, "power_limit_w": scale(limit, 1e-3)})

    def samples(self, interval_s: float) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """A moment of all devices each interval; one that is late is not made up for."""
        following = time.monotonic()
        while True:
            yield self.once()
            following = max(following + interval_s, time.monotonic())
            time.sleep(max(0.0, following - time.monotonic()))

    def once(self) -> tuple[int, list[dict[str, Any]]]:
        """All devices at this moment."""
        return time.time_ns(), [self._sample(ordinal, handle) for ordinal, handle in self._handles.items()]

    def _sample(self, ordinal: int, handle: object) -> dict[str, Any]:
        nvml, query = self._nvml, self._query
        used = query(nvml.nvmlDeviceGetMemoryInfo, handle)
        rates = query(nvml.nvmlDeviceGetUtilizationRates, handle)
        bits = query(_reasons_call(nvml), handle)
        return without_nulls(
            {
                "device": ordinal,
                "power_w": scale(query(nvml.nvmlDeviceGetPowerUsage, handle), 1e-3),
                "energy_j": scale(query(nvml.nvmlDeviceGetTotalEnergyConsumption, handle), 1e-3),
                "sm_clock_hz": scale(query(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM), HZ_PER_MHZ),
                "memory_clock_hz": scale(query(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM), HZ_PER_MHZ),
                "temperature_c": query(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
                "memory_used_bytes": None if used is None else used.used,
                "gpu_utilization": None if rates is None else rates.gpu / 100,
                "memory_utilization": None if rates is None else rates.memory / 100,
                "throttle": None if bits is None else reasons_of(bits),
            }
        )

    def close(self) -> None:
        """Lets go of the driver."""
        self._query(self._nvml.nvmlShutdown)


def _reasons_call(nvml: Any) -> Any:  # noqa: ANN401
    """NVIDIA renamed the call with driver 535."""
    return (
        getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")


def scale(value: float | None, factor: float) -> float | None:
    """The value in the unit wanted, at the three decimals that NVML has at most."""
    return None if value is None else round(value * factor, 3)


def without_nulls(sample: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if value is not None}


# What the program nvidia-smi tells of each GPU, again and again, where the package nvidia-ml-py is not installed.

_SMI: Mapping[str, tuple[str, float]] = {
    # field of nvidia-smi: name in a sample, factor
    "power.draw": ("power_w", 1),
    "clocks.sm": ("sm_clock_hz", HZ_PER_MHZ),
    "clocks.mem": ("memory_clock_hz", HZ_PER_MHZ),
    "temperature.gpu": ("temperature_c", 1),
    "memory.used": ("memory_used_bytes", BYTES_PER_MIB),
    "utilization.gpu": ("gpu_utilization", 0.01),
    "utilization.memory": ("memory_utilization", 0.01),
}
_SMI_REASONS = "clocks_throttle_reasons.active"
_MS_PER_S = 1000
_ONCE_S = 10


class SmiReader:
    """Samples through a running nvidia-smi; RunnerError where it names no GPU."""

    source = "nvidia-smi"

    def __init__(self) -> None:
        self._path = shutil.which("nvidia-smi") or "nvidia-smi"
        self._process: subprocess.Popen[str] | None = None
        fields = "name,power.limit,driver_version,uuid"
        status, text = output_of([self._path, f"--query-gpu={fields}", "--format=csv,noheader,nounits"])
        rows = [
            [cell.strip() for cell in line.split(",")]
            for line in text.splitlines()
            if line.count(",") == fields.count(",")
        ]
        if status or not rows:
            raise RunnerError("nvidia-smi names no GPU here")
        ordinals = cuda_ordinals([row[3] for row in rows], os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._ordinals = ordinals
        if not ordinals:
            raise RunnerError("there is no GPU that this process may see")
        self.devices = [
            without_nulls({"device": ordinal, "name": rows[index][0], "power_limit_w": _number(rows[index][1])})
            for index, ordinal in ordinals.items()
        ]
        self.driver_version: str | None = rows[0][2]

    def samples(self, interval_s: float) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """One device at a time, as nvidia-smi prints them; times are those of arrival."""
        command = [*self._query, f"--loop-ms={max(1, round(interval_s * _MS_PER_S))}"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 (NVIDIA's own program)
        assert self._process.stdout is not None  # noqa: S101 (piped above)
        for line in self._process.stdout:
            sample = self._sample([cell.strip() for cell in line.split(",")])
            if sample:
                yield time.time_ns(), [sample]
        raise RunnerError("nvidia-smi ended by itself")

    def once(self) -> tuple[int, list[dict[str, Any]]]:
        """All devices, in one answer; RunnerError where nvidia-smi gives none."""
        moment = time.time_ns()
        status, text = output_of(self._query, seconds=_ONCE_S)
        samples = [self._sample([cell.strip() for cell in line.split(",")]) for line in text.splitlines()]
        if status:
            raise RunnerError("nvidia-smi does not answer")
        return moment, [sample for sample in samples if sample]

    @property
    def _query(self) -> list[str]:
        fields = f"--query-gpu=index,{_SMI_REASONS},{','.join(_SMI)}"
        return [self._path, fields, "--format=csv,noheader,nounits"]

    def _sample(self, cells: Sequence[str]) -> dict[str, Any] | None:
        """None for a line that is no sample, or of a GPU that this process does not see."""
        if len(cells) != len(_SMI) + 2 or not cells[0].isdecimal() or int(cells[0]) not in self._ordinals:
            return None
        values = {
            name: scale(_number(cell), factor) for (name, factor), cell in zip(_SMI.values(), cells[2:], strict=True)
        }
        bits = cells[1]
        reasons = reasons_of(int(bits, 16)) if bits.startswith("0x") else None
        return without_nulls({"device": self._ordinals[int(cells[0])], **values, "throttle": reasons})

    def close(self) -> None:
        """Ends nvidia-smi."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()


def _number(text: str) -> float | None:
    """The number, or None for `[N/A]` and the like."""
    try:
        return float(text)
    except ValueError:
        return None


NAME = "nvml.jsonl"
"""The file beside run.json."""
FORMAT = "nvml_samples"
"""What run.json calls its format."""
_HEADER = "xsp nvml samples"
_USER_ERROR = 2
_DEFAULT_HZ = 20.0
_MAX_HZ = 200.0
_READY = "sampling"
_END_SECONDS = 10


def open_reader() -> Reader:
    """The package's reader, else the program's; RunnerError where there is neither, or no GPU."""
    try:
        return NvmlReader()
    except RunnerError as first:
        if shutil.which("nvidia-smi") is None:
            raise RunnerError(
                f"the GPU's power cannot be sampled: {first}, and nvidia-smi is not there (pip install nvidia-ml-py)"
            ) from first
    return SmiReader()


def sample(reader: Reader, path: Path, *, hertz: float, stop: Callable[[], bool], ready: Callable[[], None]) -> int:
    """Writes samples until `stop` says so; how many. RunnerError where the file cannot be written.

    Each line stands whole in the file as soon as it is known, so that a sampler that is killed leaves what it had.
    """
    header: dict[str, Any] = {"format": _HEADER, "version": 1, "clock": "CLOCK_REALTIME", "source": reader.source}
    header |= {"interval_ns": round(1e9 / hertz), "driver_version": reader.driver_version, "devices": reader.devices}
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", buffering=1) as file:
            _put(file, header)
            ready()
            for moment, samples in reader.samples(1 / hertz):
                for each in samples:
                    _put(file, {"time_ns": moment, **each})
                count += len(samples)
                if stop():
                    break
            _put(file, {"end": True, "samples": count})
    except OSError as error:
        raise RunnerError(f"the samples cannot be written to {path}: {error.strerror}") from error
    return count


def _put(file: Any, line: dict[str, Any]) -> None:  # noqa: ANN401
    file.write(json.dumps(line, separators=(",", ":")) + "\n")


@contextmanager
def beside(path: str | Path, *, hertz: float = _DEFAULT_HZ, script: Path = Path(__file__)) -> Iterator[None]:
    """Samples into the file while open, in a process of its own; RunnerError where nothing can be sampled.

    `script` is the sampler: this one, or another that takes the same options.
    """
    command = [sys.executable, str(script.resolve()), "--out", str(path), "--hertz", str(hertz), "--piped"]
    process = subprocess.Popen(  # noqa: S603 (our own program)
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if process.stdout is None or process.stdout.readline().strip() != _READY:
        messages = process.communicate()[1].strip()
        raise RunnerError(messages.removeprefix(f"{script.stem}: ") or "the sampler ended by itself")
    try:
        yield
    finally:
        try:
            messages = process.communicate(timeout=_END_SECONDS)[1]  # its input ends, so it does
        except subprocess.TimeoutExpired:
            process.kill()
            messages = process.communicate()[1]
        if process.returncode:
            print(messages.strip() or f"{script.stem}: the sampler was ended", file=sys.stderr)


class Until:
    """Says when to stop: after some time, after a program or the caller's pipe has ended, or on a signal."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._over = threading.Event()
        self._piped = bool(args.piped)
        self._end = time.monotonic() + (args.seconds or math.inf)
        self.program: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end_all)
        if args.piped:
            threading.Thread(target=self._wait_for_pipe, daemon=True).start()

    def start(self, program: list[str]) -> None:
        try:
            self.program = subprocess.Popen(program)  # noqa: S603 (the user's own command, no shell)
        except OSError as error:
            raise RunnerError(f"the program {program[0]!r} cannot be started: {error.strerror}") from error

    def begin(self, target: list[str] | None) -> None:
        """Tells who waits at the pipe that samples are being taken, or starts the program."""
        if self._piped:
            print(_READY, flush=True)
        if target:
            self.start(target)

    def _end_all(self, number: int, _frame: FrameType | None) -> None:
        self._over.set()
        if self.program is not None and number == signal.SIGTERM:  # a terminal interrupts the program as well as us
            self.program.terminate()

    def _wait_for_pipe(self) -> None:
        sys.stdin.read()
        self._over.set()

    def __call__(self) -> bool:
        ended = self.program is not None and self.program.poll() is not None
        return ended or self._over.is_set() or time.monotonic() >= self._end


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        "nvml",
        description="Samples power, clocks, temperature, memory and utilisation of the GPUs.",
        epilog="Exit status: that of the program where there is one, else 0; 2 where nothing could be sampled.",
    )
    add_sampling_options(parser, hertz=_DEFAULT_HZ, name=NAME)
    return parser


def add_sampling_options(parser: argparse.ArgumentParser, *, hertz: float, name: str) -> None:
    """The options of every sampler: how often, how long, into which file, beside which program."""
    parser.add_argument("--hertz", type=float, default=hertz, help="samples a second; default %(default)g")
    parser.add_argument("--seconds", type=float, help="for how long, where no program says so")
    parser.add_argument("-o", "--out", type=Path, required=True, help=f"the file, as {name}")
    parser.add_argument("--piped", action="store_true", help=argparse.SUPPRESS)  # until standard input ends
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ARGS", help="what to run meanwhile")


def _main(args: argparse.Namespace) -> int:
    if not 0 < args.hertz <= _MAX_HZ:
        raise RunnerError(f"--hertz must be between 0 and {_MAX_HZ:g}")
    target = program_of(args.program) if args.program else None
    reader = open_reader()
    until = Until(args)

    try:
        count = sample(reader, args.out, hertz=args.hertz, stop=until, ready=lambda: until.begin(target))
    except RunnerError as error:
        if until.program is None:
            raise
        print(f"nvml: {error}", file=sys.stderr)  # the program is worth more than its samples
    else:
        if not args.piped:
            print(f"{args.out}: {count} samples of {len(reader.devices)} GPUs", flush=True)
    finally:
        reader.close()
    return until.program.wait() if until.program else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 0 or the program's status, 2 after a sentence on stderr."""
    args = _parser().parse_args(arguments)
    try:
        return _main(args)
    except RunnerError as error:
        print(f"nvml: {error}", file=sys.stderr)
        return _USER_ERROR


if __name__ == "__main__":
    sys.exit(main())
