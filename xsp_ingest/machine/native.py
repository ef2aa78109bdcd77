"""Machine code of our functions, called without numba: as it comes with the package, or made by LLVM."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import re
import sys
import tempfile
import zlib
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_model.output_files import is_own, make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from xsp_ingest.machine.functions import CompiledFunction

__all__ = [
    "FOLDER",
    "LIBRARY",
    "MANIFEST",
    "Native",
    "bitcode",
    "can_compile",
    "file_of",
    "is_at_hand",
    "is_for_this_system",
    "is_ready",
    "is_shipped",
    "library_address",
    "library_digest",
    "machine_code",
    "native",
    "read",
    "stamp_of",
    "symbol_of",
]

# Our compiled functions as they come with the package: LLVM bitcode, and a library linked of it.
#
# The library is for Linux on x86-64, whose loader takes it without LLVM. It is made for any such processor: on what
# these functions do, code for a newer one is no faster (ADR 0019). It calls nothing, not even the C library. Elsewhere
# LLVM makes machine code of the bitcode in a third of a second (`native`); numba takes more than ten to compile the
# sources. `python -m xsp_ingest.machine.build` makes the files anew from the sources, and MANIFEST.json, which says of
# which sources each is.

FOLDER = Path(__file__).parent / "bitcode"
MANIFEST = "MANIFEST.json"
LIBRARY = "linux_x86_64.so"


def file_of(function: CompiledFunction) -> Path:
    """Where the function's bitcode is: compressed, its symbol in the first line."""
    return FOLDER / f"{function.name}.bc"


def is_shipped(function: CompiledFunction) -> bool:
    """Whether code of the function's present sources came along."""
    return _entry(FOLDER, function.name).get("stamp") == stamp_of(function) and file_of(function).is_file()


def read(function: CompiledFunction) -> tuple[str, bytes] | None:
    """The symbol and the bitcode, where they came along undamaged and are of the present sources."""
    if not is_shipped(function):
        return None
    with suppress(OSError, zlib.error, ValueError):
        content = file_of(function).read_bytes()
        if zlib.crc32(content) == _entry(FOLDER, function.name).get("crc32"):
            symbol, _, code = zlib.decompress(content).partition(b"\n")
            return symbol.decode(), code
    return None


def symbol_of(function: CompiledFunction) -> str:
    """What the function is called within what is shipped."""
    return str(_entry(FOLDER, function.name).get("symbol"))


def library_digest(folder: Path) -> str | None:
    """SHA-256 of the library that the manifest names."""
    library = _manifest(folder).get("library")
    return library["sha256"] if isinstance(library, dict) else None


def stamp_of(function: CompiledFunction) -> str:
    """The function's stamp; as the manifest has it where no byte of its sources has changed since."""
    entry = _entry(FOLDER, function.name)
    if entry.get("texts") == function.texts_digest():
        return str(entry["stamp"])
    return function.stamp()


