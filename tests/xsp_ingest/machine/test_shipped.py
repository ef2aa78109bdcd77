"""What is shipped compiled is of the sources beside it, and is made machine code of without numba."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from xsp_ingest.formats.torch_profiler.compiled import columns
from xsp_ingest.machine import native, shipped

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_model.arrays import Ints

_AGAIN = "sources have changed since `python -m benchmarks.ship` was run"
_SCAN = """
import sys
from pathlib import Path
from xsp_ingest.formats.torch_profiler.compiled import columns, scanner
from xsp_ingest.machine import native
native._folders = lambda: iter(())
assert columns.readiness() is columns.Ready.FINISH
scanner._FINISH_BYTES = 0
assert scanner.scan(Path(sys.argv[1])).events["name"].to_list() == ["a"]
assert not any(name.partition(".")[0] == "numba" for name in sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "bitcode")
    monkeypatch.setattr(native, "_folders", lambda: iter([tmp_path]))
    return tmp_path


def test_the_scanner_s_code_is_of_its_sources() -> None:
    assert shipped.is_shipped(*columns._name()), _AGAIN


def test_the_scanner_s_sources_are_all_those_that_its_machine_imports() -> None:
    import_module("xsp_ingest.formats.torch_profiler.compiled.machine_code")
    machine = "xsp_ingest.formats.torch_profiler.compiled.machine_code"
    script = f"import sys, {machine}; print(*(n for n, m in sys.modules.items() if n.startswith('xsp_') and m.__doc__))"
    listed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    packages = {name.rpartition(".")[0] for name in listed} | {machine.rpartition(".")[0]}
    modules = {name.removeprefix("xsp_ingest.").replace(".", "/") for name in listed if name not in packages}
    assert sorted(modules - {"xsp_ingest", "xsp_model"}) == sorted(columns.MACHINE_MODULES)


def test_it_runs_without_numba(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text('[{"name": "a"}]')
    subprocess.run([sys.executable, "-c", _SCAN, str(trace)], check=True)


def _twice(source: Ints, target: Ints) -> None:
    for i in range(len(source)):
        target[i] = 2 * source[i]


_KINDS = ("int64", "int64")


def test_what_is_shipped_is_not_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not native.is_at_hand("twice", "1")
    shipped.write("twice", "1", *native.bitcode(_twice, _KINDS))
    assert native.is_at_hand("twice", "1")
    assert not native.is_kept("twice", "1")
    monkeypatch.setattr(native, "_compile", lambda *_: pytest.fail("compiled"))
    native.native("twice", lambda: _twice, _KINDS, "1")
    assert native.is_kept("twice", "1")
    assert folder.is_dir()


@pytest.mark.parametrize("damage", [b"", b"no zlib", b"x\x9c"])
@pytest.mark.usefixtures("folder")
def test_what_is_shipped_damaged_is_compiled(damage: bytes) -> None:
    shipped.write("twice", "1", *native.bitcode(_twice, _KINDS))
    (shipped.FOLDER / shipped.file_name("twice", "1")).write_bytes(damage)
    native.native("twice", lambda: _twice, _KINDS, "1")


@pytest.mark.usefixtures("folder")
def test_bitcode_of_another_llvm_is_compiled() -> None:
    shipped.write("twice", "1", "twice", b"BC\xc0\xde nothing that this LLVM knows")
    native.native("twice", lambda: _twice, _KINDS, "1")
