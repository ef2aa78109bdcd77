"""A part of a run: which spans belong to it, that parts add up, and that Nsight files are not read whole for it."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.helpers.fixture_cases import SOUND, FixtureCase, every
from tests.helpers.linked import ledger_counts
from tests.helpers.synth import KinetoTrace
from tests.helpers.synth_nsys import NsightFile
from xsp.cli.main import main
from xsp_ingest.convert import convert
from xsp_ingest.files.sqlite import Database
from xsp_ingest.formats.nsys.sqlite import NSYS_SQLITE
from xsp_ingest.ingester import Options
from xsp_ingest.staging.selection import Selection, narrow, range_of
from xsp_model import Trace, XspError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from xsp_ingest.staging.raw import RawTrace

_OTHER = 200  # another process
_NSYS = [case for case in SOUND if case.name.startswith("nsys_sqlite/")]


@pytest.fixture(name="file")
def fixture_file(tmp_path: Path) -> Path:
    """Two layers of a process, the second one's kernel late; another process on another device. Time 0 is 1000."""
    nsight = NsightFile("3.25")
    nsight.range(1000, 1400, "first layer")
    nsight.launch((1100, 1150), (1200, 1300), "early")
    nsight.range(1500, 1900, "second layer")
    nsight.launch((1600, 1650), (2500, 2600), "late")
    nsight.launch((1700, 1750), (1800, 1850), "other", process=_OTHER, thread=201, device=1)
    nsight.call(2700, 2800, "cudaDeviceSynchronize_v3020")
    return nsight.write(tmp_path / "trace.sqlite")


def _converted(path: Path, **selection: object) -> Trace:
    return convert([path], Options(selection=Selection(**selection)))  # type: ignore[arg-type]


def _names(trace: Trace) -> set[str]:
    return set(trace.frame("spans")["name"].cast(pl.String))


def test_work_belongs_to_the_range_it_starts_in_with_launch_and_layer(file: Path) -> None:
    part = _converted(file, from_ns=1400, to_ns=1600)  # 2400 to 2600 on the file's clock
    assert _names(part) == {"second layer", "cudaLaunchKernel_v7000", "late"}
    spans = part.frame("spans")
    work = spans.filter(pl.col("name").cast(pl.String) == "late")
    layer = spans.filter(pl.col("name").cast(pl.String) == "second layer")
    assert work["layer_id"].to_list() == layer["span_id"].to_list()


def test_the_ledger_says_what_was_left_out(file: Path) -> None:
    ledger = _converted(file, from_ns=1400, to_ns=1600).frame("ledger").filter(pl.col("kind") == "not_selected")
    assert ledger["count"].sort().to_list() == [2, 3]  # kernels early, other; first layer, its call, the last call
    assert ledger["duration_ns"].drop_nulls().to_list() == [150]
    assert all("--range 0.0000014s..0.0000016s" in detail for detail in ledger["detail"].cast(pl.String))


def test_a_process_is_what_it_did_and_launched(file: Path) -> None:
    assert _names(_converted(file, process_ids=(_OTHER,))) == {"cudaLaunchKernel_v7000", "other"}


def test_a_device_is_its_work_with_all_that_the_host_did(file: Path) -> None:
    part = _converted(file, device_ids=(1,))
    assert _names(part) == {
        "first layer",
        "second layer",
        "cudaLaunchKernel_v7000",
        "cudaDeviceSynchronize_v3020",
        "other",
    }


def test_steps_that_reach_out_of_the_range_are_counted(tmp_path: Path) -> None:
    nsight = NsightFile("3.25")
    for step in range(3):
        nsight.range(1000 * step, 1000 * step + 900, f"step {step}")
        nsight.launch((1000 * step + 100, 1000 * step + 150), (1000 * step + 200, 1000 * step + 300))
    path = nsight.write(tmp_path / "trace.sqlite")
    assert ledger_counts(_converted(path, from_ns=1000, to_ns=2000)).get("step_cut") is None
    assert ledger_counts(_converted(path, from_ns=1500, to_ns=2500)).get("step_cut") == 2


