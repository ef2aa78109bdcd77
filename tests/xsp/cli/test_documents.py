"""`xsp info` and `xsp top` for programs: one JSON document each, as the published schemas have it; CSV and Markdown."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.helpers.fixture_cases import SOUND, FixtureCase
from tests.helpers.report_trace import small_trace
from tests.helpers.shaped_trace import shaped
from xsp.cli.main import main
from xsp_model import bundle

_DOCS = Path(__file__).resolve().parents[3] / "docs"


def _schema(command: str) -> Any:  # noqa: ANN401 (JSON)
    return json.loads((_DOCS / f"{command}.schema.json").read_text(encoding="utf-8"))


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main([*map(str, arguments), "--no-cache"]) == 0
    return capsys.readouterr().out


@pytest.fixture
def small(tmp_path: Path) -> Path:
    small_trace(tmp_path)
    return tmp_path / "small.json"


@pytest.mark.parametrize("command", ["info", "top"])
@pytest.mark.parametrize("case", SOUND[:: max(len(SOUND) // 8, 1)], ids=lambda c: c.name)
def test_documents_are_as_their_schema_has_them(
    case: FixtureCase, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(_printed(capsys, command, case.folder, "-f", "json"))
    jsonschema.validate(document, _schema(command))


def test_the_ranking_s_parts_add_up_to_device_time(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Per step 40 us in Linear_0 and 20 us in ReLU_0, in the second step twice that: 60 and 120 us, 90 us on average.
    document = json.loads(_printed(capsys, "top", small, "-n", "1", "-f", "json"))
    jsonschema.validate(document, _schema("top"))
    layers, kernels = document["rankings"][:2]
    assert (document["step_count"], layers["ranking"]) == (2, "layers_by_device_time")
    assert layers["whole_ns"] == kernels["whole_ns"] == pytest.approx(90_000, abs=2)
    assert [(row["rank"], row["name"], row["layer_index"]) for row in layers["rows"]] == [(1, "Linear_0", 0)]
    assert layers["rows"][0]["time_ns"] == pytest.approx(60_000, abs=2)
    assert layers["rows"][0]["share"] == pytest.approx(2 / 3, abs=1e-4)
    assert (layers["more_count"], layers["more_ns"]) == (1, pytest.approx(30_000, abs=2))
    assert layers["outside_ns"] == pytest.approx(0, abs=2)
    assert kernels["outside_ns"] is None
    assert document["provenance"]["sources"][0]["file"] == "small.json"


def test_gains_have_the_roof_that_is_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle.write(shaped(), tmp_path / "t.xsp")
    document = json.loads(_printed(capsys, "top", tmp_path / "t.xsp", "-f", "json"))
    jsonschema.validate(document, _schema("top"))
    gains = next(each for each in document["rankings"] if each["ranking"] == "operators_by_gain")
    assert [(row["operator"], row["roof_share"], row["time_ns"]) for row in gains["rows"]] == [
        ("aten::mm", pytest.approx(0.5), 24_000.0),
        ("aten::relu", pytest.approx(0.25), 12_000.0),
    ]


def test_csv_has_every_ranking_at_full_precision(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(_printed(capsys, "top", small, "-n", "2", "-f", "csv").splitlines()))
    assert list(rows[0]) == ["ranking", "rank", "name", "time_ns", "share"]
    assert [(row["ranking"], row["rank"], row["name"]) for row in rows[:2]] == [
        ("layers_by_device_time", "1", "Linear_0"),
        ("layers_by_device_time", "2", "ReLU_0"),
    ]
    assert float(rows[0]["time_ns"]) == pytest.approx(60_000, abs=2)


def test_markdown_has_a_table_a_ranking(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _printed(capsys, "top", small, "-n", "1", "-f", "md")
    assert text.count("| name | time | share |") == 2
    assert "| Linear\\_0 |" in text
    assert "| and 1 more |" in text
    assert "<script>" not in text


def test_a_trace_without_anything_to_rank_is_a_document_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "host.json").write_text(
        '{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1, "cat": "cpu_op"}]}'
    )
    document = json.loads(_printed(capsys, "top", tmp_path / "host.json", "-f", "json"))
    jsonschema.validate(document, _schema("top"))
