"""What lies in a folder twice is read once, in every format, and said; ranks of one job that are several are said."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.batches import trace_of
from tests.helpers.fixture_cases import SOUND, FixtureCase, every
from tests.helpers.fixture_cases import trace_of as trace_of_case
from tests.helpers.linked import ledger_counts
from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main
from xsp_analyze.text.doubts import double_counting
from xsp_ingest.convert import convert
from xsp_ingest.distinct import distinct
from xsp_ingest.ingester import Options
from xsp_model import bundle
from xsp_model.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from xsp_model import Trace

_FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
_RANK = {"rank": 0, "world_size": 2}


def _detail(trace: Trace, kind: str) -> str:
    return str(trace.frame("ledger").filter(pl.col("kind") == kind)["detail"].item())


def _assert_same_but_for_the_ledger(trace: Trace, alone: Trace) -> None:
    for name in TABLES:
        if name != "ledger":
            assert trace.frame(name).equals(alone.frame(name)), name


def _packed_otherwise(file: Path, other: Path) -> None:
    """A copy; of gzip what is in it, of text and JSON gzip of it."""
    if file.is_dir():
        shutil.copytree(file, other)
    elif file.suffix == ".gz":
        other.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
    elif file.suffix == ".json":
        Path(f"{other}.gz").write_bytes(gzip.compress(file.read_bytes()))
    else:
        shutil.copyfile(file, other)


@every(SOUND)
def test_a_capture_and_its_copy_are_one(case: FixtureCase, tmp_path: Path) -> None:
    alone = trace_of_case(case)
    for file in case.raw_files:
        _packed_otherwise(file, tmp_path / file.name)
    trace = convert([*case.raw_files, *sorted(tmp_path.iterdir())], Options())
    _assert_same_but_for_the_ledger(trace, alone)
    assert ledger_counts(trace)["same_content_again"] == len(case.raw_files)


def _linked(file: Path) -> None:
    file.with_name("other.json").symlink_to(file.name)


def _hard_linked(file: Path) -> None:
    file.with_name("other.json").hardlink_to(file)


def _copied(file: Path) -> None:
    shutil.copyfile(file, file.with_name("other.json"))


def _packed(file: Path) -> None:
    file.with_name("rank0.json.gz").write_bytes(gzip.compress(file.read_bytes()))


@pytest.mark.parametrize("repeat", [_linked, _hard_linked, _copied, _packed])
def test_a_folder_with_a_trace_under_two_names_holds_it_once(tmp_path: Path, repeat: Callable[[Path], None]) -> None:
    file = tmp_path / "rank0.json"
    trace_of(100, distributedInfo=_RANK).write(file)
    alone = convert([tmp_path], Options())
    repeat(file)
    trace = convert([tmp_path], Options())
    assert trace.frame("runs").height == 1
    assert trace.frame("spans")["duration_ns"].sum() == alone.frame("spans")["duration_ns"].sum()
    counts = ledger_counts(trace)
    assert counts["same_content_again"] == 1
    assert "same_rank_again" not in counts
    assert "rank0.json" in _detail(trace, "same_content_again")


def test_three_hundred_copies_are_one_row_that_names_some(tmp_path: Path) -> None:
    trace_of(100).write(tmp_path / "a.json")
    for number in range(299):
        shutil.copyfile(tmp_path / "a.json", tmp_path / f"b{number:03}.json")
    trace = convert([tmp_path], Options())
    assert trace.frame("runs").height == 1
    assert ledger_counts(trace)["same_content_again"] == 299
    assert _detail(trace, "same_content_again").endswith(
        ": b000.json (as a.json), b001.json (as a.json), b002.json (as a.json) and 296 more"
    )


def test_copies_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        trace_of(100).write(tmp_path / folder / "trace.json")
    trace = convert([tmp_path / "one", tmp_path / "two"], Options())
    assert _detail(trace, "same_content_again").endswith(": two/trace.json (as one/trace.json)")


def test_a_folder_and_a_file_in_it_are_no_copies(tmp_path: Path) -> None:
    trace_of(100).write(tmp_path / "trace.json")
    trace = convert([tmp_path, tmp_path / "trace.json"], Options())
    assert trace.frame("runs").height == 1
    assert "same_content_again" not in ledger_counts(trace)


def test_ranks_that_differ_in_their_number_alone_are_all_read(tmp_path: Path) -> None:
    for rank in range(2):
        trace_of(100, distributedInfo={"rank": rank, "world_size": 2}).write(tmp_path / f"{rank}.json")
    trace = convert([tmp_path], Options())
    assert trace.frame("runs")["rank"].to_list() == [0, 1]
    assert not {"same_content_again", "same_rank_again"} & ledger_counts(trace).keys()


def test_runs_that_differ_in_their_process_alone_are_all_read(tmp_path: Path) -> None:
    one = trace_of(100)
    one.write(tmp_path / "0.json")
    text = (tmp_path / "0.json").read_text(encoding="utf-8")
    (tmp_path / "1.json").write_text(text.replace(str(one.process_id), str(one.process_id + 1)), encoding="utf-8")
    trace = convert([tmp_path], Options())
    assert trace.frame("runs").height == 2
    assert not {"same_content_again", "same_rank_again"} & ledger_counts(trace).keys()


def test_two_captures_of_one_rank_are_said(tmp_path: Path) -> None:
    for name, scale in (("a", 100), ("b", 200)):
        trace_of(scale, distributedInfo=_RANK).write(tmp_path / f"{name}.json")
    trace = convert([tmp_path], Options())
    assert trace.frame("runs").height == 2
    assert ledger_counts(trace)["same_rank_again"] == 2
    assert _detail(trace, "same_rank_again").endswith(": rank 0 of a.json, b.json")


def test_what_two_processes_have_in_common_stays_with_both(tmp_path: Path) -> None:
    """Processes of one machine describe its devices alike."""
    for file in (_FIXTURES / "rocprofv3" / "csv_synthetic").glob("7_*.csv"):
        shutil.copyfile(file, tmp_path / file.name)
        content = file.read_text(encoding="utf-8")
        other = content if "agent_info" in file.name else content.rstrip("\n") + "\n\n"
        (tmp_path / file.name.replace("7_", "8_")).write_text(other, encoding="utf-8")
    trace = convert([tmp_path], Options())
    assert trace.frame("runs").height == 2
    assert "same_content_again" not in ledger_counts(trace)


def test_an_input_of_several_files_goes_before_a_copy_of_one_of_them(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c", "d")]
    for path, content in zip(paths, "1213", strict=True):
        path.write_text(content, encoding="utf-8")
    a, b, c, d = paths
    once = distinct([[a], [b, c], [d], [c, d]])
    assert once.inputs == {1: [b, c], 3: [c, d]}
    assert once.copies == {a: c}


def test_a_log_of_loadgen_beside_its_gzip_is_one(tmp_path: Path) -> None:
    for file in (_FIXTURES / "loadgen" / "server_cpu").glob("mlperf*"):
        shutil.copyfile(file, tmp_path / file.name)
    alone = convert([tmp_path], Options())
    packed = tmp_path / "mlperf_log_trace.json.gz"
    packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
    trace = convert([tmp_path], Options())
    assert trace.frame("spans").equals(alone.frame("spans"))
    assert ledger_counts(trace)["same_content_again"] == 1


def test_a_report_beside_its_export_is_not_read(tmp_path: Path) -> None:
    (export,) = (_FIXTURES / "nsys_sqlite" / "twin_step_cpu").glob("*.sqlite")
    shutil.copyfile(export, tmp_path / "run.sqlite")
    (tmp_path / "run.nsys-rep").write_bytes(b"NVIDIA Tegra Profiler Report 1@2@3@" + b"\0" * 64)
    trace = convert([tmp_path], Options())
    assert trace.frame("runs").height == 1
    counts = ledger_counts(trace)
    assert counts["same_run_again"] == 1
    assert "unreadable_file" not in counts


def test_bundles_in_a_folder_are_said_to_be_of_what_was_read_or_not_read(tmp_path: Path) -> None:
    for name, scale in (("a", 100), ("b", 200)):
        trace_of(scale).write(tmp_path / f"{name}.json")
    _packed_otherwise(tmp_path / "a.json", tmp_path / "packed.json")
    for name, sources in (("a", ["packed.json.gz"]), ("ab", ["a.json", "b.json"])):
        bundle.write(convert([tmp_path / source for source in sources], Options()), tmp_path / f"{name}.xsp")
    counts = ledger_counts(convert([tmp_path], Options()))
    assert counts["same_content_again"] == 3
    assert "bundle_not_read" not in counts
    (tmp_path / "b.json").unlink()
    trace = convert([tmp_path], Options())
    details = trace.frame("ledger").filter(pl.col("kind") == "same_content_again")["detail"]
    assert [detail.rpartition(": ")[2] for detail in details] == [
        "a.xsp (as packed.json.gz)",
        "packed.json.gz (as a.json)",
    ]
    assert _detail(trace, "bundle_not_read").endswith(": ab.xsp")


def test_nothing_is_said_of_bundles_beside_files_that_the_user_named(tmp_path: Path) -> None:
    trace_of(100).write(tmp_path / "a.json")
    bundle.write(convert([tmp_path / "a.json"], Options()), tmp_path / "a.xsp")
    counts = ledger_counts(convert([tmp_path / "a.json"], Options()))
    assert not {"same_content_again", "bundle_not_read"} & counts.keys()


def _of_twelve(*, longer_ns: int = 0, operators_alone: bool = False, **head: object) -> KinetoTrace:
    """Twelve operators with a kernel each; the last kernel, or operator, is by so much longer."""
    trace = KinetoTrace(**head)  # type: ignore[arg-type]
    for number in range(12):
        start, more = 10_000 + 100_000 * number, longer_ns * (number == 11)
        trace.operator(f"aten::op{number}", start, 50_000 + 7 * number + more)
        if not operators_alone:
            trace.launch(f"kernel{number}", start + 1_000, start + 20_000, 5_000 + 7 * number + more)
    return trace


@pytest.mark.parametrize("operators_alone", [False, True])
@pytest.mark.parametrize("written", ["jaeger", "otlp", "chrome", "with a byte-order mark"])
def test_one_recording_in_two_writings_is_said(tmp_path: Path, written: str, *, operators_alone: bool) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    file = folder / "a.json"
    _of_twelve(operators_alone=operators_alone).write(file)
    if written in {"jaeger", "otlp", "chrome"}:
        assert main(["export", str(file), "--to", written, "-o", str(folder / "b.json"), "--no-cache"]) == 0
    else:
        (folder / "b.json").write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    trace = convert([folder], Options())
    assert trace.frame("runs").height == 2
    assert ledger_counts(trace)["same_work_again"] == 1
    detail = _detail(trace, "same_work_again")
    assert detail.endswith((": b.json (as a.json)", ": a.json (as b.json)"))
    (sentence,) = double_counting(trace)
    assert sentence.startswith("Files hold the same work to the nanosecond, so that sums count one recording more than")
    assert sentence.endswith(f"{detail.rpartition(': ')[2]}.")


@pytest.mark.parametrize("operators_alone", [False, True])
def test_work_that_took_two_nanoseconds_longer_is_another_recording(tmp_path: Path, *, operators_alone: bool) -> None:
    _of_twelve(operators_alone=operators_alone).write(tmp_path / "a.json")
    _of_twelve(operators_alone=operators_alone, longer_ns=2).write(tmp_path / "b.json")
    assert "same_work_again" not in ledger_counts(convert([tmp_path], Options()))


def test_ranks_of_equal_work_are_two(tmp_path: Path) -> None:
    for rank in range(2):
        _of_twelve(distributedInfo={"rank": rank, "world_size": 2}).write(tmp_path / f"{rank}.json")
    assert "same_work_again" not in ledger_counts(convert([tmp_path], Options()))


def test_a_trace_json_beside_its_profile_is_not_read(tmp_path: Path) -> None:
    shutil.copy(_FIXTURES / "xla_trace_json" / "jax_train_cpu" / "steps.trace.json.gz", tmp_path)
    shutil.copy(_FIXTURES / "xplane" / "jax_train_cpu" / "steps.xplane.pb", tmp_path)
    trace = convert([tmp_path], Options())
    assert trace.frame("runs")["format"].to_list() == ["xplane"]
    assert _detail(trace, "same_run_again").startswith("steps.trace.json.gz was not read")
    (tmp_path / "steps.trace.json.gz").rename(tmp_path / "other.trace.json.gz")
    trace = convert([tmp_path], Options())
    assert trace.frame("runs").height == 2
    assert ledger_counts(trace)["same_work_again"] == 1
