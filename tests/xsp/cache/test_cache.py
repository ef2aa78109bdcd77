"""Converted traces that are kept: never a stale one, never half of one, and never a reason to fail."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.helpers.report_trace import small_trace
from xsp.cache import cache as caching
from xsp.cache import key
from xsp.cache import key as keys
from xsp.cache.cache import Cache
from xsp.cache.key import Digests, look, stamp_of
from xsp.cache.store import Store
from xsp.cli.main import main
from xsp.opening import load
from xsp.reading import Reading, reading_of
from xsp_ingest import convert as conversion
from xsp_ingest.registry import ENTRY_POINTS
from xsp_model import Trace, XspError, bundle, integrity
from xsp_model.limits import override_limits
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from xsp_ingest.convert import LeveledRuns
    from xsp_model.columns.arrays import Ints

_REPO = Path(__file__).resolve().parents[3]
_LIMIT = 1 << 30

pytestmark = pytest.mark.only_on("linux", "darwin", reason="elsewhere nothing is kept")


@pytest.fixture(name="raw")
def fixture_raw(tmp_path: Path) -> Path:
    """A trace of a minute ago."""
    small_trace(tmp_path)
    return tmp_path / "small.json"


@pytest.fixture(autouse=True)
def fixture_cache_in_use(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Other tests keep nothing; and nobody waits for two seconds: tests about that undo it."""
    monkeypatch.delenv(caching.LIMIT_VARIABLE, raising=False)
    with override_limits(settled_after_ns=-3_600_000_000_000):
        yield


