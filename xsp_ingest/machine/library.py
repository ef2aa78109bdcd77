"""Our compiled functions linked into one library for Linux on x86-64, which the system loads without LLVM.

It is made of the shipped bitcode for any such processor: on what these functions do, code for a newer one is no faster
(ADR 0019). It calls nothing, not even the C library. Elsewhere LLVM finishes the bitcode, see `native`.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from xsp_ingest.machine import shipped

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xsp_ingest.machine.functions import CompiledFunction

__all__ = ["FILE", "address", "is_for_this_system", "linked", "linker"]

FILE = "linux_x86_64.so"
_TRIPLE = "x86_64-unknown-linux-gnu"
_LINK = ("-m", "elf_x86_64", "-shared", "-z", "defs", "-z", "noexecstack", "-z", "relro", "-z", "now")
_SAME_BYTES = ("--build-id=none", "--hash-style=gnu", "--strip-all")


def address(function: CompiledFunction) -> int | None:
    """Where the function is, loaded; None where there is no library for this system or it is not of these sources."""
    if not is_for_this_system() or not shipped.is_shipped(function):
        return None
    library = _loaded(shipped.FOLDER)
    try:
        return ctypes.cast(library[shipped.symbol_of(function)], ctypes.c_void_p).value if library else None
    except AttributeError:
        return None


def is_for_this_system() -> bool:
    """Whether the library that comes along is for this system and processor."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 1 << 32


@cache
def _loaded(folder: Path) -> ctypes.CDLL | None:
    """None where it is not the file that the manifest names, or may not be loaded from there."""
    with suppress(OSError):
        content = (folder / FILE).read_bytes()
        if hashlib.sha256(content).hexdigest() == shipped.library_digest(folder):
            return ctypes.CDLL(str(folder / FILE))
    return None


def linker() -> str | None:
    """The version of the linker, which the library's bytes depend on; None where there is none."""
    with suppress(OSError, subprocess.CalledProcessError):
        answer = subprocess.run(["ld", "--version"], capture_output=True, text=True, check=True).stdout  # noqa: S607
        return answer.splitlines()[0]
    return None


def linked(bitcode: Iterable[bytes]) -> bytes:
    """The library of these modules, the same bytes for the same LLVM and linker; OSError where there is no linker."""
    with tempfile.TemporaryDirectory() as folder:
        objects: list[Path] = []
        for code in bitcode:
            objects.append(Path(folder, f"{len(objects)}.o"))
            objects[-1].write_bytes(_object_file(code))
        made = Path(folder, FILE)
        subprocess.run(["ld", *_LINK, *_SAME_BYTES, "-o", made, *objects], check=True, capture_output=True)  # noqa: S603, S607
        return made.read_bytes()


def _object_file(code: bytes) -> bytes:
    import llvmlite.binding as llvm  # noqa: PLC0415 (only who builds needs it)

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(_TRIPLE)
    machine = target.create_target_machine(cpu="x86-64", features="", opt=3, reloc="pic", codemodel="small")
    module = llvm.parse_bitcode(code)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    return machine.emit_object(module)  # type: ignore[no-any-return]
