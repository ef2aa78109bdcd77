"""A store of runs: whole or not at all, many writers at once, torn files, a full disk, other versions."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from multiprocessing import get_context
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.history_runs import START, file_of, run_facts
from xsp.history.store import Store
from xsp.history.store import open as open_store
from xsp_analyze.history import facts as facts_module
from xsp_model import XspError

if TYPE_CHECKING:
    from pathlib import Path

_WRITER = """
import sys
from pathlib import Path
from datetime import timedelta
from tests.helpers.history_runs import START, run_facts
from xsp.history.store import Store
store = Store(sys.argv[1])
print("ready", flush=True)
for number in range(100_000):
    store.add(run_facts(1e7 + number), f"{number:016x}", START + timedelta(hours=number))
"""


def test_what_is_added_is_read(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    facts = run_facts(10e6, labels={"commit": "abc"})
    assert store.add(facts, "0123456789abcdef", START)
    assert open_store(tmp_path / "store").of(["0123456789abcdef"])[0].select(facts.columns).equals(facts)


def test_a_run_is_added_once(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    assert store.add(run_facts(10e6), "0123456789abcdef", START)
    assert not store.add(run_facts(10e6), "0123456789abcdef", START + timedelta(days=1))
    assert len(store.runs()) == 1


def _add_many(folder: str, writer: int) -> list[bool]:
    store = Store(folder)
    return [
        store.add(run_facts(10e6 + number), f"{number:016x}", START + timedelta(hours=number))
        for number in range(writer, 30)
    ]


def test_writers_at_once_lose_nothing_and_add_nothing_twice(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, get_context("spawn")) as pool:
        added = list(pool.map(_add_many, [str(tmp_path)] * 4, range(4)))
    facts = open_store(tmp_path).facts()
    assert facts["latency_ns"].to_list() == [10e6 + number for number in range(30)]
    assert sum(map(sum, added)) >= 30  # of a run that two write at once, both say so, and one is there
    assert len(list(tmp_path.iterdir())) == 30


@pytest.mark.slow
def test_a_killed_writer_leaves_whole_runs(tmp_path: Path) -> None:
    for after in (0.05, 0.2, 0.5):
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(after)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    store = Store(str(tmp_path))
    rows = store.facts()
    assert store.left_out == []
    assert rows["latency_ns"].to_list() == [1e7 + number for number in range(rows.height)]
    store.add(run_facts(1.0), "f" * 16, START)
    assert Store(str(tmp_path)).facts().height == rows.height + 1


def test_a_torn_file_is_a_sentence_and_the_others_stand(tmp_path: Path) -> None:
    files = [file_of(tmp_path, number, run_facts(10e6 + number)) for number in range(20)]
    files[7].write_bytes(files[7].read_bytes()[:200])
    files[13].write_bytes(b"")
    store = open_store(tmp_path)
    assert store.facts().height == 18
    assert [sentence.split(" ")[0] for sentence in store.left_out] == [files[7].name, files[13].name]


def test_a_file_that_changed_by_one_bit_is_a_sentence(tmp_path: Path) -> None:
    files = [file_of(tmp_path, number, run_facts(10e6 + number)) for number in range(3)]
    for at in (10, 200, -20):
        content = bytearray(files[1].read_bytes())
        content[at] ^= 4
        files[1].write_bytes(content)
        store = open_store(tmp_path)
        assert store.facts()["latency_ns"].to_list() == [10e6, 10e6 + 2]
        (sentence,) = store.left_out
        assert sentence.startswith(f"{files[1].name} is left out: it was torn or changed after it was written. Delete")


@pytest.mark.parametrize(
    ("change", "is_read"),
    [
        (pl.col("value").cast(pl.String), False),
        (pl.lit(3).alias("text"), False),
        (pl.lit("0" * 16).alias("run"), False),
        (pl.lit(None, pl.String).alias("run"), False),
        (pl.lit(3).alias("more"), True),
        (pl.when(pl.col("name") == "gemm").then(pl.lit(None)).otherwise("name").alias("name"), True),
    ],
)
def test_a_file_of_another_form_is_left_out_and_the_others_stand(
    tmp_path: Path, change: pl.Expr, *, is_read: bool
) -> None:
    for number in range(3):
        file_of(tmp_path, number, run_facts(10e6 + number))
    rows = run_facts(20e6).with_columns(run=pl.lit(f"{7:016x}")).with_columns(change)
    name = _write_as_it_is(tmp_path, rows, None)
    store = open_store(tmp_path)
    latencies = store.rows().filter(pl.col("name") == "latency_ns")["value"].to_list()
    assert latencies == [10e6, 10e6 + 1, 10e6 + 2, *([20e6] if is_read else [])]
    assert [sentence.split(" (")[0] for sentence in store.left_out] == (
        [] if is_read else [f"{name} is left out: it holds no facts of a run"]
    )


@pytest.mark.parametrize("head", [None, "{", "[]", "[[1, 2]]", "3", json.dumps([["run", "model", 3, "x", 1, 1, 1]])])
def test_a_file_without_a_head_is_left_out_and_the_others_stand(tmp_path: Path, head: str | None) -> None:
    for number in range(3):
        file_of(tmp_path, number, run_facts(10e6 + number))
    name = _write_as_it_is(tmp_path, run_facts(20e6).with_columns(run=pl.lit(f"{7:016x}")), head)
    store = open_store(tmp_path)
    assert store.facts()["latency_ns"].to_list() == [10e6, 10e6 + 1, 10e6 + 2]
    assert [sentence.split(" (")[0] for sentence in store.left_out] == [
        f"{name} is left out: it holds no facts of a run"
    ]


def _write_as_it_is(folder: Path, rows: pl.DataFrame, head: str | None) -> str:
    """A file whose name says that it is as it was written."""
    content = io.BytesIO()
    rows.write_parquet(content, metadata={} if head is None else {"xsp_run": head})
    name = f"20260401T000000Z-{7:016x}-{zlib.crc32(content.getvalue()):08x}.v1.parquet"
    (folder / name).write_bytes(content.getvalue())
    return name


def test_names_of_columns_are_no_names_that_runs_may_give(tmp_path: Path) -> None:
    facts = run_facts(10e6)
    taken = [("run", "time", "x", None), ("run", "latency_ns", "x", None), ("measure", "file", None, 1.0)]
    more = pl.DataFrame(taken, schema=["section", "name", "text", "value"], orient="row")
    file_of(tmp_path, 0, pl.concat([facts, more], how="diagonal"))
    (row,) = open_store(tmp_path).facts().iter_rows(named=True)
    assert (row["latency_ns"], row["time"].year) == (10e6, START.year)


def test_a_run_that_is_deleted_while_others_are_read_is_none(tmp_path: Path) -> None:
    files = [file_of(tmp_path, number, run_facts(10e6 + number)) for number in range(3)]
    store = open_store(tmp_path)
    runs = store.runs()
    files[1].unlink()
    assert store.rows(runs)["run"].unique().sort().to_list() == [f"{0:016x}", f"{2:016x}"]
    assert store.left_out == []


def test_a_full_disk_adds_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(tmp_path))
    store.add(run_facts(10e6), "0" * 16, START)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(XspError, match="cannot be written \\(No space left on device\\)"):
        store.add(run_facts(11e6), "1" * 16, START)
    monkeypatch.undo()
    assert [file.name for file in tmp_path.iterdir()] == [run.file for run in store.runs()]
    assert len(store.runs()) == 1


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    file_of(tmp_path, 0, run_facts(10e6))
    (tmp_path / "README.md").write_text("ours")
    (tmp_path / "20260101T020000Z-zz.v1.parquet").write_text("nothing")
    assert len(open_store(tmp_path).runs()) == 1


def test_earlier_versions_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As version 1 is the first, one before it is made up: it called step time by another name."""
    renamed = pl.col("name").replace("step_ns", "latency_ns")
    monkeypatch.setitem(facts_module._UPGRADES, 0, lambda rows: rows.with_columns(renamed))
    old = run_facts(10e6).with_columns(pl.col("name").replace("latency_ns", "step_ns"))
    file_of(tmp_path, 0, old, version=0)
    file_of(tmp_path, 1, run_facts(11e6))
    assert open_store(tmp_path).facts()["latency_ns"].to_list() == [10e6, 11e6]


def test_a_newer_version_is_refused_in_a_sentence(tmp_path: Path) -> None:
    file_of(tmp_path, 0, run_facts(10e6), version=2)
    with pytest.raises(XspError, match=r"was written by a newer xsp\. Update xsp"):
        open_store(tmp_path).facts()


def test_a_folder_without_runs_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(XspError, match="holds no history of runs"):
        open_store(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(XspError, match="is a file, and a history is a folder"):
        Store(str(tmp_path / "file")).runs()


def test_a_store_at_a_url_is_as_one_here() -> None:
    """By fsspec's file system in memory; S3 is in tests of batches."""
    pytest.importorskip("fsspec")
    store = Store("memory://history-of-tests")
    assert store.runs() == []
    for number in range(3):
        assert store.add(run_facts(10e6 + number), f"{number:016x}", START + timedelta(days=number))
    assert not store.add(run_facts(10e6), f"{0:016x}", START)
    assert open_store("memory://history-of-tests").facts()["latency_ns"].to_list() == [10e6, 10e6 + 1, 10e6 + 2]
    assert len(store.of([f"{1:016x}"])) == 1
