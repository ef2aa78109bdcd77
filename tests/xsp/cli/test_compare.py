"""`xsp compare` as it is called: exit statuses, files for CI, baselines."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.helpers.captures import Noise, Work, capture
from tests.helpers.hand import Hand
from xsp.cli.main import main
from xsp_model import bundle

_NOISE = Noise(kernel=0.01, step=0.005)
_RULE = "model.latency > +5%"  # one capture a side: noise of captures reaches farther than 3 %


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles: before, again (the same work), slower (a layer takes 1.5 times as long), other (another model)."""
    folder = tmp_path_factory.mktemp("bundles")
    work = Work()
    slower = replace(work, slower={11: 1.5})
    runs = {"before": work, "again": work, "third": work, "slower": slower, "other": replace(work, model="else")}
    for seed, (name, one) in enumerate(runs.items()):
        bundle.write(capture(one, seed, _NOISE), folder / f"{name}.xsp")
    return folder


def test_two_captures_are_compared_and_nothing_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(folder / "before.xsp"), str(folder / "slower.xsp")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("before: before.xsp (net, batch 8")
    assert "Net_0.Linear_11" in out


def test_json_is_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(folder / "before.xsp"), str(folder / "slower.xsp"), "-f", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {"comparable", "match", "model", "rows"} <= answer.keys()
    assert next(r["name"] for r in answer["rows"] if r["level"] == "layer") == "Linear_11"


def test_a_broken_rule_exits_with_1_and_writes_what_ci_reads(folder: Path, tmp_path: Path) -> None:
    files = ["--junit", str(tmp_path / "deep" / "junit.xml"), "--markdown", str(tmp_path / "summary.md")]
    ran = main(["compare", str(folder / "before.xsp"), str(folder / "slower.xsp"), "--fail-on", _RULE, *files])
    assert ran == 1
    root = ET.fromstring((tmp_path / "deep" / "junit.xml").read_bytes())  # noqa: S314 (our own)
    assert root.get("failures") == "1"
    assert (tmp_path / "summary.md").read_text().startswith("### 1 of 1 performance rules broken")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "summary.md"]


def test_rules_that_hold_exit_with_0(folder: Path) -> None:
    names = [str(folder / f"{name}.xsp") for name in ("before", "again")]
    assert main(["compare", *names, "--fail-on", _RULE, "--fail-on", 'layer["*"].latency > +10%']) == 0


@pytest.mark.parametrize(
    ("after", "arguments", "status"),
    [
        ("again", ["--fail-on", "model.latency > +1%"], 0),
        ("again", ["--fail-on", "model.latency > +1%", "--fail-on-inconclusive"], 3),
        ("again", ["--fail-on", _RULE, "--fail-on-inconclusive"], 0),
        ("slower", ["--fail-on", _RULE, "--fail-on", "layer.latency > +1%", "--fail-on-inconclusive"], 1),
        ("again", ["--fail-on-inconclusive"], 0),  # without rules: of latency itself
        ("again", ["--fail-on-inconclusive", "--steps", "all"], 3),  # nothing is known of noise
    ],
)
def test_a_gate_can_fail_where_noise_leaves_it_open(
    folder: Path, after: str, arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(folder / "before.xsp"), str(folder / f"{after}.xsp"), *arguments]) == status
    assert ("inconclusive  model.latency > +1%" in capsys.readouterr().out) is ("model.latency > +1%" in arguments)