@pytest.fixture(name="converted")
def fixture_converted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was converted, in order."""
    done: list[str] = []
    before = conversion.convert_levels

    def counted(paths: list[Path], *rest: object, **named: object) -> Trace | LeveledRuns:
        done.append(paths[0].name)
        return before(paths, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(conversion, "convert_levels", counted)
    return done


class _Way(NamedTuple):
    """How a trace is loaded."""

    reading: Reading = Reading()
    cache: Cache | None = None


def _reading(tmp_path: Path, **options: object) -> _Way:
    return _Way(reading_of(options), Cache(tmp_path / "cache", worth_bytes=0))


def _load(path: Path, way: _Way) -> Trace:
    return load([str(path)], way.reading, lambda _: None, cache=way.cache)


def _same(one: Trace, other: Trace) -> bool:
    return all(one.table(name).equals(other.table(name)) for name in TABLES)


def _kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "traces").glob("*.xsp"))


def test_the_second_reading_takes_what_the_first_one_kept(tmp_path: Path, raw: Path, converted: list[str]) -> None:
    reading = _reading(tmp_path)
    first, second = _load(raw, reading), _load(raw, reading)
    assert converted == ["small.json"]
    assert _same(first, second)
    assert second.origin == _kept(tmp_path)[0]


def test_a_copy_elsewhere_is_the_same_content(tmp_path: Path, raw: Path, converted: list[str]) -> None:
    (tmp_path / "other").mkdir()
    shutil.copy(raw, tmp_path / "other" / raw.name)
    first = _load(raw, _reading(tmp_path))
    assert _same(first, _load(tmp_path / "other" / raw.name, _reading(tmp_path)))
    assert len(converted) == 1


def test_another_name_is_another_trace_as_answers_show_names(tmp_path: Path, raw: Path, converted: list[str]) -> None:
    _load(raw, _reading(tmp_path))
    _load(raw.rename(tmp_path / "renamed.json"), _reading(tmp_path))
    assert converted == ["small.json", "renamed.json"]


def _rewritten(raw: Path) -> None:
    raw.write_bytes(raw.read_bytes().replace(b"gemm", b"gemn"))


def _rewritten_with_its_time_set_back(raw: Path) -> None:
    status = raw.stat()
    _rewritten(raw)
    os.utime(raw, ns=(status.st_atime_ns, status.st_mtime_ns))


def _exchanged(raw: Path) -> None:
    other = raw.with_name("other")
    shutil.copy(raw, other)
    _rewritten(other)
    shutil.copystat(raw, other)
    other.replace(raw)


@pytest.mark.parametrize("change", [_rewritten, _rewritten_with_its_time_set_back, _exchanged])
def test_changed_content_of_the_same_length_is_read_anew(
    tmp_path: Path, raw: Path, converted: list[str], change: Callable[[Path], None]
) -> None:
    before = raw.read_bytes()
    _load(raw, _reading(tmp_path))
    change(raw)
    assert len(raw.read_bytes()) == len(before)
    assert raw.read_bytes() != before
    again = _load(raw, _reading(tmp_path))
    assert len(converted) == 2
    assert _same(again, _load(raw, _Way()))


@pytest.mark.parametrize(
    "options",
    [
        {"layer_source": "operator"},
        {"model_ranges": ["x"]},
        {"layer_ranges": ["x"]},
        {"keep_private": True},
        {"os_runtime": True},
        {"format": "torch_profiler"},
    ],
    ids=str,
)
def test_another_way_of_reading_is_another_trace(
    tmp_path: Path, raw: Path, converted: list[str], options: dict[str, object]
) -> None:
    _load(raw, _reading(tmp_path))
    _load(raw, _reading(tmp_path, **options))
    assert len(converted) == 2


def test_another_program_reads_anew(
    tmp_path: Path, raw: Path, converted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _load(raw, _reading(tmp_path))
    monkeypatch.setattr(keys, "program", lambda _: ["xsp of tomorrow"])
    _load(raw, _reading(tmp_path))
    assert len(converted) == 2


def test_a_program_is_known_by_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_package").mkdir()
    (tmp_path / "planted_package" / "__init__.py").write_text("x = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(key, "_PACKAGES", ("planted_package",))
    before = key.program()
    assert key.program() == before
    (tmp_path / "planted_package" / "__init__.py").write_text("x = 12\n", encoding="utf-8")
    assert key.program() != before


def test_formats_of_others_are_looked_for_where_the_registry_does() -> None:
    assert key._ENTRY_POINTS == ENTRY_POINTS


def test_a_folder_with_one_more_file_is_read_anew(tmp_path: Path, raw: Path, converted: list[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(raw, folder / "a.json")
    _load(folder, _reading(tmp_path))
    _load(folder, _reading(tmp_path))
    assert len(converted) == 1
    (folder / "b.txt").write_text("a note\n", encoding="utf-8")
    assert "unknown_file" in str(_load(folder, _reading(tmp_path)).frame("ledger")["kind"].to_list())
    assert len(converted) == 2


def test_a_folder_with_a_pipe_is_not_waited_for(tmp_path: Path, raw: Path, converted: list[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(raw, folder / "a.json")
    os.mkfifo(folder / "pipe")
    _load(folder, _reading(tmp_path))
    assert _load(folder, _reading(tmp_path)).row_count
    assert len(converted) == 1


@override_limits(settled_after_ns=2_000_000_000)
def test_a_digest_is_remembered_of_a_file_at_rest_only(
    tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    before = keys.sha256

    def counted(path: Path) -> str:
        read.append(path)
        return before(path)

    monkeypatch.setattr(keys, "sha256", counted)
    digests, stamp = Digests(tmp_path / "digests"), stamp_of(raw)
    just_now, later = stamp.changed_ns + 1_000_000_000, stamp.changed_ns + 3_000_000_000
    digests_seen = [digests.of(raw, stamp, at) for at in (just_now, just_now, later, later, just_now)]
    assert len(set(digests_seen)) == 1
    assert len(read) == 3  # twice while it might still be written, once at rest


@override_limits(settled_after_ns=3_600_000_000_000)
def test_a_new_folder_is_not_kept_yet(tmp_path: Path, raw: Path, converted: list[str]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(raw, folder / "a.json")
    _load(folder, _reading(tmp_path))
    assert _kept(tmp_path) == []
    _load(raw, _reading(tmp_path))  # a file is hashed again instead
    _load(raw, _reading(tmp_path))
    assert converted == ["folder", "small.json"]


def test_what_changes_while_it_is_read_is_not_kept(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = conversion.convert_levels

    def disturbed(paths: list[Path], *rest: object, **named: object) -> Trace | LeveledRuns:
        trace = before(paths, *rest, **named)  # type: ignore[arg-type]
        _rewritten(raw)
        return trace

    monkeypatch.setattr(conversion, "convert_levels", disturbed)
    _load(raw, _reading(tmp_path))
    assert _kept(tmp_path) == []


def test_small_inputs_are_not_kept(tmp_path: Path, raw: Path) -> None:
    _load(raw, _Way(Reading(), Cache(tmp_path / "cache")))
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("damage", ["cut", "gone", "manifest"])
def test_a_damaged_entry_is_made_anew(tmp_path: Path, raw: Path, converted: list[str], damage: str) -> None:
    undamaged = _load(raw, _reading(tmp_path))
    (entry,) = _kept(tmp_path)
    if damage == "cut":
        spans = entry / "spans.parquet"
        spans.write_bytes(spans.read_bytes()[:100])
    elif damage == "gone":
        (entry / "layers.parquet").unlink()
    else:
        (entry / bundle.MANIFEST).write_text("{", encoding="utf-8")
    assert _same(_load(raw, _reading(tmp_path)), undamaged)
    assert len(converted) == 2
    assert _load(raw, _reading(tmp_path)).origin == entry
    assert len(converted) == 2


def test_a_folder_that_cannot_be_written_does_not_fail_the_command(tmp_path: Path, raw: Path) -> None:
    (tmp_path / "cache").write_text("not a folder", encoding="utf-8")
    assert _load(raw, _reading(tmp_path)).row_count


def test_a_full_disk_does_not_fail_the_command(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle, "write", full)
    assert _load(raw, _reading(tmp_path)).row_count
    assert list((tmp_path / "cache" / "traces").iterdir()) == []


def test_a_disk_that_is_nearly_full_is_left_alone(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 99, 1))
    _load(raw, _reading(tmp_path))
    assert _kept(tmp_path) == []


def test_an_interrupt_while_keeping_leaves_nothing(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bundle, "_put_in_place", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _load(raw, _reading(tmp_path))
    assert list((tmp_path / "cache" / "traces").iterdir()) == []


def _aged(entry: Path, seconds: int) -> None:
    past = time.time() - seconds
    os.utime(entry / bundle.MANIFEST, (past, past))


def _size(entry: Path) -> int:
    return sum(file.stat().st_size for file in entry.iterdir())


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    trace, folder = small_trace(tmp_path), tmp_path / "traces"
    for age, name in ((300, "a"), (200, "b"), (100, "c")):
        Store(folder, _LIMIT).put(name, trace, 0)
        _aged(folder / f"{name}.xsp", age)
    assert Store(folder, _LIMIT).get("a") is not None  # used now, so no longer the oldest
    limit = 3 * _size(folder / "a.xsp")
    Store(folder, limit).put("d", trace, 0)
    assert sorted(each.name for each in folder.iterdir()) == ["a.xsp", "c.xsp", "d.xsp"]


def test_what_another_process_reads_is_not_deleted(tmp_path: Path) -> None:
    trace, folder = small_trace(tmp_path), tmp_path / "traces"
    Store(folder, _LIMIT).put("a", trace, 0)
    _aged(folder / "a.xsp", 300)
    with (folder / "a.xsp" / bundle.MANIFEST).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        Store(folder, _size(folder / "a.xsp")).put("b", trace, 0)
        assert (folder / "a.xsp").exists()
    Store(folder, _size(folder / "a.xsp")).put("c", trace, 0)
    assert not (folder / "a.xsp").exists()


def test_a_trace_larger_than_the_whole_cache_is_not_kept(tmp_path: Path) -> None:
    Store(tmp_path / "traces", 10).put("a", small_trace(tmp_path), 0)
    assert list((tmp_path / "traces").iterdir()) == []


def test_what_a_killed_process_left_is_swept_away_after_a_day(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    for name, age in ((".left", 90_000), (".at-work", 60)):
        (folder / name).mkdir(parents=True)
        os.utime(folder / name, (time.time() - age,) * 2)
    Store(folder, _LIMIT).put("a", small_trace(tmp_path), 0)
    assert sorted(each.name for each in folder.iterdir()) == [".at-work", "a.xsp"]


def test_nothing_kept_hides_that_a_database_is_being_written(tmp_path: Path, fixtures_dir: Path) -> None:
    source = next((fixtures_dir / "nsys_sqlite").glob("[!b]*/*.sqlite"))
    file = tmp_path / "trace.sqlite"
    shutil.copy(source, file)
    _load(file, _reading(tmp_path))
    file.with_name("trace.sqlite-wal").write_bytes(b"x")
    with pytest.raises(XspError, match="being written"):
        _load(file, _reading(tmp_path))


@pytest.mark.slow
def test_several_processes_at_once_keep_one(tmp_path: Path, raw: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from xsp.cache.cache import Cache;"
        "from xsp.opening import load; from xsp.reading import Reading;"
        "cache = Cache(Path(sys.argv[2]), worth_bytes=0);"
        "print(load([sys.argv[1]], Reading(), lambda _: None, cache=cache).row_count)"
    )
    together = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(raw), str(tmp_path / "cache")],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(_REPO)},
        )
        for _ in range(3)
    ]  # fmt: skip
    counts = {each.communicate(timeout=120)[0] for each in together}
    assert counts == {f"{_load(raw, _Way()).row_count}\n"}
    assert len(list((tmp_path / "cache" / "traces").iterdir())) == 1


@pytest.mark.parametrize("size", ["0", "1KB"])
def test_the_size_of_the_cache_can_be_said(
    tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.setenv(caching.LIMIT_VARIABLE, size)
    _load(raw, _reading(tmp_path))
    assert _kept(tmp_path) == []


def test_a_size_that_is_none_is_an_error(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(caching.LIMIT_VARIABLE, "a lot")
    with pytest.raises(XspError, match="'a lot', which is no size"):
        _load(raw, _reading(tmp_path))


@pytest.mark.slow
def test_answers_are_the_same_from_what_was_kept(
    tmp_path: Path, raw: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xsp.cli.options.Cache", lambda folder: Cache(folder, 0))
    options = ["analyze", str(raw), "-f", "json", "--cache-dir", str(tmp_path / "cache")]
    answers = []
    for _ in range(2):
        assert main(options) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert len(_kept(tmp_path)) == 1
    assert answers[0] == answers[1]


def test_the_option_keeps_nothing(tmp_path: Path, raw: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xsp.cli.options.Cache", lambda folder: Cache(folder, 0))
    assert main(["info", str(raw), "--cache-dir", str(tmp_path / "cache"), "--no-cache"]) == 0
    assert _kept(tmp_path) == []


def _info(tmp_path: Path, raw: Path, *more: str) -> list[str]:
    return ["info", str(raw), "--cache-dir", str(tmp_path / "cache"), *more]


def test_an_answer_is_kept_for_the_same_command_line(
    tmp_path: Path, raw: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = caching.kept_answer(_info(tmp_path, raw))
    assert kept is not None
    assert kept.read() is None
    kept.write(b"as it was\n")
    assert main(_info(tmp_path, raw)) == 0
    assert capsys.readouterr().out == "as it was\n"
    kept.write(b"no text: \xff")
    assert kept.read() == b"no text: \xff"
    for other in (_info(tmp_path, raw, "-f", "json"), ["top", *_info(tmp_path, raw)[1:]]):
        of_other = caching.kept_answer(other)
        assert of_other is not None
        assert of_other.read() is None


def test_no_answer_outlives_its_input_nor_what_lies_beside_it(tmp_path: Path, raw: Path) -> None:
    def read() -> bytes | None:
        kept = caching.kept_answer(_info(tmp_path, raw))
        return kept.read() if kept is not None else None

    first = caching.kept_answer(_info(tmp_path, raw))
    assert first is not None
    first.write(b"first")
    assert read() == b"first"
    beside = raw.with_name(f"{raw.name}-wal")
    beside.write_bytes(b"")
    assert read() is None
    beside.unlink()
    assert read() == b"first"
    raw.write_bytes(raw.read_bytes())
    assert read() is None
    first.write(b"of what is no more")
    assert first.read() == b"first"


def test_what_writes_files_or_was_just_written_is_not_kept(tmp_path: Path, raw: Path) -> None:
    for more in (["--no-cache"], ["-o", "x"], ["--output=x"], ["--help"]):
        assert caching.kept_answer(_info(tmp_path, raw, *more)) is None
    assert caching.kept_answer(["report", str(raw)]) is None
    with override_limits(settled_after_ns=3_600_000_000_000):
        assert caching.kept_answer(_info(tmp_path, raw)) is None


@pytest.mark.slow
def test_what_a_command_printed_it_prints_again(tmp_path: Path, raw: Path) -> None:
    time.sleep(2.1)  # until the file is at rest
    command = [sys.executable, "-m", "xsp", *_info(tmp_path, raw)]
    first = subprocess.run(command, capture_output=True, check=True, cwd=_REPO).stdout
    (note,) = (tmp_path / "cache" / "answers").iterdir()
    assert json.loads(note.read_text())["stdout"].encode() == first
    assert subprocess.run(command, capture_output=True, check=True, cwd=_REPO).stdout == first
    note.write_text(json.dumps({"stdout": "from the note"}))
    assert subprocess.run(command, capture_output=True, check=True, cwd=_REPO).stdout == b"from the note"


def test_looks_differ_where_a_file_was_written(raw: Path) -> None:
    before = look([raw])
    assert before is not None
    assert before.same_as(look([raw]))
    _rewritten(raw)
    assert not before.same_as(look([raw]))


def _bit_turned(entry: Path) -> None:
    content = bytearray((entry / "spans.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (entry / "spans.parquet").write_bytes(content)


def _table_gone(entry: Path) -> None:
    (entry / "spans.parquet").unlink()


def _manifest_cut(entry: Path) -> None:
    (entry / "manifest.json").write_text("{")


@pytest.mark.parametrize("damage", [_bit_turned, _table_gone, _manifest_cut])
def test_what_was_damaged_is_converted_again_and_said(
    tmp_path: Path, raw: Path, converted: list[str], damage: Callable[[Path], None]
) -> None:
    first = _load(raw, _reading(tmp_path))
    damage(_kept(tmp_path)[0])
    notes: list[str] = []
    way = _reading(tmp_path)
    again = load([str(raw)], way.reading, notes.append, cache=way.cache)
    assert len(converted) == 2
    assert _same(first, again)
    assert any("the kept trace is damaged" in note for note in notes)
    assert _same(first, _load(raw, way))
    assert len(converted) == 2


def _of_another_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = path.stat()
    before = os.lstat

    def lstat(which: Path) -> os.stat_result:
        own = before(which)
        return os.stat_result((*own[:4], own.st_uid + 1, *own[5:])) if own.st_ino == status.st_ino else own

    monkeypatch.setattr("xsp_model.output_files.os.lstat", lstat)


@pytest.mark.parametrize("of", [".", "manifest.json", "spans.parquet", ".."])
def test_what_another_user_kept_is_not_used(
    tmp_path: Path, raw: Path, converted: list[str], monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    _load(raw, _reading(tmp_path))
    with monkeypatch.context() as patch:
        _of_another_user((_kept(tmp_path)[0] / of).resolve(), patch)
        _load(raw, _reading(tmp_path))
    assert len(converted) == 2


def test_what_others_may_write_into_is_not_used(tmp_path: Path, raw: Path, converted: list[str]) -> None:
    _load(raw, _reading(tmp_path))
    _kept(tmp_path)[0].chmod(0o777)
    _load(raw, _reading(tmp_path))
    assert len(converted) == 2


def test_a_link_in_place_of_what_was_kept_is_not_used(tmp_path: Path, raw: Path, converted: list[str]) -> None:
    _load(raw, _reading(tmp_path))
    entry = _kept(tmp_path)[0]
    entry.rename(tmp_path / "elsewhere.xsp")
    entry.symlink_to(tmp_path / "elsewhere.xsp")
    _load(raw, _reading(tmp_path))
    assert len(converted) == 2


def test_what_is_kept_is_for_the_user_alone(tmp_path: Path, raw: Path) -> None:
    (tmp_path / "cache" / "digests").mkdir(parents=True, mode=0o777)
    before = os.umask(0)
    try:
        _load(raw, _reading(tmp_path))
    finally:
        os.umask(before)
    folders = [tmp_path / "cache" / "traces", tmp_path / "cache" / "digests", *_kept(tmp_path)]
    assert [oct(each.stat().st_mode & 0o777) for each in folders] == ["0o700"] * 3


def _looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables whose rows are looked at, from now on."""
    looks: list[str] = []
    before = integrity.violations_in

    def counted(trace: Trace, name: str, runs: Ints, only: Collection[str] | None = None) -> Iterator[str]:
        looks.append(name)
        return before(trace, name, runs, only)

    monkeypatch.setattr(integrity, "violations_in", counted)
    return looks


