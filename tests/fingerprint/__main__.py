"""Writes a digest of every answer of `xsp`, one `sha256  item` a line, and says how another record differs.

    python -m tests.fingerprint --out before.txt --keep before/       # on the old tree
    python -m tests.fingerprint --against before.txt --keep after/    # on the new one; exit 1 where anything differs

An item is INPUT/COMMAND/PART, and `--keep` leaves its text at this path, so that `diff` says what became of it. The
product is only asked through its command, so this outlives any move of its modules. Records can be compared where
Python, polars, pyarrow and matplotlib are the same and XSP_NSYS and XSP_NCU are set alike.

Left out: `xsp collect` (it runs workloads), what a batch cost, and, for large real files, single ranks of a folder and
damaged files, the modes but the default, the forms csv, md, parquet and table, and all but one export and figure.
All takes about ten minutes of a processor; `--command convert` or `--only NAME` less.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.fingerprint.processes import run_units
from tests.fingerprint.units import units

__all__ = ["main"]

_REPO = Path(__file__).resolve().parents[2]
_ENVIRONMENT = {
    "COLUMNS": "160",
    "LC_ALL": "C.UTF-8",
    "NO_COLOR": "1",
    "POLARS_MAX_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "TERM": "dumb",
    "TZ": "UTC",
    "XSP_CACHE_SIZE": "0",  # nothing is kept for a later command
}


def main() -> int:
    """Runs the units, writes and compares; 1 where something differs."""
    arguments = _parser().parse_args()
    os.environ.update(_ENVIRONMENT)
    items, steps = _record(arguments)
    text = "".join(f"{digest}  {item}\n" for item, digest in sorted(items.items()))
    if arguments.out is not None:
        arguments.out.write_text(text, encoding="utf-8")
    elif arguments.against is None:
        sys.stdout.write(text)
    if arguments.against is None:
        return 0
    differences = _differences(items, steps, arguments.against)
    sys.stdout.write("\n".join([*differences, f"{len(differences)} of {len(items)} items differ\n"]))
    return 1 if differences else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fingerprint", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the record; else to stdout")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the texts behind the digests here")
    parser.add_argument(
        "--against", type=Path, metavar="FILE", help="say what is new, gone or changed since this record"
    )
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="only inputs whose name holds this")
    parser.add_argument("--command", default="", metavar="NAME", help="only what this command of xsp answers")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at once (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="only the fixtures, and fewer modes and forms")
    return parser


def _record(arguments: argparse.Namespace) -> tuple[dict[str, str], list[str]]:
    """The digests by item, and the steps that ran."""
    inputs = {"fixtures": _REPO / "fixtures"}
    real = Path(os.environ.get("XSP_REAL", _REPO.parent / "shared" / "real")).resolve()
    if real.is_dir():
        inputs["real"] = real
    elif not arguments.quick:
        sys.stderr.write(f"no real traces in {real}: left out\n")
    pending = [
        unit
        for unit in units(inputs["fixtures"], inputs.get("real"), quick=arguments.quick)
        if arguments.only in unit.name
    ]
    keep = None if arguments.keep is None else arguments.keep.resolve()
    with tempfile.TemporaryDirectory(prefix="xsp-fingerprint-") as work:
        return run_units(
            pending, Path(work).resolve(), inputs, keep=keep, command=arguments.command, jobs=arguments.jobs
        )


def _differences(items: dict[str, str], steps: list[str], against: Path) -> list[str]:
    """A line for each item that is new, gone or changed; items of steps that did not run are not gone."""
    lines = against.read_text(encoding="utf-8").splitlines()
    before = {item: digest for digest, item in (line.split("  ", 1) for line in lines)}
    ran = tuple(steps)
    by_kind = {
        "new": items.keys() - before.keys(),
        "gone": {item for item in before.keys() - items.keys() if item.startswith(ran)},
        "changed": {item for item in before.keys() & items.keys() if before[item] != items[item]},
    }
    return [f"{kind:7}  {item}" for kind, names in by_kind.items() for item in sorted(names)]


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # read when Python starts
        os.execve(  # noqa: S606 (this very program)
            sys.executable,
            [sys.executable, "-m", "tests.fingerprint", *sys.argv[1:]],
            os.environ | _ENVIRONMENT,
        )
    sys.exit(main())
