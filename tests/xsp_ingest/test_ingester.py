"""How one ingester is chosen of several, and what one must have: a format of another distribution, for instance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from xsp_ingest import registry
from xsp_ingest.convert import convert
from xsp_ingest.files.content import Probe
from xsp_ingest.ingester import Ingester, Match, Options, choose, claimants_of, files_of_layout, owner_of, units
from xsp_ingest.staging.raw import RAW_TABLES, RawTrace, RunFacts, frame_of
from xsp_model import XspError, errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class _Toy(Ingester):
    """A format of which nothing but the needful is written: its files begin with a mark."""

    name: str
    match: Match = Match.EXACT
    title: str = "a toy"

    def sniff(self, probe: Probe) -> Match:
        return self.match if probe.text.startswith(b"toy") else Match.NONE

    def read(self, path: Path, options: Options) -> RawTrace:
        del path, options
        return RawTrace({name: frame_of(name) for name in RAW_TABLES}, RunFacts(profiler=self.name))


@pytest.fixture
def toy_file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"toy")
    return path


def test_the_exact_match_wins_over_the_generic_one(toy_file: Path) -> None:
    ingesters = [_Toy("general", Match.GENERIC), _Toy("own")]
    assert choose(toy_file, ingesters).name == "own"
    assert [i.name for i in claimants_of(Probe(toy_file), ingesters)] == ["own"]


def test_a_generic_match_reads_what_nothing_else_takes(toy_file: Path) -> None:
    assert choose(toy_file, [_Toy("general", Match.GENERIC), _Toy("none", Match.NONE)]).name == "general"


@pytest.mark.parametrize("match", [Match.GENERIC, Match.EXACT])
def test_two_matches_of_a_rank_are_an_error_that_names_both(toy_file: Path, match: Match) -> None:
    with pytest.raises(XspError, match="several formats claim the file: one, other"):
        choose(toy_file, [_Toy("one", match), _Toy("other", match)])


def test_an_ingester_needs_no_more_than_to_sniff_and_to_read(toy_file: Path) -> None:
    toy = _Toy("toy")
    assert units([(toy_file, toy)]) == [([toy_file], toy)]
    (run,) = toy.read_runs([toy_file], Options())
    assert run.facts.profiler == "toy"
    assert owner_of(toy_file.parent, [toy]) is None
    assert not files_of_layout(toy_file.parent, [toy])
    assert not toy.is_supplement


class _Point:
    """An entry point that another distribution has."""

    value = "elsewhere:TOY"

    def __init__(self, name: str, target: object) -> None:
        self.name = name
        self._target = target

    def load(self) -> object:
        if isinstance(self._target, BaseException):
            raise self._target
        return self._target


@pytest.fixture(name="points")
def fixture_points(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[_Point]]:
    points: list[_Point] = []
    monkeypatch.setattr(errors, "entry_points", lambda group: points if group == registry.ENTRY_POINTS else [])
    registry._ingesters_of_others.cache_clear()
    yield points
    registry._ingesters_of_others.cache_clear()


def test_a_format_of_another_distribution_is_read(toy_file: Path, points: list[_Point]) -> None:
    points.append(_Point("toy", _Toy("toy")))
    assert choose(toy_file, registry.all_ingesters()).name == "toy"
    assert convert([toy_file], Options()).frame("runs")["profiler"].to_list() == ["toy"]


def test_an_entry_point_that_is_no_ingester_is_named(points: list[_Point]) -> None:
    points.append(_Point("odd", object()))
    with pytest.raises(XspError, match=r"entry point odd of .* is no Ingester"):
        registry.all_ingesters()


@pytest.mark.parametrize("error", [ModuleNotFoundError("No module named 'gone'"), SystemExit(7), ValueError("a\nb")])
def test_an_entry_point_that_cannot_be_loaded_is_named(points: list[_Point], error: BaseException) -> None:
    points.append(_Point("toy", error))
    with pytest.raises(XspError, match=rf"entry point toy of xsp\.ingesters cannot be loaded \({type(error).__name__}"):
        registry.all_ingesters()


@pytest.mark.parametrize("names", [("torch_profiler",), ("toy", "toy"), (None,)])
def test_a_format_of_another_distribution_has_a_name_of_its_own(points: list[_Point], names: Sequence[str]) -> None:
    points += [_Point(f"p{number}", _Toy(name)) for number, name in enumerate(names)]
    with pytest.raises(XspError, match=r"entry point p. of xsp\.ingesters has no name of its own for its format"):
        registry.all_ingesters()


class _Faulty(_Toy):
    """Fails wherever it is told to."""

    def sniff(self, probe: Probe) -> Match:
        return None if self.title == "sniff" else super().sniff(probe)  # type: ignore[return-value]

    def sniff_folder(self, folder: Path) -> bool:
        return bool(1 / (self.title != "sniff_folder")) and super().sniff_folder(folder)

    def read(self, path: Path, options: Options) -> RawTrace:
        raise KeyError(path.name + "\n", options)


@pytest.mark.parametrize(
    ("where", "error", "named"),
    [
        ("sniff", "ValueError", "file"),
        ("sniff", "ValueError", "folder"),
        ("sniff_folder", "ZeroDivisionError", "folder"),
        ("read", "KeyError", "file"),
        ("read", "KeyError", "folder"),
    ],
)
def test_a_fault_of_another_distribution_is_told_as_its_own(
    toy_file: Path, points: list[_Point], where: str, error: str, named: str
) -> None:
    points.append(_Point("toy", _Faulty("toy", title=where)))
    with pytest.raises(XspError, match=rf"plug-in that reads 'toy' fails \({error}") as fault:
        convert([toy_file.parent if named == "folder" else toy_file], Options())
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(("runs", "gives"), [(None, "NoneType"), ("a file", "str")])
def test_what_another_distribution_gives_for_a_run_is_a_run(
    toy_file: Path, points: list[_Point], monkeypatch: pytest.MonkeyPatch, runs: object, gives: str
) -> None:
    monkeypatch.setattr(_Toy, "read", lambda *_: runs)
    points.append(_Point("toy", _Toy("toy")))
    with pytest.raises(XspError, match=rf"plug-in that reads 'toy' gives {gives} for a run") as fault:
        convert([toy_file], Options())
    assert "\n" not in str(fault.value)


def test_trace_events_are_kinetos_by_their_categories_and_a_tools_by_its_marks(tmp_path: Path) -> None:
    contents = {
        '{"traceEvents": [{"ph": "X", "name": "a"}]}': "chrome_trace",
        '[{"ph": "X", "name": "a"}]': "chrome_trace",
        '[{"ph": "X", "cat": "cpu_op"}]': "torch_profiler",
        '{"schemaVersion": 1, "traceEvents": []}': "torch_profiler",
        '{"traceEvents": [{"ph": "M", "name": "process_name", "args": {"name": "Allocators"}}]}': "tf_timeline",
        '[{"cat": "Session", "pid": 1, "ph": "X"}]': "onnxruntime",
    }
    for content, name in contents.items():
        (tmp_path / "file.json").write_text(content)
        assert [i.name for i in claimants_of(Probe(tmp_path / "file.json"), registry.all_ingesters())] == [name], (
            content
        )