def test_nothing_within_the_part_is_an_error(file: Path) -> None:
    with pytest.raises(XspError, match=r"nothing of the file is within --range 90s\.\."):
        _converted(file, from_ns=90_000_000_000)


def _random_file(tmp_path: Path, seed: int) -> Path:
    """Any order of rows, open and bad ends, work without launch, marks, processes and devices."""
    chance, nsight = random.Random(seed), NsightFile("3.25")  # noqa: S311 (no secret)
    for _ in range(60):
        start, length = chance.randrange(5_000, 100_000), chance.randrange(-50, 3_000)
        process = chance.choice((100, _OTHER))
        kind = chance.randrange(5)
        if kind == 0:
            nsight.range(start, None if chance.random() < 0.2 else start + length, f"range {start % 7}")
        elif kind == 1:
            nsight.kernel(start, start + abs(length), correlation=0, process=process, device=chance.randrange(2))
        elif kind == 2:
            nsight.call(start, start + length, "cudaMalloc_v3020", process=process, thread=process + 1)
        else:
            late = start + chance.randrange(100, 30_000)
            nsight.launch(
                (start, start + 50), (late, late + abs(length)), f"kernel {late % 5}",
                process=process, thread=process + 1, device=chance.randrange(2),
            )  # fmt: skip
    return nsight.write(tmp_path / f"{seed}.sqlite")


def _work(raws: Sequence[RawTrace]) -> list[tuple[object, ...]]:
    spans = pl.concat([raw.tables["spans"] for raw in raws]).filter(pl.col("level").cast(pl.String) == "kernel")
    return sorted(spans.select("start_ns", "duration_ns", "device_id", pl.col("name").cast(pl.String)).rows(), key=str)


@pytest.mark.parametrize("seed", range(5))
def test_ranges_side_by_side_hold_each_piece_of_work_once(tmp_path: Path, seed: int) -> None:
    path = _random_file(tmp_path, seed)
    (raw,) = NSYS_SQLITE.read_runs([path], Options())
    edges = [None, *sorted(random.Random(seed).sample(range(1, 100_000), 4)), None]  # noqa: S311
    parts: list[RawTrace] = []
    for first, last in pairwise(edges):
        try:
            parts += NSYS_SQLITE.read_part([path], Options(selection=Selection(first, last)))
        except XspError:  # nothing there
            continue
    assert _work(parts) == _work([raw])


_TABLES = ("spans", "kernels", "copies", "ranges", "operators", "layers")


def _comparable(raw: RawTrace) -> dict[str, list[str]]:
    """Rows without their numbers, which differ with what was read; the detail tables by the spans they are of."""
    spans = raw.tables["spans"]
    named = spans.select(
        "row",
        pl.concat_str(pl.exclude("row", "issued_by_row").cast(pl.String).fill_null("-"), separator="|").alias("span"),
    )
    rows_of = {}
    for name in _TABLES:
        frame = raw.tables[name].join(named, on="row", how="left")
        frame = frame.select(
            pl.exclude("row", "range_id", "issued_by_row", "captured_in_row", "forward_row", "called_by_row")
        )
        rows_of[name] = sorted(str(row) for row in frame.with_columns(pl.col(pl.Categorical).cast(pl.String)).rows())
    return rows_of