@override_limits(checked_table_min_bytes=0, settled_after_ns=0)
def test_a_bundle_that_was_checked_is_not_looked_at_row_by_row_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle.write(small_trace(tmp_path), tmp_path / "t.xsp")
    looks = _looks(monkeypatch)
    for _ in range(3):
        trace = _load(tmp_path / "t.xsp", _reading(tmp_path))
        for name in ("spans", "kernels", "spans"):
            trace.frame(name)
    assert looks == ["spans", "kernels"]
    for columns in (["layer_name"], ["layer_name", "path"], ["path", "layer_name"]):
        _load(tmp_path / "t.xsp", _reading(tmp_path)).scan("kernels", columns)
        _load(tmp_path / "t.xsp", _reading(tmp_path)).scan("layers", columns)
    assert looks[2:] == ["layers", "layers"]  # once a choice of columns
    del looks[2:]
    os.utime(tmp_path / "t.xsp" / "spans.parquet", ns=(0, 0))
    _load(tmp_path / "t.xsp", _reading(tmp_path)).frame("spans")
    _load(tmp_path / "t.xsp", _Way()).frame("spans")
    assert looks == ["spans", "kernels", "spans", "spans"]


def test_small_tables_are_checked_each_time_rather_than_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle.write(small_trace(tmp_path), tmp_path / "t.xsp")
    looks = _looks(monkeypatch)
    for _ in range(2):
        _load(tmp_path / "t.xsp", _reading(tmp_path)).frame("spans")
    assert looks == ["spans", "spans"]
    assert not (tmp_path / "cache" / "checked").exists()


def test_a_checked_bundle_that_was_damaged_since_is_refused(tmp_path: Path) -> None:
    bundle.write(small_trace(tmp_path), tmp_path / "t.xsp")
    _load(tmp_path / "t.xsp", _reading(tmp_path))
    _bit_turned(tmp_path / "t.xsp")
    with pytest.raises(XspError, match="is not what was written"):
        _load(tmp_path / "t.xsp", _reading(tmp_path))