def test_several_captures_a_side_measure_the_noise_between_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, again, third, slower = (str(folder / f"{n}.xsp") for n in ("before", "again", "third", "slower"))
    assert main(["compare", before, slower, "--also-before", again, "--also-before", third, "-f", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["before"]["captures"] == 3
    assert answer["statistics"]["run_noise_source"] == "captures"
    assert answer["rows"][0]["significant"] is True


def test_a_capture_is_compared_with_its_copy(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder / "before.xsp", tmp_path / "copy.xsp")
    assert main(["compare", str(folder / "before.xsp"), str(copy)]) == 0
    assert main(["compare", str(folder / "before.xsp"), str(folder / "before.xsp")]) == 0


def test_a_copy_is_no_further_capture_of_a_side(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(folder / "before.xsp", tmp_path / "copy.xsp")
    before, slower = (str(folder / f"{name}.xsp") for name in ("before", "slower"))
    assert main(["compare", before, slower, "--also-before", str(copy)]) == 2
    assert f"{copy}: holds what before.xsp does" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["before.xsp"], "takes two inputs"),
        (["before.xsp", "nowhere.xsp"], "there is no such file"),
        (["before.xsp", "again.xsp", "--fail-on", "model.speed > 1%"], "has no 'speed'"),
        (["before.xsp", "other.xsp", "--fail-on", _RULE], "different model: net before, else after"),
        (["before.xsp", "again.xsp", "--steps", "each"], "no way to compare steps"),
        (["again.xsp", "--baseline", "main"], "no such file of baselines"),
        (["before.xsp", "again.xsp", "--fail-on", 'layer["conv*"].latency > 1%'], "there is no layer 'conv*'"),
    ],
)
def test_what_the_user_can_mend_is_one_sentence_and_status_2(
    folder: Path,
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    assert main(["compare", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert sentence in shown.err


def test_a_junit_file_that_cannot_be_written_is_told_before_the_work(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    names = [str(folder / f"{name}.xsp") for name in ("before", "again")]
    assert main(["compare", *names, "--junit", str(tmp_path / "file" / "junit.xml")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_baseline_is_remembered_relative_to_its_file_and_compared_with(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "baselines.toml"
    file.write_text('# ours\n[baselines.old]\ninputs = ["gone.xsp"]\n')
    where = ["--baselines", str(file)]
    also = ["--also-after", str(folder / "again.xsp")]
    assert main(["compare", str(folder / "before.xsp"), *also, "--save-baseline", "main", *where]) == 0
    text = file.read_text()
    assert text.startswith("# ours\n[baselines.old]")
    assert str(folder) not in text
    capsys.readouterr()
    assert main(["compare", "--baseline", "main", str(folder / "slower.xsp"), *where, "--fail-on", _RULE]) == 1
    assert capsys.readouterr().out.startswith("before: baseline main (net, batch 8")


def test_a_baseline_is_not_moved_where_a_rule_is_broken(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "baselines.toml"
    where = ["--baselines", str(file), "--save-baseline", "main"]
    assert main(["compare", str(folder / "before.xsp"), *where]) == 0
    first = file.read_text()
    held = ["--baseline", "main", "--fail-on", _RULE]
    assert main(["compare", *held, str(folder / "slower.xsp"), *where]) == 1
    assert file.read_text() == first
    assert main(["compare", *held, str(folder / "again.xsp"), *where]) == 0
    assert "again.xsp" in file.read_text()
    assert file.read_text().count("[baselines.main]") == 1


def test_an_unknown_baseline_names_those_that_there_are(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "baselines.toml"
    file.write_text('[baselines.main]\ninputs = ["x.xsp"]\n')
    assert main(["compare", "--baseline", "man", str(folder / "again.xsp"), "--baselines", str(file)]) == 2
    assert "there is no baseline 'man'. It has main" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[baselines", "baselines = 3", "[baselines.main]\ninputs = []", "\x00"])
def test_a_file_that_holds_no_baselines_is_told(
    folder: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "baselines.toml"
    file.write_text(text)
    assert main(["compare", "--baseline", "main", str(folder / "again.xsp"), "--baselines", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {file}")


@pytest.fixture(name="batches", scope="module")
def fixture_batches(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What `xsp batch` makes of the bundles: a model that both have, one that became slower, one that only one has."""
    work = tmp_path_factory.mktemp("batches")
    of_sides = ({"net": "before", "slow": "again", "gone": "third"}, {"net": "third", "slow": "slower"})
    for side, models in zip(("one", "two"), of_sides, strict=True):
        inputs = work / f"{side}-inputs"
        inputs.mkdir()
        for name, source in models.items():
            shutil.copytree(folder / f"{source}.xsp", inputs / f"{name}.xsp")
        assert main(["batch", str(inputs), "-o", str(work / side), "--jobs", "1"]) == 0
    return str(work / "one"), str(work / "two")


@pytest.mark.slow
def test_batches_are_compared_model_by_model(
    batches: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = ["--fail-on", _RULE, "--junit", str(tmp_path / "j.xml"), "--markdown", str(tmp_path / "m.md")]
    capsys.readouterr()
    assert main(["compare", *batches, "-f", "json", *rules]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert {pair["name"].removesuffix(".xsp"): pair["rules"][0]["verdict"] for pair in answer["pairs"]} == {
        "net": "kept",
        "slow": "broken",
    }
    assert [name.removesuffix(".xsp") for name in answer["only_before"]] == ["gone"]
    suites = ET.fromstring((tmp_path / "j.xml").read_bytes())  # noqa: S314 (our own)
    assert (len(suites), suites.get("failures")) == (2, "1")
    assert (tmp_path / "m.md").read_text().startswith("### 1 of 2 models break performance rules")


@pytest.mark.slow
def test_batches_as_a_table_have_a_row_a_model_and_name_what_only_one_side_has(
    batches: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["compare", *batches]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Models (2)"
    rule = next(at for at, line in enumerate(lines) if line.startswith("\u2500"))
    assert lines[rule + 1].split()[0].removesuffix(".xsp") == "slow"
    assert "Linear_11" in lines[rule + 1]
    assert lines[-1].startswith("Only before: gone")


def test_a_batch_is_not_compared_with_a_trace(
    batches: tuple[str, str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", batches[0], str(folder / "before.xsp")]) == 2
    assert "a batch is compared with one other batch" in capsys.readouterr().err


def test_a_rule_that_no_model_of_the_batches_has_a_row_for_is_an_error(
    batches: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *batches, "--fail-on", 'layer["conv*"].latency > 1%']) == 2
    assert "no model of the batches has such a layer" in capsys.readouterr().err


def test_the_same_content_under_two_names_is_one_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(folder / "before.xsp", tmp_path / "copy.xsp")
    page = tmp_path / "page.html"
    names = [str(folder / "before.xsp"), str(tmp_path / "copy.xsp")]
    assert main(["compare", *names, "--html", str(page)]) == 0
    sentence = "before.xsp and copy.xsp hold the same: there is nothing to compare."
    assert capsys.readouterr().out == f"{sentence}\n"
    assert sentence in page.read_text()
    assert "<table" not in page.read_text()
    rules = ["--fail-on", "model.latency > +1%", "--fail-on-inconclusive"]
    assert main(["compare", *names, *rules, "-f", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["same_content"], answer["rules"][0]["verdict"]) == (True, "kept")


def test_traces_with_nothing_in_common_are_refused_in_a_sentence(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hand = Hand()
    hand.run(0)
    for step in range(3):
        step_id = hand.step(step, step * 10_000, 10_000)
        layer = hand.module("Other_0.Conv_0", step * 10_000, 5_000, 0, step=step, parent_id=step_id)
        hand.work("conv_kernel", step * 10_000, 4_000, launch=step * 10_000, parent=layer, layer=layer, step=step,
                  phase="forward")  # fmt: skip
    bundle.write(hand.build(), tmp_path / "else.xsp")
    assert main(["compare", str(folder / "before.xsp"), str(tmp_path / "else.xsp")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: before.xsp and else.xsp have nothing in common, no layer, operator nor kernel.")
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_profile_of_several_runs_that_has_nothing_in_common_is_refused_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fixtures = Path(__file__).parents[3] / "fixtures"
    names = [fixtures / "torch_profiler" / "odd_names" / "trace.json", fixtures / "run_set" / "convnet_v100_synthetic"]
    assert main(["compare", *map(str, names)]) == 2
    assert "have nothing in common" in capsys.readouterr().err
