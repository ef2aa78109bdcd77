"""The library of compiled functions: loaded where it is for the system and of the sources, and nowhere else."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from xsp_ingest.compiled_functions import FUNCTIONS
from xsp_ingest.link.spans import CLIMB, _climb
from xsp_ingest.machine import native
from xsp_ingest.machine import native as shipped
from xsp_ingest.machine.build import BILL
from xsp_ingest.machine.native import LIBRARY, is_for_this_system, library_address

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.machine.functions import CompiledFunction

on_this_system = pytest.mark.skipif(not is_for_this_system(), reason="the library is for Linux on x86-64")
_WITHOUT_LLVM = """
import sys
sys.modules["llvmlite"] = sys.modules["numba"] = None
from xsp_ingest.machine import native
from xsp_ingest.compiled_functions import FUNCTIONS
from xsp_ingest.formats.torch_profiler.compiled import columns
assert columns.readiness() is columns.Ready.LOAD
for function in FUNCTIONS:
    native.native(function)
"""


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(shipped.FOLDER, tmp_path / "bitcode")
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "bitcode")
    return tmp_path / "bitcode"


@on_this_system
@pytest.mark.slow  # a process of its own
def test_every_function_is_had_without_llvm() -> None:
    subprocess.run([sys.executable, "-c", _WITHOUT_LLVM], check=True)


@on_this_system
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_every_function_is_in_it(function: CompiledFunction) -> None:
    assert library_address(function) is not None
    assert native.is_ready(function)


@on_this_system
def test_it_does_what_the_sources_say() -> None:
    parent, mask = np.array([-1, 0, 1, 1], dtype=np.int32), np.array([1, 0, 1, 0], dtype=np.uint8)
    nearest, cycle = np.full(4, -1, dtype=np.int32), np.full(1, -1, dtype=np.int32)
    address = library_address(CLIMB)
    assert address is not None
    native.Native(address, CLIMB.kinds)(parent, mask, 0, 0, 4, nearest, cycle)
    (plain, _) = _climb.run_plain((parent, mask, 0, 0, 4), (np.full(4, -1, dtype=np.int32), cycle))
    assert nearest.tolist() == plain.tolist() == [0, 0, 2, 0]


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "aarch64"), ("win32", "AMD64")])
def test_elsewhere_llvm_makes_the_code(system: str, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert library_address(CLIMB) is None
    assert native.is_at_hand(CLIMB)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert not native.is_at_hand(CLIMB)
    with pytest.raises(RuntimeError, match="llvmlite is not installed"):
        native.native(CLIMB)


def test_a_library_that_the_manifest_does_not_name_is_not_loaded(copied: Path) -> None:
    (copied / LIBRARY).write_bytes((copied / LIBRARY).read_bytes() + b"\0")
    assert library_address(CLIMB) is None


def test_a_library_of_other_sources_is_not_used(copied: Path) -> None:
    manifest = json.loads((copied / shipped.MANIFEST).read_bytes())
    manifest["functions"]["climb"] |= {"stamp": "0", "texts": "0"}
    (copied / shipped.MANIFEST).write_text(json.dumps(manifest))
    assert library_address(CLIMB) is None


def test_the_bill_of_materials_names_every_file_with_its_digest_and_how_to_make_it_again() -> None:
    bill = json.loads((shipped.FOLDER / BILL).read_bytes())
    listed = {each["name"]: each["hashes"][0]["content"] for each in bill["components"]}
    files = [path for path in shipped.FOLDER.iterdir() if path.name not in {shipped.MANIFEST, BILL}]
    assert listed == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    facts = {each["name"]: each["value"] for each in bill["metadata"]["properties"]}
    assert facts["xsp:rebuild"] == "python -m xsp_ingest.machine.build"
