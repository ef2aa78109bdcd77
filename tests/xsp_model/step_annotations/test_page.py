"""The page on names of serving steps lists the forms that are read."""

from __future__ import annotations

import re
from pathlib import Path

from xsp_model.step_annotations import parse_step_annotation
from xsp_model.step_annotations.parse import forms

_PAGE = Path(__file__).resolve().parents[3] / "docs" / "serving-steps.md"


def test_every_form_has_a_row_with_one_of_its_examples() -> None:
    rows = re.findall(r"^\| (\S+?)[, ].*?\| `(.*?)` \|", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    read = {example: parse_step_annotation(example) for _, example in rows}
    assert [(engine, example) for engine, example in rows if (one := read[example]) is None or one.tool != engine] == []
    assert {one.form for one in read.values() if one} == {form.name for form in forms()}
