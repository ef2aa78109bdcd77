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
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if not __name__.startswith("xsp_runners."):  # started by its path
    runpy.run_path(str(Path(__file__).with_name("by_path.py")))

from xsp_runners.answers import Parser
from xsp_runners.nvml_readers import NvmlReader
from xsp_runners.nvml_smi import SmiReader
from xsp_runners.run_folder import RunnerError
from xsp_runners.tool import program_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from xsp_runners.nvml_readers import Reader

__all__ = ["FORMAT", "NAME", "Until", "add_sampling_options", "beside", "main", "open_reader", "sample"]

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
