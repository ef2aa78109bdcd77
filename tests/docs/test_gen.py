"""What the generator makes of texts, of the navigation and of functions."""

from __future__ import annotations

from docs.gen.analyses import definitions
from docs.gen.answers import answer_pages
from docs.gen.api import PUBLIC, api_pages
from docs.gen.formulas import formulas_of
from docs.gen.site import full_navigation, project_pages
from tests.answers.facts import facts
from tests.docs.commands import ROOT, Command, commands
from xsp_analyze.catalog import all_analyses, find


def test_a_definition_goes_on_to_the_next_bold_beginning() -> None:
    text = "# Head\n\n**A01 one.** First.\n\n- more\n\n**A05, A06 two.** Both.\n\n## Other\n\nNot theirs."
    assert definitions(text) == {
        "A01": "**A01 one.** First.\n\n- more",
        "A05": "**A05, A06 two.** Both.",
        "A06": "**A05, A06 two.** Both.",
    }


def test_every_analysis_of_xsp_has_a_definition() -> None:
    defined = definitions((ROOT / "docs/analyses.md").read_text(encoding="utf-8"))
    assert [a.id for a in all_analyses() if a.id[0] in "AB" and a.id not in defined] == []


def test_formulas_are_found_through_the_functions_between() -> None:
    names = [name for name, _ in formulas_of(find("A10"))]
    assert "arithmetic_intensity" in names  # called by counters.derived through the module
    assert "first_saturating_batch" not in names
    assert "first_saturating_batch" in [name for name, _ in formulas_of(find("A01"))]


def test_a_page_that_nothing_names_stands_under_more() -> None:
    nav = ["index.md", {"Formats": ["formats.md", "formats/*"]}]
    pages = ["index.md", "new.md", "formats.md", "formats/b.md", "formats/a.md", "formats/index.md"]
    assert full_navigation(nav, pages) == [
        "index.md",
        {"Formats": ["formats.md", "formats/index.md", "formats/b.md", "formats/a.md"]},
        {"More": ["new.md"]},
    ]


def test_every_public_module_has_names_to_show() -> None:
    assert [module.name for module in PUBLIC if f"api/{module.name}.md" not in api_pages()] == []


def test_texts_of_the_root_link_to_each_other_on_the_site() -> None:
    pages = project_pages()
    assert "](contributing.md#where-things-go)" in pages["project/architecture.md"]
    assert "](architecture.md)" in pages["project/contributing.md"]
    assert "](../glossary.md)" in pages["project/contributing.md"]


def test_commands_are_those_in_code_without_what_stands_beside_them() -> None:
    text = (
        "xsp no\n\n    xsp info a.json   what it holds\n    $ xsp report 'a b' # all\n\n```\nxsp merge x\n```\nxsp no"
    )
    assert [c.text for c in commands(text)] == ["xsp info a.json", "xsp report 'a b'", "xsp merge x"]


def test_a_synopsis_is_told_from_a_command() -> None:
    assert Command("xsp export INPUT... --to a|b -o FILE").is_synopsis
    assert Command("xsp merge --model FILE -o NAME.xsp").is_synopsis
    assert not Command("xsp analyze t.json -a A10 --fail-on 'x > +3%'").is_synopsis
    assert Command("xsp compare a [--fail-on RULE]... -f json").options == ["--fail-on", "-f"]


def test_every_fact_worked_out_by_hand_is_a_row_of_its_page() -> None:
    rows = [line for line in answer_pages()["answers.md"].splitlines() if line.startswith("| `")]

    assert len(rows) == len(facts())
    sentences = {fact.says.replace("|", r"\|").replace("<", "&lt;") for fact in facts()}
    assert sentences == {row.split(" | ")[1] for row in rows}
