"""`python -m fuzz`: damaged fixtures to every reader, for as long as you say."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from fuzz.campaign import Round, fuzz_format
from fuzz.seeds import formats

__all__ = ["main"]


def main() -> int:
    """1 where anything was found."""
    options = _arguments()
    names = options.format or formats()
    if options.trial is not None:
        return _again(names[0], options.trial, options.keep, asks=options.answers > 0)
    failures = 0
    for name in names:
        started = time.monotonic()
        result = fuzz_format(
            name,
            first=options.first,
            seconds=60 * options.minutes,
            trials=options.trials,
            answers_every=options.answers,
        )
        _print(name, result, time.monotonic() - started)
        failures += len(result.failures)
    return int(failures > 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for each format")
    parser.add_argument("--format", action="append", choices=formats(), help="only this one; may be given again")
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--trials", type=int, default=1 << 40, help="no more than so many of each format")
    parser.add_argument(
        "--answers", type=int, default=0, metavar="N", help="ask everything of every N-th trial's trace"
    )
    parser.add_argument("--trial", type=int, help="run this trial of the format again, here, and show how it ends")
    parser.add_argument("--keep", type=Path, help="with --trial: write its files into this folder")
    return parser.parse_args()


def _again(name: str, number: int, keep: Path | None, *, asks: bool) -> int:
    from fuzz.trial import compiled_readers, outcome_of, prepare  # noqa: PLC0415 (loads all readers)

    with tempfile.TemporaryDirectory() as scratch:
        folder = keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        paths, format_name = prepare(name, number, folder)
        with compiled_readers(number):
            outcome = outcome_of(paths, format_name, answers_seed=number if asks else None)
    print(outcome.kind, "" if format_name is None else f"(--format {format_name})")
    if outcome.failure:
        print(outcome.failure.cause, outcome.failure.detail, sep="\n")
    return int(outcome.failure is not None)


def _print(name: str, result: Round, seconds: float) -> None:
    ended = ", ".join(f"{count} {kind}" for kind, count in sorted(result.ended.items()))
    print(f"{name}: {ended}; {seconds:.0f} s, peak {result.peak_bytes / 1e6:.0f} MB", flush=True)
    for cause, one in sorted(result.failures.items(), key=lambda item: item[1].first):
        print(f"  trial {one.first}, {one.count} times: {cause}")
        print("    " + "\n    ".join(one.detail.rstrip().splitlines()[-6:]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
