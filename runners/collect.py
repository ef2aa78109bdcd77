"""Collects a leveled run set: each level of a workload in a fresh process, one after the other.

    python -m runners.collect --workload convnet --levels M,ML,MLG --batch 8 --steps 10 --out runs/convnet

leaves runs/convnet/m, ml and mlg, each with its run.json and raw files, for `xsp merge runs/convnet`.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run as a file: Python looks beside it then, not where the package is
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from runners.level_process import LEVELS, add_options, checked, flags_of, options_of
from runners.run_folder import RUN, RunnerError, clear, error_of, is_complete, put_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

__all__ = ["main"]

_LEVEL_PROCESSES = {"torch": "torch_levels.py", "tensorflow": "tf_profiler.py", "jax": "jax_profiler.py"}
_FAILED = 1
_USER_ERROR = 2
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_ENDED = 143  # 128 + SIGTERM


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "collect",
        description="Runs a workload at several levels, each in a fresh process, and leaves a run set for xsp merge.",
        epilog="Exit status: 0 all runs are there, 1 some failed (see their error.json), 2 wrong arguments.",
    )
    parser.add_argument("--levels", default="M,ML,MLG", help=f"of {', '.join(LEVELS)}, in the order to run them")
    parser.add_argument("--framework", choices=tuple(_LEVEL_PROCESSES), default="torch")
    add_options(parser)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the run set")
    parser.add_argument("--resume", action="store_true", help="skip runs that are there, made with the same options")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and run nothing")
    return parser


def _levels(text: str) -> list[str]:
    known = {name.lower(): name for name in LEVELS}
    wanted = [part.strip().lower() for part in text.split(",") if part.strip()]
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise RunnerError(f"{', '.join(unknown) or 'nothing'} is no level: choose of {', '.join(LEVELS)}")
    return [known[name] for name in dict.fromkeys(wanted)]


def _command(args: argparse.Namespace, level: str) -> list[str]:
    script = Path(__file__).resolve().parent / _LEVEL_PROCESSES[args.framework]
    folder = str(_folder(args, level))
    return [sys.executable, str(script), "--level", level, "--out", folder, *flags_of(options_of(args))]


def _folder(args: argparse.Namespace, level: str) -> Path:
    out: Path = args.out
    return out / level.lower()


def _run(command: Sequence[str]) -> int:
    """Runs the process to its end; an error on our side, a signal among them, ends it too."""
    return subprocess.run(command, check=False).returncode  # noqa: S603 (our own program, no shell)


def _collected(args: argparse.Namespace, level: str, start: Callable[[Sequence[str]], int]) -> bool:
    """Whether the run is there in the end; one that failed is on record in its folder."""
    folder = _folder(args, level)
    if args.resume and is_complete(folder, level, options_of(args)):
        print(f"{level}: {folder / RUN} is there already", flush=True)
        return True
    clear(folder)
    status = start(_command(args, level))
    if status == 0 and is_complete(folder, level, options_of(args)):
        print(f"{level}: {folder / RUN}", flush=True)
        return True
    sentence = error_of(folder)
    if sentence is None:
        sentence = f"the run was ended by signal {-status}" if status < 0 else f"the run ended with status {status}"
        put_error(folder, level, sentence, batch_size=args.batch_size, options=options_of(args))
    print(f"collect: {level} failed: {sentence}", file=sys.stderr, flush=True)
    return False


def _collect(args: argparse.Namespace, start: Callable[[Sequence[str]], int]) -> int:
    levels = _levels(args.levels)
    checked(args)
    if args.dry_run:
        for level in levels:
            print(shlex.join(_command(args, level)))
        return 0
    done = [_collected(args, level, start) for level in levels]
    return 0 if all(done) else _FAILED


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(_ENDED)


def main(arguments: Sequence[str] | None = None, *, start: Callable[[Sequence[str]], int] = _run) -> int:
    """Runs the command line; 0 when every run is there, 1 when some failed, 2 after a sentence on stderr.

    `start` runs the command of one level and returns its exit status.
    """
    args = _parser().parse_args(arguments)
    try:
        return _collect(args, start)
    except RunnerError as error:
        print(f"collect: {error}", file=sys.stderr)
        return _USER_ERROR
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