def _selections(span_ns: int) -> list[Selection]:
    third = max(span_ns // 3, 1)
    return [
        Selection(third, 2 * third),
        Selection(None, third),
        Selection(2 * third, None),
        Selection(third, 2 * third, device_ids=(0,)),
        Selection(process_ids=(100,)),
        Selection(device_ids=(1,)),
    ]


def _same_as_read_whole(path: Path) -> int:
    (full,) = NSYS_SQLITE.read_runs([path], Options())
    spans = full.tables["spans"]
    length = spans.select(pl.col("start_ns").max() - pl.col("start_ns").min()).item() or 0
    compared = 0
    for selection in _selections(length):
        try:
            expected = narrow(full, selection)
        except XspError:
            with pytest.raises(XspError, match="nothing of the file"):
                NSYS_SQLITE.read_part([path], Options(selection=selection))
            continue
        (part,) = NSYS_SQLITE.read_part([path], Options(selection=selection))
        assert _comparable(part) == _comparable(expected), selection
        left_out = [
            {(f.detail, f.count, f.duration_ns) for f in raw.findings if f.kind in ("not_selected", "step_cut")}
            for raw in (part, expected)
        ]
        assert left_out[0] == left_out[1], selection
        compared += 1
    return compared


@pytest.mark.parametrize("seed", range(5))
def test_a_part_read_by_sql_is_the_part_of_the_whole(tmp_path: Path, seed: int) -> None:
    assert _same_as_read_whole(_random_file(tmp_path, seed)) >= 5


@every(_NSYS)
def test_a_part_of_a_fixture_read_by_sql_is_the_part_of_the_whole(case: FixtureCase) -> None:
    for path in sorted(case.folder.glob("*.sqlite")):
        _same_as_read_whole(path)


@pytest.mark.real
def test_a_part_of_a_real_file_read_by_sql_is_the_part_of_the_whole(real_dir: Path) -> None:
    files = [
        path
        for path in sorted((real_dir / "nsys").glob("*.sqlite"))
        if "h100_fsdp" in path.name or "saxpy" in path.name
    ]
    assert sum(_same_as_read_whole(path) for path in files) >= 3 * len(files)


def test_rows_out_of_the_range_are_not_fetched(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: dict[str, int] = {}
    before = Database._bulk

    def counted(database: Database, query: str, schema: Mapping[str, pl.DataType], bound: int) -> pl.DataFrame:
        rows = before(database, query, schema, bound)
        for table in ("KERNEL", "RUNTIME", "NVTX_EVENTS"):
            if table in query and '"start"' in query:
                fetched[table] = max(fetched.get(table, 0), rows.height)
        return rows

    monkeypatch.setattr(Database, "_bulk", counted)
    _converted(file, from_ns=1400, to_ns=1600)
    assert fetched == {"KERNEL": 1, "RUNTIME": 2, "NVTX_EVENTS": 1}  # the call of the other process was meanwhile


def _kineto(tmp_path: Path) -> Path:
    trace = KinetoTrace()
    trace.operator("aten::first", 0, 100_000)
    trace.launch("early", 10_000, 50_000, 20_000)
    trace.operator("aten::second", 200_000, 100_000)
    trace.launch("late", 210_000, 900_000, 20_000)
    return trace.write(tmp_path / "trace.json")


def test_a_part_of_a_pytorch_trace(tmp_path: Path) -> None:
    part = _converted(_kineto(tmp_path), from_ns=800_000)
    assert {"aten::second", "late"} <= _names(part)
    assert not {"aten::first", "early"} & _names(part)


def test_a_process_of_a_pytorch_trace_has_its_device_work(tmp_path: Path) -> None:
    path = _kineto(tmp_path)
    spans = _converted(path).frame("spans")
    processes = spans["process_id"].unique().to_list()
    assert len(processes) == 1
    assert _converted(path, process_ids=tuple(processes)).row_count == spans.height


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10s..20s", (10_000_000_000, 20_000_000_000)),
        ("1.5ms..", (1_500_000, None)),
        ("..90us", (None, 90_000)),
        ("0s..2min", (0, 120_000_000_000)),
        ("1234567890.123456789s..", (1_234_567_890_123_456_789, None)),
    ],
)
def test_ranges_are_said_with_units(text: str, expected: tuple[int | None, int | None]) -> None:
    assert range_of(text) == expected


@pytest.mark.parametrize("text", ["", "..", "10", "10..20", "20s..10s", "5s..5s", "-1s..2s", "1s-2s", "1h.."])
def test_what_is_no_range_is_an_error(text: str) -> None:
    with pytest.raises(XspError, match="range"):
        range_of(text)


def test_the_command_takes_a_part(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(file), "--range", "1400ns..1600ns"]) == 0
    assert "Device activities left out as asked" in capsys.readouterr().out


def test_a_bundle_cannot_be_narrowed(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(file), "-o", str(tmp_path / "t.xsp"), "--pid", str(_OTHER)]) == 0
    assert main(["info", str(tmp_path / "t.xsp"), "--pid", str(_OTHER)]) == 2
    assert "already converted" in capsys.readouterr().err
