"""`xsp ranks`: a folder of ranks, files one by one, and what a batch left; and what it is no command for."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from tests.helpers.rank_traces import rank_trace, write_ranks
from xsp.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="files")
def fixture_files(tmp_path: Path) -> list[str]:
    """Rank 2 computes 6 ms where the others do 4, so that they wait 2 ms for it in each of two steps."""
    folder = tmp_path / "run7"
    folder.mkdir()
    paths = write_ranks(folder, [rank_trace(*times) for times in ((4, 3), (4, 3), (6, 1))])
    return [str(path) for path in paths]


def _rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, str]]:
    assert main(["ranks", *arguments, "-a", "R01", "-f", "csv", "--jobs", "1"]) == 0
    return list(csv.DictReader(capsys.readouterr().out.splitlines()))


def test_files_and_their_folder_are_one_job(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _rows(capsys, *files)
    assert [(row["rank"], row["wait_ns"]) for row in rows] == [("0", "2000000.0"), ("1", "2000000.0"), ("2", "0.0")]
    assert _rows(capsys, str(tmp_path / "run7")) == rows


@pytest.mark.slow
def test_what_a_batch_left_is_not_read_again(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _rows(capsys, *files)
    assert main(["batch", str(tmp_path / "run7"), "-o", str(tmp_path / "out"), "--jobs", "1"]) == 0
    capsys.readouterr()
    for file in (tmp_path / "run7").iterdir():
        file.unlink()
    assert _rows(capsys, str(tmp_path / "out/jobs/run7")) == rows


def test_the_page_is_one_file(tmp_path: Path, files: list[str]) -> None:
    page = tmp_path / "job.html"
    assert main(["ranks", *files, "-o", str(page), "--jobs", "1"]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Job run7" in text
    assert "trace.xsp" not in text  # no rank's spans are kept, of which a report could be made


def test_a_table_that_the_job_has_not_is_a_sentence(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ranks", *files, "-a", "R07", "--jobs", "1"]) == 2
    assert "this job has no table R07. It has R01, R02, R03, R04" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_compared(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with open(files[1], "r+b") as file:  # noqa: PTH123 (a text)
        file.truncate(60)
    assert main(["ranks", *files, "-a", "R01", "-f", "csv", "--jobs", "1"]) == 1
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1 + 2
    assert "rank1.json" in printed.err


def test_a_rank_that_was_cut_is_compared_and_said_to_be(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    size = (tmp_path / "run7" / "rank1.json").stat().st_size
    with open(files[1], "r+b") as file:  # noqa: PTH123 (a text)
        file.truncate(size * 3 // 4)
    (tmp_path / "run7" / "rank3.json").write_text('{"nothing": 1}', encoding="utf-8")
    assert main(["ranks", str(tmp_path / "run7"), "-a", "R01", "-f", "csv", "--jobs", "1"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 1 + 3
    unknown, cut = sorted(printed.err.splitlines())[::-1]
    assert cut.startswith("warning: ")
    assert "rank3.json: left out" in f"{unknown}{cut}"
    assert "of rank1.json was left out: the file ends in it" in f"{unknown}{cut}"