@cache
def _entry(folder: Path, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = _manifest(folder).get("functions", {}).get(name, {})
    return entry


def _manifest(folder: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
        return manifest
    return {}


def library_address(function: CompiledFunction) -> int | None:
    """Where the function is, loaded; None where there is no library for this system or it is not of these sources."""
    if not is_for_this_system() or not is_shipped(function):
        return None
    library = _loaded_library(FOLDER)
    try:
        return ctypes.cast(library[symbol_of(function)], ctypes.c_void_p).value if library else None
    except AttributeError:
        return None


def is_for_this_system() -> bool:
    """Whether the library that comes along is for this system and processor."""
    return sys.platform == "linux" and platform.machine() == "x86_64" and sys.maxsize > 1 << 32


@cache
def _loaded_library(folder: Path) -> ctypes.CDLL | None:
    """None where it is not the file that the manifest names, or may not be loaded from there."""
    with suppress(OSError):
        content = (folder / LIBRARY).read_bytes()
        if hashlib.sha256(content).hexdigest() == library_digest(folder):
            return ctypes.CDLL(str(folder / LIBRARY))
    return None


# Machine code called without numba, which takes 0.3 s and 80 MB to start. It is taken of the library that comes along
# (0.1 ms); where that is for another system or of other sources, made by llvmlite of bitcode and kept on disk.

_BYTE_CODE = "__pycache__"
_DIGEST_BYTES = 32
_RESOLVED = re.compile(r"llvm\.|(?:memcpy|memmove|memset|bcmp|memcmp)$")  # what LLVM or the C library brings along
_OF_COLUMN = 7  # numba hands a function seven numbers for an array


def native(function: CompiledFunction) -> Native:
    """The function as machine code: shipped, kept from an earlier process, made of shipped bitcode, or compiled.

    RuntimeError where none of these can be had: nothing shipped is of these sources and for this system, and what would
    make it (llvmlite, numba) is not installed or cannot.
    """
    if (address := library_address(function)) is not None:
        return Native(address, function.kinds)
    if not _has_llvm():
        message = f"{function.name} is not shipped for this system, and llvmlite is not installed"
        raise RuntimeError(message)
    kept = _Kept(function)
    code = kept.read()
    if code is None:
        code = _of_shipped(function) or _compile(function)
        kept.write(*code)
    engine = _engine(code[1])
    return Native(engine.get_function_address(code[0]), function.kinds, owner=engine)


def is_ready(function: CompiledFunction) -> bool:
    """Whether machine code of the present sources is there: to load it takes 25 ms at most."""
    return library_address(function) is not None or (_has_llvm() and _Kept(function).read() is not None)


def is_at_hand(function: CompiledFunction) -> bool:
    """Whether that is there, or made of shipped bitcode in a fraction of a second; to compile it takes seconds."""
    return (_has_llvm() and is_shipped(function)) or is_ready(function)


def can_compile() -> bool:
    """Whether numba is installed, which only those need who change what is compiled."""
    return find_spec("numba") is not None


def _has_llvm() -> bool:
    return find_spec("llvmlite") is not None


class Native:
    """Loaded machine code at an address, which lives as long as its owner. Releases the GIL while it runs."""

    def __init__(self, address: int, kinds: Sequence[str], *, owner: object = None) -> None:
        self._owner = owner
        numbers = sum(_OF_COLUMN if kind else 1 for kind in kinds)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * numbers)
        self._call = prototype(address)

    def __call__(self, *values: NDArray[Any] | int) -> int:
        """The function's result; 0 where it returns nothing. Columns must be contiguous."""
        result, nothing = ctypes.c_int64(0), ctypes.c_void_p()
        self._call(ctypes.addressof(result), ctypes.addressof(nothing), *_flat(values))
        return result.value


def _flat(values: Sequence[NDArray[Any] | int]) -> Iterator[int]:
    for value in values:
        if isinstance(value, np.ndarray):
            count = len(value)
            # who owns it, twice; items and their size; the address; length and stride
            yield from (0, 0, count, value.itemsize, value.ctypes.data, count, value.itemsize)
        else:
            yield value


def _engine(code: bytes) -> Any:  # noqa: ANN401 (it has no types)
    """What holds the code of an object file."""
    llvm = _llvm()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(llvm))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def _of_shipped(function: CompiledFunction) -> tuple[str, bytes] | None:
    """The symbol and the object file from bitcode that came along; None where there is none that this LLVM reads."""
    if (code := read(function)) is not None:
        with suppress(RuntimeError):
            return code[0], machine_code(code[1])
    return None


def _compile(function: CompiledFunction) -> tuple[str, bytes]:
    """The symbol and the object file."""
    if not can_compile():
        message = f"{function.name} has changed since `python -m xsp_ingest.machine.build`, which needs numba"
        raise RuntimeError(message)
    symbol, code = bitcode(function.load(), function.kinds)
    return symbol, machine_code(code)


