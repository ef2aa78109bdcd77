"""What samplers have in common: a file of samples, one beside code of one's own, and one while a program runs.

A sampler is a script that takes `add_sampling_options`; its file is JSON lines: a header, samples, and an end.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from xsp_runners.run_folder import RunnerError
from xsp_runners.tools.programs import Parser, program_of

__all__ = ["beside", "sample_while", "sampling_options", "without_nulls", "write_samples"]

_READY = "sampling"
_END_SECONDS = 10


def without_nulls(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of them."""
    return {name: value for name, value in facts.items() if value is not None}


def write_samples(
    path: Path,
    header: Mapping[str, Any],
    moments: Iterable[Sequence[Mapping[str, Any]]],
    *,
    stop: Callable[[], bool],
    ready: Callable[[], None],
) -> int:
    """Writes the samples of moment after moment until `stop` says so; how many.

    Each line stands whole in the file as soon as it is known, so that a sampler that is killed leaves what it had.
    RunnerError where the file cannot be written.
    """
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", buffering=1) as file:
            _put(file, header)
            ready()
            for samples in moments:
                for sample in samples:
                    _put(file, sample)
                count += len(samples)
                if stop():
                    break
            _put(file, {"end": True, "samples": count})
    except OSError as error:
        raise RunnerError(f"the samples cannot be written to {path}: {error.strerror}") from error
    return count


def _put(file: Any, line: Mapping[str, Any]) -> None:
    file.write(json.dumps(line, separators=(",", ":")) + "\n")


@contextmanager
def beside(path: str | Path, script: Path, *, hertz: float) -> Iterator[None]:
    """Has the sampler write the file while open, in a process of its own; RunnerError where nothing can be sampled."""
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

    def begin(self, target: list[str] | None) -> None:
        """Tells who waits at the pipe that samples are being taken, or starts the program."""
        if self._piped:
            print(_READY, flush=True)
        if target:
            try:
                self.program = subprocess.Popen(target)  # noqa: S603 (the user's own command, no shell)
            except OSError as error:
                raise RunnerError(f"the program {target[0]!r} cannot be started: {error.strerror}") from error

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


def sampling_options(name: str, description: str, *, hertz: float, file: str) -> argparse.ArgumentParser:
    """The options of every sampler: how often, how long, into which file, beside which program."""
    epilog = "Exit status: that of the program where there is one, else 0; 2 where nothing could be sampled."
    parser = Parser(name, description=description, epilog=epilog)
    parser.add_argument("--hertz", type=float, default=hertz, help="samples a second; default %(default)g")
    parser.add_argument("--seconds", type=float, help="for how long, where no program says so")
    parser.add_argument("-o", "--out", type=Path, required=True, help=f"the file, as {file}")
    parser.add_argument("--piped", action="store_true", help=argparse.SUPPRESS)  # until standard input ends
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ARGS", help="what to run meanwhile")
    return parser


def sample_while(
    name: str,
    args: argparse.Namespace,
    sample: Callable[[Callable[[], bool], Callable[[], None]], tuple[int, str]],
    *,
    max_hz: float,
) -> int:
    """Samples as the options say, while their program runs where there is one; its exit status, or 0.

    `sample` is called with when to stop and what to call once it samples, and gives the number of samples and of what.
    """
    if not 0 < args.hertz <= max_hz:
        raise RunnerError(f"--hertz must be between 0 and {max_hz:g}")
    target = program_of(args.program) if args.program else None
    until = Until(args)
    try:
        count, what = sample(until, lambda: until.begin(target))
    except RunnerError as error:
        if until.program is None:
            raise
        print(f"{name}: {error}", file=sys.stderr)  # the program is worth more than its samples
    else:
        if not args.piped:
            print(f"{args.out}: {count} samples{what}", flush=True)
    return until.program.wait() if until.program else 0
