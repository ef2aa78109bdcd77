"""`python -m xsp_ingest.machine.build`: makes the machine code that comes with the package; needs numba and `ld`.

The bitcode is made for a processor without extensions and without loops turned into vectors, so that any processor
runs it, and each function in a process of its own, so that the same sources give the same bytes; the library is linked
of it. A bill of materials in CycloneDX says what each file is made of, by what, and how to make it again.
`--check` writes nothing and tells what of the shipped code is not of the sources: by its bytes where numba, llvmlite
and the linker are of the versions that made it, else by its stamps.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zlib
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xsp_ingest.compiled_functions import FUNCTIONS
from xsp_ingest.machine import native
from xsp_ingest.machine.functions import source_file
from xsp_ingest.machine.native import FOLDER, LIBRARY, MANIFEST, file_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from xsp_ingest.machine.functions import CompiledFunction

__all__ = ["BILL", "bill", "main"]

BILL = "sbom.cdx.json"
_REBUILD = "python -m xsp_ingest.machine.build"
_ANY_PROCESSOR = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
_NO_VECTORS = {"NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0"}
_COMPRESSION = 9
_TRIPLE = "x86_64-unknown-linux-gnu"
_LINK = ("-m", "elf_x86_64", "-shared", "-z", "defs", "-z", "noexecstack", "-z", "relro", "-z", "now")
_SAME_BYTES = ("--build-id=none", "--hash-style=gnu", "--strip-all")


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the files, or with `--check` says what of them is stale; 1 where something is."""
    parser = argparse.ArgumentParser("xsp_ingest.machine.build", description="Makes the bitcode of compiled functions.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not of its sources")
    parser.add_argument("--one", choices=[each.name for each in FUNCTIONS], help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        sys.stdout.buffer.write(_bitcode(next(each for each in FUNCTIONS if each.name == options.one)))
        return 0
    return _check() if options.check else _write()


def _write() -> int:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    entries = {}
    for function in FUNCTIONS:
        content = _make_apart(function)
        file_of(function).write_bytes(content)
        entries[function.name] = _entry(function, content)
        print(f"{function.name}: {len(content)} bytes")  # noqa: T201 (a script that says what it does)
    content = _link()
    (FOLDER / LIBRARY).write_bytes(content)
    print(f"{LIBRARY}: {len(content)} bytes")  # noqa: T201
    linked = {"made_by": _linkers(), "sha256": hashlib.sha256(content).hexdigest()}
    manifest = {"made_by": _makers(), "library": linked, "functions": entries}
    (FOLDER / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    (FOLDER / BILL).write_text(bill(manifest), encoding="utf-8")
    return 0


def _check() -> int:
    manifest = json.loads((FOLDER / MANIFEST).read_bytes())
    listed = {MANIFEST, LIBRARY, BILL, *(file_of(each).name for each in FUNCTIONS)}
    stale = [f"{path.name}: of no function" for path in FOLDER.iterdir() if path.name not in listed]
    same_makers = manifest["made_by"] == _makers()
    reasons = {
        each.name: _staleness(each, manifest["functions"].get(each.name), by_bytes=same_makers) for each in FUNCTIONS
    }
    stale += [f"{name}: {reason}" for name, reason in reasons.items() if reason]
    if reason := _library_staleness(manifest["library"]):
        stale.append(f"{LIBRARY}: {reason}")
    if not stale and (FOLDER / BILL).read_text(encoding="utf-8") != bill(manifest):
        stale.append(f"{BILL}: not of these files")
    how = "bytes" if same_makers else f"stamps, as {manifest['made_by']} made it"
    print("\n".join(stale) or f"{len(FUNCTIONS)} compiled functions are of their sources (by {how})")  # noqa: T201
    return 1 if stale else 0


def _staleness(function: CompiledFunction, entry: dict[str, Any] | None, *, by_bytes: bool) -> str | None:
    """Why the function's file is not of its sources; None where it is."""
    if entry is None or not file_of(function).is_file():
        return "not shipped"
    content = file_of(function).read_bytes()
    if entry["crc32"] != zlib.crc32(content):
        return "not the file that the manifest names"
    if entry["stamp"] != function.stamp():
        return "its sources have changed"
    symbol, _, code = zlib.decompress(content).partition(b"\n")
    try:
        native.machine_code(code)
    except RuntimeError:
        return "LLVM cannot read it"
    if symbol != entry["symbol"].encode() or (by_bytes and content != _make_apart(function)):
        return "made again, it is another"
    return None


def _library_staleness(entry: dict[str, Any]) -> str | None:
    """Why the library is not of the bitcode; None where it is, or where nothing here could make it the same."""
    path = FOLDER / LIBRARY
    if not path.is_file():
        return "not shipped"
    content = path.read_bytes()
    if entry["sha256"] != hashlib.sha256(content).hexdigest():
        return "not the file that the manifest names"
    by_bytes = entry["made_by"] == _linkers()
    return "linked again, it is another" if by_bytes and content != _link() else None


def _link() -> bytes:
    files = [file_of(each).read_bytes() for each in FUNCTIONS]
    return _link_library(zlib.decompress(each).partition(b"\n")[2] for each in files)


def _linkers() -> str:
    return f"llvmlite {version('llvmlite')}, {_linker()}"


def _make_apart(function: CompiledFunction) -> bytes:
    """The file's content, made in a process of its own: names within code count up as functions are compiled."""
    command = [sys.executable, "-m", "xsp_ingest.machine.build", "--one", function.name]
    environment = {**os.environ, **_ANY_PROCESSOR, **_NO_VECTORS, "NUMBA_CACHE_DIR": os.devnull}
    return subprocess.run(command, env=environment, check=True, capture_output=True).stdout  # noqa: S603 (ours)


def _bitcode(function: CompiledFunction) -> bytes:
    symbol, code = native.bitcode(function.load(), function.kinds)
    return zlib.compress(symbol.encode() + b"\n" + code, _COMPRESSION)


def _entry(function: CompiledFunction, content: bytes) -> dict[str, Any]:
    symbol, _, _ = zlib.decompress(content).partition(b"\n")
    return {
        "symbol": symbol.decode(),
        "sources": list(function.sources),
        "stamp": function.stamp(),
        "texts": function.texts_digest(),
        "crc32": zlib.crc32(content),
    }


def _makers() -> str:
    return ", ".join(f"{name} {version(name)}" for name in ("numba", "llvmlite"))


def _linker() -> str | None:
    """The version of the linker, which the library's bytes depend on; None where there is none."""
    with suppress(OSError, subprocess.CalledProcessError):
        answer = subprocess.run(["ld", "--version"], capture_output=True, text=True, check=True).stdout  # noqa: S607
        return answer.splitlines()[0]
    return None


def _link_library(bitcode: Iterable[bytes]) -> bytes:
    """The library of these modules, the same bytes for the same LLVM and linker; OSError where there is no linker."""
    with tempfile.TemporaryDirectory() as folder:
        objects: list[Path] = []
        for code in bitcode:
            objects.append(Path(folder, f"{len(objects)}.o"))
            objects[-1].write_bytes(_object_file(code))
        made = Path(folder, LIBRARY)
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


def bill(manifest: Mapping[str, Any]) -> str:
    """The bill of the files that the manifest lists, which must be there; the same for the same files."""
    components = [*_components(manifest["functions"])]
    if made := manifest.get("library"):
        components.append(
            _component(LIBRARY, {"made-by": made["made_by"], "made-of": ", ".join(manifest["functions"])})
        )
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "name": "xsp machine code",
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "properties": _properties(
                {"made-by": manifest["made_by"], "rebuild": _REBUILD, "verify": f"{_REBUILD} --check"}
            ),
        },
        "components": components,
    }
    return json.dumps(document, indent=2) + "\n"


def _components(functions: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for function, entry in functions.items():
        files = {f"source {module}": source_file(module) for module in entry["sources"]}
        sources = {name: f"sha256:{_digest(file)}" for name, file in files.items()}
        yield _component(f"{function}.bc", sources)


def _component(name: str, facts: Mapping[str, str]) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": _digest(FOLDER / name)}]
    return {"type": "file", "name": name, "hashes": hashes, "properties": _properties(facts)}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _properties(facts: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": f"xsp:{name}", "value": value} for name, value in facts.items()]


if __name__ == "__main__":
    sys.exit(main())
