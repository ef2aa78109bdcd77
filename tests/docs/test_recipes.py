"""The recipes for other tools run, those of tools that are installed, and give what XSP itself says."""

from __future__ import annotations

import importlib.util
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.commands import ROOT, commands
from tests.docs.sandbox import fill
from xsp.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.docs

_PAGE = (ROOT / "docs/howto/other-tools.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)
_OF_OTHERS = {"hta": "hta.trace_analysis", "perfetto": "perfetto.trace_processor"}


@pytest.fixture(name="ran", scope="module")
def fixture_ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("recipes")
    fill(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        for command in commands(_PAGE):
            assert main(shlex.split(command.text)[1:]) == 0
        names: dict[str, Any] = {}
        for block in _BLOCKS:
            if not any(f"from {module}" in block for module in _OF_OTHERS.values()):
                exec(block, names)  # noqa: S102 (the page's own code)
        return names


def test_polars_and_pandas_say_the_same(ran: dict[str, Any]) -> None:
    kernels = ran["kernels"].set_index("kernel_name")["duration_ns"]
    spans = ran["spans"]
    by_name = spans[spans["level"] == "kernel"].groupby("name", observed=True)["duration_ns"].sum()
    assert by_name.sum() == kernels.sum() > 0
    assert ran["share"].sum() == pytest.approx(1)
    assert ran["per_stream"]["sum"].sum() == spans[spans["level"] == "kernel"]["duration_ns"].sum()
    assert ran["slowest"]["duration_ns"].is_sorted(descending=True)
    assert ran["by_type"]["duration_ns"].sum() > 0


@pytest.mark.parametrize("tool", _OF_OTHERS)
def test_the_recipes_of_other_tools_are_python(tool: str) -> None:
    (block,) = (block for block in _BLOCKS if f"from {_OF_OTHERS[tool]}" in block)
    compile(block, tool, "exec")


def test_hta_reads_the_chrome_export(ran: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("hta") is None:
        pytest.skip("no HTA: pip install HolisticTraceAnalysis")
    out = tmp_path / "ranks/rank0.json.gz"
    assert (
        main(
            ["export", str(ROOT / "fixtures/torch_profiler/two_ranks/rank0.json.gz"), "--to", "chrome", "-o", str(out)]
        )
        == 0
    )
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in _BLOCKS if f"from {_OF_OTHERS['hta']}" in block)
    names: dict[str, Any] = dict(ran)
    exec(block, names)  # noqa: S102 (the page's own code)
    assert len(names["breakdown"]) == 1
