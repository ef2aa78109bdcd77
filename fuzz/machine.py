"""`python -m fuzz.machine --seconds 600`: the page reader's machine code alone, on damaged files, in guarded memory.

Thousands of files a minute, each read as whole numbers, as any numbers and as texts. The answer must be SQLite's or
none. The exit code is 1 where a worker died or an answer differed; `--trial N` does one again, in this process.
"""

from __future__ import annotations

import argparse
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from fuzz import sqlite_pages
from fuzz.guarded import guarded_memory
from fuzz.trial import compiled_readers
from xsp_ingest.files.sqlite import BYTES, INTEGER, NUMBER, read_pages, select_list
from xsp_ingest.machine.sqlite import CannotRead
from xsp_model import XspError

if TYPE_CHECKING:
    from xsp_ingest.files.sqlite import Take

__all__ = ["main"]

_BATCH = 500


def main() -> int:
    """Trials in processes of their own until the time is over; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.machine", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--trial", type=int)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.trial is not None:
        return _run(chosen.trial, 1)
    if chosen.count is not None:
        return _run(chosen.first, chosen.count)
    return _campaign(chosen.first, chosen.seconds)


def _campaign(first: int, seconds: float) -> int:
    until = time.monotonic() + seconds
    ended: dict[str, int] = {}
    failed = False
    while time.monotonic() < until:
        command = [sys.executable, "-m", "fuzz.machine", "--first", str(first), "--count", str(_BATCH)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = done.stdout.split()
        for line in lines:
            ended[line] = ended.get(line, 0) + 1
        if done.returncode:
            failed = True
            print(f"trial {first + len(lines)} ended with {done.returncode}: {done.stderr[-1500:]}")
        first += max(len(lines), 1) if done.returncode == 0 else len(lines) + 1
    print(f"{sum(ended.values())} files, next is {first}: {ended}")
    return int(failed)


def _run(first: int, count: int) -> int:
    with tempfile.TemporaryDirectory(prefix="xsp-machine-") as folder, compiled_readers(1), guarded_memory():
        for number in range(first, first + count):
            path = Path(folder) / "t.db"
            takes = _prepare(path, Random(f"pages/{number}"))
            sys.stdout.write(_outcome(path, takes) + "\n")
            sys.stdout.flush()
    return 0


def _prepare(path: Path, random: Random) -> dict[str, Take]:
    """A damaged file with a table `t`, and what is read of it."""
    path.unlink(missing_ok=True)
    columns = random.choice([3, 3, 9, 110])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {random.choice([512, 512, 1024, 4096, 65536])}")
        connection.execute(f"CREATE TABLE t ({', '.join(f'c{n}' for n in range(columns))})")
        kinds = [random.randrange(6) for _ in range(columns)]
        gap, length = random.choice([1, 1, 50]), random.choice([0, 5, 60, 400, 3000])
        rows = [[n * gap, *(_value(kind, length, random) for kind in kinds)] for n in range(1, 2000 // columns)]
        names = ", ".join(["rowid", *(f"c{n}" for n in range(columns))])
        connection.executemany(f"INSERT INTO t ({names}) VALUES ({', '.join('?' * (columns + 1))})", rows)
        connection.commit()
    content = path.read_bytes()
    path.write_bytes(sqlite_pages.damage(content, random) or content)
    some = random.sample(range(columns), random.choice([1, min(columns, 3), columns]))
    mix = random.choice([[INTEGER], [INTEGER], [BYTES], [NUMBER, INTEGER, BYTES]])
    return {f"c{n}": random.choice(mix) for n in sorted(some)}


def _value(kind: int, length: int, random: Random) -> object:
    if kind == 0:
        return None
    if kind == 1:
        return random.choice([0, 1])
    if kind == 2:
        return "x" * random.choice([length, length, length // 2])
    if kind == 3:
        return random.choice([None, 0.5, b"\xff" * 9, "text", 7])
    return random.randrange(-(1 << random.choice([7, 31, 62])), 1 << 40)


def _outcome(path: Path, takes: dict[str, Take]) -> str:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        try:
            ours = read_pages(path, connection, "t", takes, None).rows()
        except CannotRead:
            return "left"
        except XspError:
            return "refused"
        except (sqlite3.Error, UnicodeDecodeError):
            return "damaged"
        theirs = connection.execute(f'SELECT {select_list(takes)} FROM "t" ORDER BY rowid').fetchall()
    if repr(ours) != repr(theirs):
        message = f"another answer than SQLite's: {len(ours)} rows for {len(theirs)}"
        raise AssertionError(message)
    return "read"


if __name__ == "__main__":
    sys.exit(main())
