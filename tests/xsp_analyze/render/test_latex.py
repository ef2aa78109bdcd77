"""Tables for LaTeX, read back by a parser that refuses whatever TeX would act on."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from xsp_analyze.catalog import find
from xsp_analyze.core import Analysis, Column, Result, Role, run
from xsp_analyze.render import Screen, render
from xsp_analyze.render.latex import escape_latex, render_many
from xsp_analyze.trace.step_view import StepView
from xsp_ingest.convert import convert
from xsp_ingest.ingester import Options

_TRAINING = Path(__file__).resolve().parents[3] / "fixtures" / "torch_profiler" / "transformer_train_gpu_synthetic"
_COMMANDS = {
    "textbackslash": "\\", "textasciitilde": "~", "textasciicircum": "^", "textless": "<", "textgreater": ">",
    "textbar": "|", "textquotedbl": '"', "textquotesingle": "'", "textasciigrave": "`", "textmu": "\u00b5",
    "ldots": "\u2026", "texttimes": "\u00d7", "textperiodcentered": "\u00b7",
}  # fmt: skip
_TOKEN = re.compile(r"\\([a-zA-Z]+)\{\}|\\([&%$#_{}])|\\(,)|\{([-\[\]])\}|([^\\{}&%$#_~^<>|\"'`\[\]-])")
_NUMBER = re.compile(r"(?:-|[\d,.]*)")


def _plain(cell: str) -> str:
    """What LaTeX sets for the text; ValueError for anything that it would act on."""
    text, at = "", 0
    while at < len(cell):
        token = _TOKEN.match(cell, at)
        if token is None:
            message = f"TeX acts on {cell[at:][:10]!r}"
            raise ValueError(message)
        command, symbol, space, braced, character = token.groups()
        text += _COMMANDS[command] if command else " " if space else symbol or braced or character
        at = token.end()
    return text


def _tables(document: str) -> list[tuple[str, str, list[list[str]]]]:
    """Caption, columns and rows of cells of each table; every line is accounted for."""
    tables = []
    pattern = re.compile(
        r"\\begin\{table\}\n  \\centering\n  \\caption\{(.*)\}\n  \\begin\{tabular\}\{([lr]*)\}\n    \\toprule\n"
        r"(.*)\n    \\midrule\n((?:.*\n)*?)    \\bottomrule\n  \\end\{tabular\}\n\\end\{table\}\n"
    )
    for caption, columns, headings, rows in pattern.findall(document):
        lines = [headings, *rows.splitlines()]
        assert all(line.endswith(r" \\") for line in lines)
        cells = [[_plain(cell) for cell in re.split(r"(?<!\\) & ", line.strip()[:-3])] for line in lines]
        assert {len(row) for row in cells} == {len(columns)}
        tables.append((_plain(caption), columns, cells))
    rest = pattern.sub("", document)
    assert all(line.startswith("% ") for line in rest.splitlines() if line)
    return tables


def _named(*names: str) -> Result:
    column = Column("kernel_name", pl.String(), "", role=Role.KEY)
    table = pl.DataFrame({"kernel_name": list(names)})
    return Result(Analysis("A_1", "50% of {it}", (), (column,), lambda _: table.lazy()), table, (column,), pl.DataFrame)


@pytest.mark.parametrize("character", list("&%$#_{}~^\\<>|\"'`-[]\u00b5\u00d7\u2026"))
def test_no_character_acts(character: str) -> None:
    for text in (character, character * 3, f"a{character}b", f"{character}1"):
        assert _plain(escape_latex(text)) == text


def test_the_parser_refuses_what_tex_acts_on() -> None:
    for text in ("a_b", "50%", "\\input{x}", "a--b", "x & y", "^^41"):
        with pytest.raises(ValueError, match="TeX acts on"):
            _plain(text)


def test_hostile_names_are_text() -> None:
    names = [r"\input{/etc/passwd}", r"a & b \\ \hline", "100% $x^2$ #1 {~}", "a\nb\x1b[2J", r"\end{table}"]
    result = _named(*names)
    ((caption, columns, cells),) = _tables(render_many([result]).replace("% Unknown", "%"))
    assert (caption, columns) == ("50% of {it} (A_1)", "l")
    assert [row[0] for row in cells[1:]] == [*names[:3], r"a b\x1b[2J", names[4]]


def test_tables_of_a_trace_have_units_in_their_headings_and_the_terminal_s_numbers() -> None:
    frames = StepView.of(convert([_TRAINING], Options()))
    results = [run(find(name), frames) for name in ("A10", "B03", "A01")]
    document = render(results, "latex", Screen(rows=2)).decode()
    kernels, timeline, model = _tables(document)
    assert kernels[0] == "kernels by name (A10)"
    assert [len(table[2]) for table in (kernels, timeline, model)] == [4, 2, 2]
    assert kernels[2][0][5:] == ["duration (\u00b5s)", "model share (%)"]
    assert kernels[2][3][0] == f"and {results[0].table.height - 2} more"
    assert kernels[1] == "llllrrr"
    assert document.startswith("% \\usepackage{booktabs}\n")
    assert document.count("% sources: ") == 1
    assert re.search(r"^% warning: ", document, re.MULTILINE)
