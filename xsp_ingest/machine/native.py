"""Machine code of our functions, kept on disk and called without numba, which takes 0.3 s and 80 MB to start."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import tempfile
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xsp_ingest.machine import shipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from xsp_ingest.machine.functions import CompiledFunction

__all__ = ["Native", "bitcode", "can_compile", "is_at_hand", "is_kept", "machine_code", "native"]

_DIGEST_BYTES = 32
_RESOLVED = re.compile(r"llvm\.|(?:memcpy|memmove|memset|bcmp|memcmp)$")  # what LLVM or the C library brings along
_OF_COLUMN = 7  # numba hands a function seven numbers for an array


def native(function: CompiledFunction) -> Native:
    """The function as machine code: kept from an earlier process, else made of what was shipped, else compiled.

    RuntimeError where none of these can be had: nothing shipped is of these sources, or LLVM cannot read it, and numba
    is not installed.
    """
    kept = _Kept(function)
    code = kept.read()
    if code is None:
        code = _of_shipped(function) or _compile(function)
        kept.write(*code)
    return Native(*code, function.kinds)


def is_kept(function: CompiledFunction) -> bool:
    """Whether machine code of the present sources is kept: to load it takes 25 ms."""
    return _Kept(function).read() is not None


def is_at_hand(function: CompiledFunction) -> bool:
    """Whether that is kept, or made from what was shipped in a fraction of a second; to compile it takes seconds."""
    return shipped.is_shipped(function) or is_kept(function)


def can_compile() -> bool:
    """Whether numba is installed, which only those need who change what is compiled."""
    return find_spec("numba") is not None


class Native:
    """Loaded machine code. Releases the GIL while it runs."""

    def __init__(self, symbol: str, code: bytes, kinds: Sequence[str]) -> None:
        self._kinds = kinds
        llvm = _llvm()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(llvm))  # the code lives in it
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        numbers = sum(_OF_COLUMN if kind else 1 for kind in kinds)
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * numbers)
        self._call = prototype(self._engine.get_function_address(symbol))

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


def _of_shipped(function: CompiledFunction) -> tuple[str, bytes] | None:
    """The symbol and the object file from bitcode that came along; None where there is none that this LLVM reads."""
    if (code := shipped.read(function)) is not None:
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
        made_of = repr((shipped.stamp_of(function), version("llvmlite"), machine))
        self._file = f"{function.name}.{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.native"

    def read(self) -> tuple[str, bytes] | None:
        """Symbol and object file, where they are kept."""
        for folder in _folders():
            with suppress(OSError):
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
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                    file.write(hashlib.sha256(rest).digest() + rest)
                Path(file.name).chmod(0o644)
                Path(file.name).replace(folder / self._file)
                return


def _folders() -> Iterator[Path]:
    yield Path(__file__).parent / "__pycache__"
    with suppress(RuntimeError):  # nobody's home
        cache = os.environ.get("XDG_CACHE_HOME")
        yield (Path(cache) if cache else Path.home() / ".cache") / "xsp"
