"""A batch of a folder that holds a trace under several names does it once, and says what was left out."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.batches import trace_of
from xsp.batch.discover import Discovered, discover
from xsp.batch.unit import Kind
from xsp.cli.main import main
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options
from xsp_model import bundle

if TYPE_CHECKING:
    from collections.abc import Callable

_FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"


def _discover(*inputs: Path) -> Discovered:
    return discover([*map(str, inputs)], "", ranks=None, format_name=None)


def _inputs(discovered: Discovered) -> list[list[str]]:
    return [[Path(name).name for name in unit.inputs] for unit in discovered.units]


def _copies(discovered: Discovered) -> dict[str, str]:
    return {Path(copy).name: Path(of).name for copy, of in discovered.copies.items()}


def _packed(file: Path, other: Path) -> None:
    other.write_bytes(gzip.compress(file.read_bytes()))


def _symlink(file: Path, other: Path) -> None:
    other.symlink_to(file.name)


@pytest.mark.parametrize("repeat", [_symlink, _packed, shutil.copyfile])
def test_a_trace_under_two_names_is_one_unit(tmp_path: Path, repeat: Callable[[Path, Path], None]) -> None:
    trace_of(100).write(tmp_path / "a.json")
    repeat(tmp_path / "a.json", tmp_path / "b.json.gz")
    discovered = _discover(tmp_path)
    assert _inputs(discovered) == [["a.json"]]
    assert _copies(discovered) == {"b.json.gz": "a.json"}


def test_copies_in_several_inputs_are_discover(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        trace_of(100).write(tmp_path / folder / "trace.json")
    assert _inputs(_discover(tmp_path / "one", tmp_path / "two")) == [["trace.json"]]


def test_a_copy_of_a_rank_does_not_keep_a_folder_from_being_a_job(tmp_path: Path) -> None:
    for rank in range(2):
        trace_of(100 + rank).write(tmp_path / f"rank{rank}.json")
    _packed(tmp_path / "rank0.json", tmp_path / "rank0.json.gz")
    _symlink(tmp_path / "rank1.json", tmp_path / "latest.json")
    discovered = _discover(tmp_path)
    assert [(unit.kind, unit.rank) for unit in discovered.units] == [(Kind.RANK, 0), (Kind.RANK, 1)]
    assert _copies(discovered) == {"rank0.json.gz": "rank0.json", "latest.json": "rank1.json"}
    assert not discovered.same_ranks


def test_a_copy_of_a_rank_elsewhere_does_not_tear_its_job_apart(tmp_path: Path) -> None:
    for folder in ("all/a_copy", "all/job"):
        (tmp_path / folder).mkdir(parents=True)
    for rank in range(2):
        trace_of(100 + rank).write(tmp_path / f"all/job/rank{rank}.json")
    shutil.copyfile(tmp_path / "all/job/rank0.json", tmp_path / "all/a_copy/rank0.json")
    alone = shutil.copyfile(tmp_path / "all/job/rank1.json", tmp_path / "rank1.json")
    for inputs in ((tmp_path / "all",), (alone, tmp_path / "all")):
        units = _discover(*inputs).units
        assert [(unit.job, unit.rank, Path(unit.inputs[0]).parent.name) for unit in units] == [
            ("job", 0, "job"), ("job", 1, "job"),
        ]  # fmt: skip


def test_traces_that_are_one_rank_of_a_folder_are_said(tmp_path: Path) -> None:
    for name, rank in (("a", 0), ("b", 0), ("c", 1)):
        trace_of(100 + ord(name), distributedInfo={"rank": rank, "world_size": 2}).write(tmp_path / f"{name}.json")
    discovered = _discover(tmp_path)
    assert [unit.kind for unit in discovered.units] == [Kind.TRACE] * 3
    (sentence,) = discovered.same_ranks
    assert sentence == (
        f"{tmp_path / 'b.json'} and {tmp_path / 'a.json'} both say that they are rank 0: the traces of their folder are"
        " reported one by one, not as ranks of a job"
    )


def test_a_bundle_and_its_copy_are_one_and_a_bundle_beside_its_source_none(tmp_path: Path) -> None:
    trace_of(100).write(tmp_path / "a.json")
    bundle.write(convert([tmp_path / "a.json"], Options()), tmp_path / "b.xsp")
    shutil.copytree(tmp_path / "b.xsp", tmp_path / "c.xsp")
    assert _copies(_discover(tmp_path)) == {"b.xsp": "a.json", "c.xsp": "b.xsp"}
    assert _inputs(_discover(tmp_path)) == [["a.json"]]
    (tmp_path / "a.json").unlink()
    assert _inputs(_discover(tmp_path)) == [["b.xsp"]]


def test_a_bundle_of_more_than_lies_beside_it_stays(tmp_path: Path) -> None:
    for rank in range(2):
        trace_of(100 + rank).write(tmp_path / f"{rank}.json")
    bundle.write(convert([tmp_path], Options()), tmp_path / "both.xsp")
    assert _inputs(_discover(tmp_path)) == [["0.json"], ["1.json"]]
    (tmp_path / "1.json").unlink()
    assert _inputs(_discover(tmp_path)) == [["0.json"], ["both.xsp"]]


@pytest.mark.slow
def test_a_run_set_and_its_copy_are_one_and_so_is_its_profile_beside_it(tmp_path: Path) -> None:
    shutil.copytree(_FIXTURES / "run_set" / "results_synthetic", tmp_path / "runs")
    shutil.copytree(tmp_path / "runs", tmp_path / "runs-again")
    assert main(["merge", str(tmp_path / "runs"), "-o", str(tmp_path / "profile.xsp")]) == 0
    discovered = _discover(tmp_path)
    assert _inputs(discovered) == [["runs"]]
    assert set(_copies(discovered)) == {"profile.xsp", "runs-again"}


def test_three_hundred_copies_are_one_unit(tmp_path: Path) -> None:
    trace_of(100).write(tmp_path / "a.json")
    for number in range(299):
        shutil.copyfile(tmp_path / "a.json", tmp_path / f"b{number:03}.json")
    discovered = _discover(tmp_path)
    assert _inputs(discovered) == [["a.json"]]
    assert len(discovered.copies) == 299


def test_samples_of_the_machine_are_of_a_trace_that_lies_there_twice(tmp_path: Path) -> None:
    trace_of(100).write(tmp_path / "a.json")
    _packed(tmp_path / "a.json", tmp_path / "a.json.gz")
    samples = _FIXTURES / "nvml_samples" / "alone_synthetic" / "nvml.jsonl"
    shutil.copyfile(samples, tmp_path / samples.name)
    assert _inputs(_discover(tmp_path)) == [["a.json", samples.name]]


@pytest.mark.slow
def test_the_summary_names_what_was_not_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    trace_of(100).write(folder / "a.json")
    _packed(folder / "a.json", folder / "a.json.gz")
    assert main(["batch", str(folder), "-o", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert (
        "not read again: 1 input that holds what another does, such as ../in/a.json.gz, the same as ../in/a.json"
        in capsys.readouterr().out
    )
    document = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert [row["name"] for row in document["traces"]] == ["a"]
    assert document["copies"] == [{"input": "../in/a.json.gz", "same_as": "../in/a.json"}]
    assert "the same as ../in/a.json" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_cohort_has_each_trace_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace_of(100).write(tmp_path / "a.json")
    _packed(tmp_path / "a.json", tmp_path / "a.json.gz")
    assert main(["cohort", str(tmp_path), "-f", "json"]) == 0
    out, err = capsys.readouterr()
    assert {row["name"] for table in json.loads(out) for row in table["rows"] if "name" in row} <= {"a"}
    assert "a.json.gz holds what" in err


def _job(folder: Path, *scales: int) -> None:
    """A job of so many ranks."""
    folder.mkdir(parents=True)
    for rank, scale in enumerate(scales):
        trace_of(scale).write(folder / f"rank{rank}.json")


def _ranks(discovered: Discovered) -> list[tuple[str | None, int | None]]:
    return [(unit.job, unit.rank) for unit in discovered.units]


@pytest.mark.parametrize("folders", [["all"], ["all/one", "all/two"]])
def test_a_rank_that_two_jobs_share_is_read_for_both_and_said(tmp_path: Path, folders: list[str]) -> None:
    _job(tmp_path / "all/one", 100, 101)
    _job(tmp_path / "all/two", 100, 102)
    _packed(tmp_path / "all/two/rank1.json", tmp_path / "all/two/rank1.json.gz")
    discovered = _discover(*(tmp_path / folder for folder in folders))
    assert _ranks(discovered) == [("one", 0), ("one", 1), ("two", 0), ("two", 1)]
    assert _copies(discovered) == {"rank1.json.gz": "rank1.json"}
    (sentence,) = discovered.same_ranks
    assert sentence == (
        f"{tmp_path}/all/two/rank0.json and {tmp_path}/all/one/rank0.json hold the same: it is read as a rank of the"
        " job of each"
    )


def test_a_job_and_its_copy_or_a_part_of_it_are_one_job(tmp_path: Path) -> None:
    _job(tmp_path / "job", 100, 101, 102)
    for folder, count in (("copy", 3), ("part", 2)):
        (tmp_path / folder).mkdir()
        for rank in range(count):
            shutil.copyfile(tmp_path / f"job/rank{rank}.json", tmp_path / folder / f"rank{rank}.json")
    for ranks in (None, True):
        jobs = [str(tmp_path / name) for name in ("job", "copy", "part")]
        discovered = discover(jobs, "", ranks=ranks, format_name=None)
        assert _ranks(discovered) == [("job", 0), ("job", 1), ("job", 2)]
        assert len(discovered.copies) == 5
        assert not discovered.same_ranks


def test_ranks_with_their_bundles_are_one_job(tmp_path: Path) -> None:
    _job(tmp_path / "job", 100, 101)
    for rank in range(2):
        bundle.write(convert([tmp_path / f"job/rank{rank}.json"], Options()), tmp_path / f"job/rank{rank}.xsp")
    discovered = _discover(tmp_path / "job")
    assert _ranks(discovered) == [("job", 0), ("job", 1)]
    assert _copies(discovered) == {"rank0.xsp": "rank0.json", "rank1.xsp": "rank1.json"}
    assert not discovered.same_ranks


def test_two_equal_files_that_are_named_as_two_ranks_are_one_trace(tmp_path: Path) -> None:
    for rank in range(2):
        trace_of(100).write(tmp_path / f"trace_rank{rank}.json")
    discovered = _discover(tmp_path)
    assert _inputs(discovered) == [["trace_rank0.json"]]
    assert _copies(discovered) == {"trace_rank1.json": "trace_rank0.json"}
