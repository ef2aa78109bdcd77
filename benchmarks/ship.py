"""`python -m benchmarks.ship`: makes the bitcode that comes with the package of its sources.

Every fixture is converted with all that can be compiled compiled, and what was asked for is what is shipped. It is made
for a processor without extensions and without loops turned into vectors, so that any processor runs it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from benchmarks.experiment import REPO

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

__all__ = ["main"]

_ANY_PROCESSOR = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
_NO_VECTORS = {"NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0"}


def main() -> None:
    """Writes the files, and removes those that were of other sources."""
    os.environ |= _ANY_PROCESSOR | _NO_VECTORS  # numba reads them when it is imported
    made = _wanted_by(sorted(path for path in (REPO / "fixtures").rglob("*") if path.is_file()))
    from xsp_ingest.machine import shipped  # noqa: PLC0415 (as below)

    for old in shipped.FOLDER.glob("*.bc"):
        old.unlink()
    for (name, stamp), (symbol, code) in sorted(made.items()):
        shipped.write(name, stamp, symbol, code)
        print(f"{name}: {(shipped.FOLDER / shipped.file_name(name, stamp)).stat().st_size} bytes")


def _wanted_by(paths: Sequence[Path]) -> dict[tuple[str, str], tuple[str, bytes]]:
    """Name and stamp, symbol and bitcode of each function that is compiled when these are converted."""
    from xsp_ingest.machine import native as compiling  # noqa: PLC0415 (numba's settings come first)

    made: dict[tuple[str, str], tuple[str, bytes]] = {}

    def noted(name: str, function: Callable[[], Callable[..., int]], kinds: Sequence[str], stamp: str) -> object:
        if (name, stamp) not in made:
            made[name, stamp] = compiling.bitcode(function(), kinds)
        symbol, code = made[name, stamp]
        return compiling.Native(symbol, compiling.machine_code(code), kinds)

    compiling.native = noted  # type: ignore[assignment]
    compiling.is_kept = lambda *_: True
    _convert_compiled(paths)
    return made


def _convert_compiled(paths: Sequence[Path]) -> None:
    from xsp_ingest.convert import convert  # noqa: PLC0415 (after `native` was replaced)
    from xsp_ingest.formats.torch_profiler.compiled import scanner  # noqa: PLC0415
    from xsp_ingest.ingester import Options  # noqa: PLC0415
    from xsp_ingest.link import climb, link  # noqa: PLC0415
    from xsp_ingest.machine import sweep  # noqa: PLC0415
    from xsp_ingest.machine.sqlite import reader  # noqa: PLC0415
    from xsp_model import XspError  # noqa: PLC0415

    climb._FEW = 0  # noqa: SLF001
    sweep._MIN_ROWS = sweep._COMPILE_ROWS = scanner.MIN_BYTES = reader.MIN_BYTES = 0  # noqa: SLF001
    for link.SPILLED_SPANS in (1 << 60, 1):
        for path in paths:
            with suppress(XspError):
                convert([path], Options())


if __name__ == "__main__":
    main()