def bitcode(function: Callable[..., Any], kinds: Sequence[str]) -> tuple[str, bytes]:
    """The function's symbol and what numba makes of it; ValueError where it needs numba to run."""
    from numba import njit, types  # noqa: PLC0415 (only who compiles needs it)

    signature = tuple(types.Array(getattr(types, kind), 1, "C") if kind else types.int64 for kind in kinds)
    bare = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "nogil": True, "error_model": "numpy"}
    bare["_nrt"] = False  # whoever calls holds the columns: no counting of references, which needs numba
    dispatcher = njit(signature, **bare)(function)
    (compiled,) = dispatcher.overloads.values()
    module = _llvm().parse_assembly(compiled.library.get_llvm_str())
    open_names = [f.name for f in module.functions if f.is_declaration and not _RESOLVED.match(f.name)]
    if open_names:
        message = f"{function.__qualname__} calls {open_names[0]}, which is nowhere without numba"
        raise ValueError(message)
    symbol = compiled.fndesc.llvm_func_name
    for each in (*module.functions, *module.global_variables):
        if each.name != symbol and not each.is_declaration:
            each.linkage = "internal"
    return symbol, module.as_bitcode()


def machine_code(code: bytes) -> bytes:
    """The object file of bitcode, for the processor at hand; RuntimeError where LLVM cannot read it."""
    llvm = _llvm()
    module, machine = llvm.parse_bitcode(code), _machine(llvm)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    return machine.emit_object(module)  # type: ignore[no-any-return]


def _llvm() -> Any:  # noqa: ANN401 (it has no types)
    import llvmlite.binding as llvm  # noqa: PLC0415 (only where something is compiled)

    with suppress(RuntimeError):  # newer ones start by themselves
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    return llvm


def _machine(llvm: Any) -> Any:  # noqa: ANN401
    features = llvm.get_host_cpu_features().flatten()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True)


class _Kept:
    """Where a function's code is kept: beside our byte code, or where that is not ours to write, in the user's cache.

    A file is the digest of what follows, the symbol, a line end, the object file. LLVM trusts what it is given, so a
    file that is damaged must not reach it.
    """

    def __init__(self, function: CompiledFunction) -> None:
        llvm = _llvm()
        machine = (llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
        made_of = repr((stamp_of(function), version("llvmlite"), machine))
        self._file = f"{function.name}.{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.native"

    def read(self) -> tuple[str, bytes] | None:
        """Symbol and object file, where they are kept."""
        for folder in _folders():
            with suppress(OSError):
                if not _is_trusted(folder / self._file):
                    continue
                content = (folder / self._file).read_bytes()
                digest, rest = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
                if hashlib.sha256(rest).digest() == digest:
                    symbol, _, code = rest.partition(b"\n")
                    return symbol.decode(), code
        return None

    def write(self, symbol: str, code: bytes) -> None:
        """Keeps them in the first folder that can be written to, if any; readers never meet half a file."""
        rest = symbol.encode() + b"\n" + code
        for folder in _folders():
            with suppress(OSError):
                if folder.name == _BYTE_CODE:
                    folder.mkdir(exist_ok=True)
                elif not make_private(folder):
                    continue
                with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                    file.write(hashlib.sha256(rest).digest() + rest)
                Path(file.name).chmod(0o644)
                Path(file.name).replace(folder / self._file)
                return


def _is_trusted(file: Path) -> bool:
    """Whether nobody else can have written it: it is this user's, or lies where our own byte code does."""
    return file.parent.name == _BYTE_CODE or (is_own(file.parent) and is_own(file))


def _folders() -> Iterator[Path]:
    yield Path(__file__).parent / _BYTE_CODE
    with suppress(RuntimeError):  # nobody's home
        cache = os.environ.get("XDG_CACHE_HOME")
        yield (Path(cache) if cache else Path.home() / ".cache") / "xsp"
