"""A format is imported only for files that have its marks, and every file that its ingester claims has one."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import pytest

from tests.helpers.fixture_cases import DAMAGED, SOUND, FixtureCase, every
from xsp_ingest.files.content import Probe
from xsp_ingest.registry import FORMATS, Format, all_ingesters, candidates
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

    from xsp_ingest.ingester import Match

_IMPORTED = """
import sys
from pathlib import Path
from xsp_ingest.files.content import Probe
from xsp_ingest.registry import candidates
candidates(Probe(Path(sys.argv[1])))
prefix = "xsp_ingest.formats."
print(*sorted({name.removeprefix(prefix).partition(".")[0] for name in sys.modules if name.startswith(prefix)}))
"""


def _claims(path: Path) -> dict[str, Match]:
    return {one.name: match for one in all_ingesters() if (match := one.sniff(Probe(path)))}


def _check(path: Path) -> None:
    """Nobody who would claim the file is left out, and an error is the same one."""
    try:
        claims = _claims(path)
    except XspError as error:
        with pytest.raises(XspError, match=re.escape(str(error))):
            candidates(Probe(path))
        return
    assert set(claims) <= {one.name for one in candidates(Probe(path))}, path


def _variants(content: bytes) -> dict[str, bytes]:
    """The content as other tools would keep it, and cut off, and with CSV's quotes where it may set them."""
    head = content[: 1 << 16]
    plain = zlib.decompressobj(31).decompress(content) if content[:2] == b"\x1f\x8b" else content
    return {
        "marked": b"\xef\xbb\xbf" + plain,
        "indented": b" \r\n\t" + plain,
        "compressed": gzip.compress(plain[: 1 << 17], 1),
        "wide": plain[: 1 << 17].decode("utf-8", errors="replace").encode("utf-16"),
        "cut": head[: len(head) // 2],
        "short": head[:256],
        "quoted": plain[: 1 << 17].replace(b"Name", b'"Na"me').replace(b"Time", b'"Ti"me').replace(b"Corr", b'"Co"rr'),
        "invalid": plain[: 1 << 17].replace(b"e", b"\xffe"),
    }


@pytest.mark.parametrize("case", [*SOUND, *DAMAGED], ids=lambda case: case.name)
def test_who_claims_a_fixture_is_asked_about_it(case: FixtureCase) -> None:
    for file in case.raw_files:
        if file.is_file() and file.stat().st_size:
            _check(file)


@every([*SOUND, *DAMAGED])
def test_who_claims_a_fixture_in_another_guise_is_asked_about_it(case: FixtureCase, tmp_path: Path) -> None:
    for file in case.raw_files:
        if not file.is_file():
            continue
        for name, content in _variants(file.read_bytes()).items():
            (tmp_path / name).write_bytes(content)
            _check(tmp_path / name)


@pytest.mark.parametrize("content", ["{}", "[ ]", "[\n]", "", "toy", "a,b\n1,2\n", "\x00", '{"traceEvents": []}'])
def test_who_claims_a_small_file_is_asked_about_it(content: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(content, encoding="utf-8")
    _check(tmp_path / "file")


def test_who_takes_folders_is_asked_about_them(tmp_path: Path) -> None:
    assert {one.name for one in candidates(Probe(tmp_path))} == {one.name for one in FORMATS if one.takes_folders}


def test_a_name_chooses_its_format_and_no_other(tmp_path: Path) -> None:
    assert [one.name for one in candidates(Probe(tmp_path / "none"), "jaeger")] == ["jaeger"]


def test_an_unknown_name_asks_all_for_the_like(tmp_path: Path) -> None:
    assert candidates(Probe(tmp_path / "none"), "jeager") == all_ingesters()


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: entry.name)
def test_a_format_is_where_the_registry_says(entry: Format) -> None:
    assert entry.ingester().name == entry.name
    folder_methods = ("sniff_folder", "files_in")
    assert entry.takes_folders == any(method in vars(type(entry.ingester())) for method in folder_methods)


@pytest.mark.slow  # a process of its own
def test_an_ordinary_trace_imports_few_formats(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X", "cat": "kernel"}]}')
    command = [sys.executable, "-c", _IMPORTED, str(path)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert out.split() == ["chrome_trace", "execution_trace", "torch_profiler"]
