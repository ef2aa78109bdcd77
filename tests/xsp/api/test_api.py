"""The Python API: the same answers as the command's, from inputs named in the same ways, safe to show in a notebook."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import xsp
from tests.helpers.batches import trace_of
from tests.helpers.report_trace import small_trace
from tests.helpers.run_sets import write_run
from tests.helpers.synth import KinetoTrace
from xsp.cli.main import main
from xsp.reading import defaults
from xsp_analyze.render import render_one

if TYPE_CHECKING:
    from collections.abc import Callable

_REPO = Path(__file__).resolve().parents[3]
_PLANTED = "<img src=x onerror=alert(1)>\u202e&amp;"


@pytest.fixture(name="raw")
def fixture_raw(tmp_path: Path) -> Path:
    small_trace(tmp_path)
    return tmp_path / "small.json"


@pytest.fixture(name="small")
def fixture_small(raw: Path) -> xsp.OpenTrace:
    return xsp.open(raw)


def _planted(folder: Path, duration_ns: int = 3_000) -> xsp.OpenTrace:
    trace = KinetoTrace()
    launch = trace.runtime("cudaLaunchKernel", 1_000, 500)
    trace.kernel(_PLANTED, 2_000, duration_ns, correlation=launch)
    path = folder / f"{_PLANTED.replace('/', '')}.json"
    trace.write(path)
    return xsp.open(path)


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = (
        "import sys, xsp, xsp_analyze; print(*({'polars', 'pyarrow', 'pandas', 'numpy', 'numba'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=_REPO, check=True, capture_output=True, text=True)
    assert ran.stdout.split() == []


def test_everything_the_package_offers_is_there() -> None:
    assert {name for name in xsp.__all__ if getattr(xsp, name).__doc__} == set(xsp.__all__)
    assert set(xsp.__all__) <= set(dir(xsp))
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        xsp.opne  # noqa: B018 (a slip of the fingers)


@pytest.mark.parametrize("steps", ["mean", "all", "each"])
def test_an_answer_is_the_command_s(
    raw: Path, small: xsp.OpenTrace, steps: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["analyze", str(raw), "-a", "A10", "-f", "json", "--steps", steps]) == 0
    assert render_one(small.analyze("a10", steps=steps), "json") == capsysbinary.readouterr().out


def test_an_answer_is_one_table_in_three_libraries(small: xsp.OpenTrace) -> None:
    result = small.analyze("A10", steps="all")
    assert result.to_polars()["duration_ns"].to_list() == result.to_pandas()["duration_ns"].tolist()
    assert result.to_polars()["duration_ns"].to_list() == result.to_arrow()["duration_ns"].to_pylist()
    assert result.to_polars()["duration_ns"].sum() == small.info().device_time_ns


def test_a_step_may_be_a_number(small: xsp.OpenTrace) -> None:
    one, *_ = small.table("spans")["step"].drop_nulls().unique().sort()
    assert small.analyze("A10", steps=one).to_polars().equals(small.analyze("A10", steps=str(one)).to_polars())


def test_tables_are_the_trace_s(small: xsp.OpenTrace) -> None:
    assert small.table("spans").height == small.trace.row_count
    assert small.scan("layers").collect().equals(small.table("layers"))
    with pytest.raises(xsp.XspError, match=r"there is no table 'span'\. Did you mean spans"):
        small.table("span")


def test_analyses_say_which_can_be_answered(small: xsp.OpenTrace) -> None:
    able = dict(small.analyses().select("id", "answerable").iter_rows())
    assert able["A10"]
    assert not able["B02"]
    with pytest.raises(xsp.XspError, match="needs"):
        small.analyze("B02")


def test_info_counts(small: xsp.OpenTrace) -> None:
    info = small.info()
    counted = dict(small.sql("select level, count(*) from spans group by level").iter_rows())
    assert info.spans_by_level == counted
    assert info.coverage is not None
    assert "device time" in str(info)


def test_info_says_what_to_record(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.kernel("gemm", 4_000, 300, correlation=trace.runtime("cudaGraphLaunch", 3_000, 50))
    info = xsp.open(trace.write(tmp_path / "replay.json")).info()
    assert [one.topic for one in info.recording] == ["graph replays"]
    assert "recording    graph replays: 100\u202f% of device time is replays of graphs without layers; record" in str(
        info
    )


def test_findings_are_a_sequence_and_a_table(small: xsp.OpenTrace) -> None:
    findings = small.findings()
    assert [one.rule.id for one in findings] == findings.to_polars()["id"].to_list()
    assert len(findings[:2]) == 2
    assert findings.to_polars().filter(pl.col("id") == "gpu-idle")["gain_ns"].item() == pytest.approx(906_996.5)
    assert "gpu-idle" in str(findings)


def test_files_are_written_whole_and_named(small: xsp.OpenTrace, tmp_path: Path) -> None:
    assert small.report(tmp_path / "r.html").read_text(encoding="utf-8").endswith("</html>\n")
    chrome = json.loads(small.export(tmp_path / "t.json", to="chrome").read_bytes())
    assert chrome["traceEvents"]
    again = xsp.open(small.save(tmp_path / "t.xsp"))
    assert again.table("spans").equals(small.table("spans"))
    assert again.name == "t.xsp"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "small.json", "t.json", "t.xsp"]


def test_what_cannot_be_written_is_one_sentence(small: xsp.OpenTrace, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(xsp.XspError, match="cannot be written"):
        small.report(tmp_path / "file" / "x.html")
    with pytest.raises(xsp.XspError, match="cannot be written"):
        small.save(tmp_path / "file" / "x.xsp")
    with pytest.raises(xsp.XspError, match="cannot be written"):
        small.export(tmp_path / "file" / "x.json", to="chrome")


@pytest.mark.parametrize("shown", ["trace", "info", "answer", "findings", "compared"])
def test_text_of_a_trace_is_only_ever_text_in_a_notebook(shown: str, tmp_path: Path) -> None:
    trace = _planted(tmp_path)
    what: Any = {
        "trace": lambda: trace,
        "info": trace.info,
        "answer": lambda: trace.analyze("A10", steps="all"),
        "findings": trace.findings,
        "compared": lambda: trace.compare(_planted(tmp_path, 4_000), steps="all"),
    }
    html = what[shown]()._repr_html_()
    assert "<img" not in html
    assert "\u202e" not in html
    if shown in {"trace", "answer", "compared"}:
        assert "&lt;img src=x onerror=alert(1)&gt;" in html


def test_a_long_name_is_cut_and_kept_whole_under_the_pointer(tmp_path: Path) -> None:
    trace = KinetoTrace()
    name = f'void k<{"a" * 300}>::run("x")'
    trace.kernel(name, 2_000, 3_000, correlation=trace.runtime("cudaLaunchKernel", 1_000, 500))
    trace.write(tmp_path / "long.json")
    html = xsp.open(tmp_path / "long.json").analyze("A10", steps="all")._repr_html_()
    assert f'title="void k&lt;{"a" * 300}&gt;::run(&quot;x&quot;)"' in html
    assert html.count("a" * 300) == 1


def test_a_run_set_is_merged(tmp_path: Path) -> None:
    trace = KinetoTrace()
    trace.kernel("k", 2_000, 3_000, correlation=trace.runtime("cudaLaunchKernel", 1_000, 500))
    facts: dict[str, Any] = {"batch_size": 1, "device": {"name": "by hand"}}
    write_run(tmp_path / "set" / "m", "M", **facts, step_durations_ns=[9_000, 9_000])
    write_run(tmp_path / "set" / "mlg", "MLG", trace, **facts, step_durations_ns=[9_500])
    assert set(xsp.open(tmp_path / "set").table("runs")["role"]) >= {"model", "kernels"}


def test_a_pattern_and_several_files_are_one_trace(fixtures_dir: Path) -> None:
    folder = fixtures_dir / "torch_profiler" / "two_ranks"
    by_pattern = xsp.open(folder / "rank*.json.gz")
    assert by_pattern.table("spans").equals(xsp.open(*sorted(folder.glob("rank*.gz"))).table("spans"))
    assert by_pattern.name == "rank0.json.gz and 1 more"


@pytest.mark.parametrize(
    ("inputs", "options", "says"),
    [
        ((), {}, "nothing to open"),
        (("nowhere.json",), {}, "there is no such file or folder"),
        (("nowhere*.json",), {}, "nothing matches this pattern"),
        (("nowhere.json",), {"layer_source": "modules"}, "'modules' is no layer source. Choose of auto, module"),
    ],
)
def test_what_cannot_be_opened_is_one_sentence(inputs: tuple[str, ...], options: dict[str, str], says: str) -> None:
    with pytest.raises(xsp.XspError, match=says):
        xsp.open(*inputs, **options)  # type: ignore[arg-type]


_NEEDED: dict[str, dict[str, Any]] = {
    "sql": {"query": "select 1 from A10"},
    "analyze": {"analysis": "A10"},
    "export": {"path": "out.json", "to": "chrome"},
}
"""What functions are asked with beside the argument that is odd."""

_ODD: dict[str, Any] = {
    "None": None, "a fraction": 1.5, "empty": "", "NUL": "\0", "half a character": "\ud800", "a list": ["a"],
    "a mapping": {"a": 1}, "a folder": Path("folder"), "a huge number": 1 << 70, "a negative": -1, "bytes": b"a",
    "true": True, "no number": float("nan"), "an object": object(), "long": "x" * 5_000, "no user": "~nobody-here/x",
    "a path with NUL": Path("a\0"), "bytes in a list": [b"a"], "a list in a list": [[1]], "a range": range(3),
}  # fmt: skip


_OPEN: Any = xsp.open  # as who checks no types calls it


def _expect_answer_or_sentence(ask: Callable[[], object]) -> None:
    try:
        ask()
    except xsp.XspError as error:
        sentence = str(error)
    else:
        return
    assert sentence.isprintable()


@pytest.mark.parametrize("kind", ["trace", "compared"])
@pytest.mark.parametrize("value", _ODD.values(), ids=_ODD)
def test_an_odd_argument_ends_in_an_answer_or_a_sentence(
    small: xsp.OpenTrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, value: object
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    which = small if kind == "trace" else small.compare(small)
    functions = [getattr(which, name) for name in dir(type(which)) if not name.startswith("_")]
    for function in filter(inspect.ismethod, functions):
        needed = {"after": small} if function.__name__ == "compare" else _NEEDED.get(function.__name__, {})
        for parameter in inspect.signature(function).parameters:
            _expect_answer_or_sentence(partial(function, **{**needed, parameter: value}))


@pytest.mark.parametrize("value", _ODD.values(), ids=_ODD)
def test_an_odd_argument_of_opening_ends_in_an_answer_or_a_sentence(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    options: list[dict[str, Any]] = [{name: each} for name in defaults() for each in (value, [value])]
    for inputs, chosen in [
        ((value,), {}),
        *(((raw,), each) for each in [{"cache": value}, {"progress": value}, *options]),
    ]:
        _expect_answer_or_sentence(partial(_OPEN, *inputs, **{"cache": False, **chosen}))


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda trace: trace.sql(None), "query takes values of type str, not None"),
        (lambda trace: trace.analyze(None), "analysis takes values of type str, not None"),
        (lambda trace: trace.analyze("A10", steps=True), "steps takes values of type str or int, not True"),
        (lambda trace: trace.compare("x"), "after takes values of type OpenTrace, not 'x'"),
        (lambda trace: trace.report(["r.html"]), r"path takes values of type Path, not \['r.html'\]"),
        (lambda trace: trace.export("x", to="chrome", levels="kernel"), "levels takes a list, not 'kernel'"),
        (lambda _: _OPEN(["a"]), r"inputs takes values of type Path, not \['a'\]"),
        (lambda _: _OPEN("a", cache=1), "cache takes values of type bool, not 1"),
        (lambda _: _OPEN("a", progress=1), "progress takes values of type Callable, not 1"),
    ],
)
def test_another_type_is_a_type_error_with_a_sentence(
    small: xsp.OpenTrace, ask: Callable[[Any], object], says: str
) -> None:
    with pytest.raises(TypeError, match=says) as raised:
        ask(small)
    assert isinstance(raised.value, xsp.XspError)


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda trace: trace.report("a\ud800"), "cannot be used for path: it has half a character in it"),
        (lambda trace: trace.save("a\0.xsp"), "cannot be used for path: a path has no NUL in it"),
        (lambda trace: trace.report(""), "'' cannot be used for path: it is empty"),
        (lambda trace: trace.report("~nobody-here/x"), "there is no home folder of that name"),
        (lambda trace: trace.export("x", to="chrome", step=1 << 63), "nothing in a trace has a number as large"),
        (lambda trace: trace.sql("select 1", timeout_s=float("nan")), "nan cannot be used for timeout_s"),
        (lambda trace: trace.compare(trace).to_polars("kernels"), "no level 'kernels'. Choose of layer_type, "),
        (lambda _: xsp.open("x" * 5_000), "cannot be opened|there is no such file"),  # since Python 3.14 the latter
    ],
)
def test_another_value_is_no_type_error(small: xsp.OpenTrace, ask: Callable[[Any], object], says: str) -> None:
    with pytest.raises(xsp.XspError, match=says) as raised:
        ask(small)
    assert not isinstance(raised.value, TypeError)


def test_a_trace_compared_with_itself_is_the_same(small: xsp.OpenTrace, tmp_path: Path) -> None:
    compared = small.compare(small)
    assert compared.comparable
    assert compared.reasons == []
    assert compared.ratio == 1.0
    rows = compared.to_polars()
    assert set(rows["difference_ns"].drop_nulls()) == {0.0}
    assert compared.to_polars("kernel").equals(rows.filter(pl.col("level") == "kernel"))
    assert compared.to_dict()["comparable"] is True
    assert "</html>" in compared.report(tmp_path / "c.html").read_text(encoding="utf-8")
    assert "--rows" not in compared._repr_html_()


def test_the_examples_of_the_docs_run(fixtures_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = fixtures_dir / "torch_profiler" / "transformer_train_gpu_synthetic" / "trace.json.gz"
    (tmp_path / trace.name).write_bytes(trace.read_bytes())
    monkeypatch.chdir(tmp_path)
    text = (_REPO / "docs" / "python.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(example, names)  # noqa: S102 (our own docs)
    assert names["layers"].height == 28
    assert (tmp_path / "trace.xsp").is_dir()


def test_the_docs_name_what_there_is() -> None:
    text = (_REPO / "docs" / "python.md").read_text(encoding="utf-8")
    public = {name for name in dir(xsp.OpenTrace) if not name.startswith("_")} - {"name"}
    assert {name for name in public if f"`t.{name}" not in text and f"t.{name}(" not in text} == set()


def test_a_file_and_its_copies_are_opened_as_one(tmp_path: Path) -> None:
    trace_of(100).write(tmp_path / "a.json")
    (tmp_path / "b.json").symlink_to("a.json")
    spelled = tmp_path / ".." / tmp_path.name / "a.json"
    for inputs in ([tmp_path / "a.json", spelled], [tmp_path], [tmp_path / "*.json"], [tmp_path / "a.json"] * 2):
        assert len(xsp.open(*inputs, cache=False).trace.table("runs")) == 1
