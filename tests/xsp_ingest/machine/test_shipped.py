"""What is shipped compiled is of the sources beside it, and is made machine code of without numba."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import pytest

from tests.helpers.toy_function import toy
from xsp_ingest.compiled_functions import FUNCTIONS
from xsp_ingest.machine import build, functions, native
from xsp_ingest.machine import native as shipped
from xsp_ingest.machine.native import LIBRARY

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.machine.functions import CompiledFunction
    from xsp_model.columns.arrays import Ints

_AGAIN = "sources have changed since `python -m xsp_ingest.machine.build` was run"
_SCAN = """
import sys
from pathlib import Path
from xsp_ingest.formats.torch_profiler.compiled import columns, scanner
from xsp_ingest.machine import native
from xsp_model.limits import override_limits
native._folders = lambda: iter(())
native.is_for_this_system = lambda: False
assert columns.readiness() is columns.Ready.FINISH
with override_limits(compiled_finish_min_bytes=0):
    assert scanner.scan(Path(sys.argv[1])).events["name"].to_list() == ["a"]
assert not any(name.partition(".")[0] == "numba" for name in sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "bitcode")
    shipped._entry.cache_clear()
    monkeypatch.setattr(native, "_folders", lambda: iter([tmp_path]))
    return tmp_path


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_the_code_is_of_its_sources(function: CompiledFunction) -> None:
    entry = json.loads((shipped.FOLDER / shipped.MANIFEST).read_bytes())["functions"][function.name]
    assert entry["stamp"] == function.stamp(), _AGAIN
    assert shipped.read(function) is not None, _AGAIN


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_the_sources_are_all_that_the_function_s_module_takes_from_ours(function: CompiledFunction) -> None:
    """But for what is only typed with, and the linker's Python around its sweeps."""
    modules = {source: functions.source_file(source).read_text(encoding="utf-8") for source in function.sources}
    called = set()
    for text in modules.values():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("xsp_ingest."):
                parent = node.module or ""
                submodules = {f"{parent}.{each.name}" for each in node.names}
                called |= {each for each in submodules if functions.source_file(each).is_file()} or {parent}
    around = {"xsp_ingest.machine.functions", "xsp_ingest.machine.sweep"}
    assert called - around <= set(function.sources)


def test_the_stamp_is_of_what_the_sources_do() -> None:
    plain = "def f(x):\n    return x + 1\n"
    described = '"""Says."""\n\n# why\ndef f(x):\n    """More."""\n    return (x\n            + 1)\n'
    other = "def f(x):\n    return x + 2\n"
    assert functions._syntax_of(ast.parse(plain)) == functions._syntax_of(ast.parse(described))
    assert functions._syntax_of(ast.parse(plain)) != functions._syntax_of(ast.parse(other))


@pytest.mark.slow
def test_it_runs_without_numba(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text('[{"name": "a"}]')
    subprocess.run([sys.executable, "-c", _SCAN, str(trace)], check=True)


def _twice(source: Ints, target: Ints) -> None:
    for i in range(len(source)):
        target[i] = 2 * source[i]


_KINDS = ("int64", "int64")
_FUNCTION = toy(_twice, *_KINDS)


def _ship(content: bytes | None = None) -> None:
    """Puts the function's bitcode, or other content, where shipped code is."""
    symbol, code = native.bitcode(_twice, _KINDS)
    content = zlib.compress(symbol.encode() + b"\n" + code) if content is None else content
    shipped.FOLDER.mkdir()
    shipped.file_of(_FUNCTION).write_bytes(content)
    entry = {"stamp": "1", "texts": "1", "crc32": zlib.crc32(content)}
    (shipped.FOLDER / shipped.MANIFEST).write_text(json.dumps({"functions": {"twice": entry}}))


def test_what_is_shipped_is_not_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not native.is_at_hand(_FUNCTION)
    shipped._entry.cache_clear()
    _ship()
    assert native.is_at_hand(_FUNCTION)
    assert not native.is_at_hand(toy(_twice, *_KINDS, version="2"))
    assert not native.is_ready(_FUNCTION)
    monkeypatch.setattr(native, "_compile", lambda *_: pytest.fail("compiled"))
    native.native(_FUNCTION)
    assert native.is_ready(_FUNCTION)
    assert folder.is_dir()


@pytest.mark.parametrize("damage", [b"", b"no zlib", b"x\x9c"])
@pytest.mark.usefixtures("folder")
def test_what_is_shipped_damaged_is_compiled(damage: bytes) -> None:
    _ship()
    shipped.file_of(_FUNCTION).write_bytes(damage)
    native.native(_FUNCTION)


@pytest.mark.usefixtures("folder")
def test_bitcode_of_another_llvm_is_compiled() -> None:
    _ship(zlib.compress(b"twice\nBC\xc0\xde nothing that this LLVM knows"))
    native.native(_FUNCTION)


@pytest.mark.usefixtures("folder")
def test_without_numba_what_is_not_shipped_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "can_compile", lambda: False)
    with pytest.raises(RuntimeError, match="needs numba"):
        native.native(_FUNCTION)


@pytest.mark.slow
def test_the_check_tells_what_is_not_of_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "bitcode"
    shutil.copytree(shipped.FOLDER, copy)
    monkeypatch.setattr(shipped, "FOLDER", copy)
    monkeypatch.setattr(build, "_make_apart", lambda function: shipped.file_of(function).read_bytes())
    linked = (copy / LIBRARY).read_bytes()
    monkeypatch.setattr(build, "_link", lambda: linked)
    assert build.main(["--check"]) == 0
    (copy / "stray.bc").touch()
    (copy / "climb.bc").write_bytes(b"")
    (copy / "nesting.bc").unlink()
    (copy / LIBRARY).write_bytes(b"")
    assert build.main(["--check"]) == 1
    described = capsys.readouterr().out
    assert f"{LIBRARY}: not the file that the manifest names" in described
    assert "stray.bc: of no function" in described
    assert "climb: not the file that the manifest names" in described
    assert "nesting: not shipped" in described
