"""A short round of fuzzing, the same trials each time: readers end in a sound trace or in an error of one sentence."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.campaign import fuzz_format
from fuzz.mutate import mutate
from fuzz.seeds import formats, seeds
from fuzz.trial import compiled_readers, outcome_of, prepare
from tests.helpers.examples import examples
from xsp_ingest.registry import all_ingesters

_TRIALS = 12 if "XSP_THOROUGH" in os.environ else 5
_FORMATS = sorted({i.name for i in all_ingesters()} & set(formats()))
_FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


@pytest.mark.parametrize("name", _FORMATS)
def test_damaged_fixtures_end_in_a_trace_or_in_a_refusal(name: str, tmp_path: Path) -> None:
    for number in range(_TRIALS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with compiled_readers(number):
            outcome = outcome_of(*prepare(name, number, folder))
        assert outcome.failure is None, f"python -m fuzz --format {name} --trial {number}"


@pytest.mark.slow
def test_a_worker_reports_how_its_trials_ended() -> None:
    result = fuzz_format("ncu_report", first=0, seconds=math.inf, trials=5)
    assert (dict(result.ended), result.failures, result.next) == ({"refused": 5}, {}, 5)
    assert 0 < result.peak_bytes < 1_000_000_000


def test_a_trial_is_the_same_each_time(tmp_path: Path) -> None:
    contents = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        paths, format_name = prepare("jaeger", 7, tmp_path / name)
        contents.append(([path.read_bytes() for path in paths], format_name))
    assert contents[0] == contents[1]


@settings(max_examples=examples(40), derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 1 << 30), kind=st.sampled_from(["jaeger", "ncu_csv", "nsys_sqlite", "xplane"]))
def test_damage_is_mostly_damage_and_never_fails(seed: int, kind: str) -> None:
    one = seeds(kind)[seed % len(seeds(kind))]
    content = (one.folder / one.files[0]).read_bytes()
    assert isinstance(mutate(content, Random(seed)), bytes)  # noqa: S311 (damage, no secret)


# What fuzzing found, each as the smallest input that showed it. Keep them: a reader may be written anew.


def test_a_size_beyond_64_bits_in_a_table_of_counters(tmp_path: Path) -> None:
    text = (_FIXTURES / "ncu_csv/raw_page/ncu.csv").read_text(encoding="utf-8")
    (tmp_path / "ncu.csv").write_text(text.replace(", 1)", ", 18446744073709551615)"), encoding="utf-8")
    assert outcome_of([tmp_path / "ncu.csv"], "ncu_csv").kind == "trace"


def test_a_number_of_thousands_of_digits_in_a_trace(tmp_path: Path) -> None:
    event = json.dumps({"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": {}})
    content = (
        '{"schemaVersion": 1, "traceEvents": [' + event.replace("{}", '{"External id": ' + "9" * 5000 + "}") + "]}"
    )
    (tmp_path / "t.json").write_text(content, encoding="utf-8")
    assert outcome_of([tmp_path / "t.json"], None).kind == "trace"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE StringIds SET id = NULL",
        "ALTER TABLE StringIds DROP COLUMN id",
        "UPDATE TARGET_INFO_GPU SET id = NULL, cuDevice = NULL",
    ],
)
def test_rows_of_an_export_without_their_ids(tmp_path: Path, change: str) -> None:
    path = tmp_path / "trace.sqlite"
    path.write_bytes((_FIXTURES / "nsys_sqlite/graphs_synthetic/trace.sqlite").read_bytes())
    with closing(sqlite3.connect(path)) as database:
        database.execute(change)
        database.commit()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outcome_of([path], None).kind == "trace"


def test_a_time_beyond_64_bits_in_jaeger_spans(tmp_path: Path) -> None:
    text = (_FIXTURES / "jaeger/mlmodelscope_leveled_synthetic/traces.json").read_text(encoding="utf-8")
    document = json.loads(text)
    document["data"][0]["spans"][3]["duration"] = 2**63 - 1
    document["data"][0]["spans"][4]["startTime"] = 2**63 - 1
    (tmp_path / "t.json").write_text(json.dumps(document), encoding="utf-8")
    assert outcome_of([tmp_path / "t.json"], None).kind == "trace"


def test_facts_of_a_trace_beyond_64_bits(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 1 << 63, "numSms": -(1 << 70), "totalGlobalMem": 1 << 64}],
        "distributedInfo": {"rank": 1 << 63, "world_size": (1 << 64) - 1},
    }
    (tmp_path / "t.json").write_text(json.dumps({**head, "traceEvents": [event]}), encoding="utf-8")
    assert outcome_of([tmp_path / "t.json"], None).kind == "trace"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("nsys_sqlite", 1258),  # SQLite's own message, which repeats the file over several lines
        ("nsys_sqlite", 2288),  # rows that are not found under their number
        ("cupti_dump", 2585),  # a header of thousands of levels
        ("nvprof", 495),  # a gzip stream that is damaged
        ("xplane", 1287),  # nothing at all, with the format given
        ("xplane", 1718),  # a step without a name
        ("xplane", 1778),  # a start of the profile beyond 63 bits
        ("xplane", 4340),  # a clock rate that is beyond 63 bits once it is in Hz
    ],
)
def test_what_long_rounds_found(name: str, number: int, tmp_path: Path) -> None:
    assert outcome_of(*prepare(name, number, tmp_path)).failure is None
