"""The page of work models is of the models."""

from __future__ import annotations

from pathlib import Path

from xsp_analyze.work_models.__main__ import MADE, page
from xsp_analyze.work_models.registry import families

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "work-models.md"


def test_the_page_is_up_to_date() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    assert text == page(text), "make it anew: python -m xsp_analyze.work_models docs/work-models.md"


def test_what_is_written_by_hand_stays() -> None:
    made = page(f"# By hand\n\n{MADE}\n\nold\n")
    assert made.startswith(f"# By hand\n\n{MADE}\n\nMade from the models")
    assert "\nold\n" not in made


def test_every_family_formula_and_operator_is_listed() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    for family, models in families().items():
        assert f"### {family.capitalize()}" in text
        for model in models:
            assert f"**{model.formula.__name__}**: " in text
            assert all(f"`{name}`" in text for name in model.operators)
