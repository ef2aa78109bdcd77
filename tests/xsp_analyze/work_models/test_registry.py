"""All models together: each operator in one row, each formula of one name."""

from __future__ import annotations

from collections import Counter

from xsp_analyze.work_models.formulas import FORMULAS
from xsp_analyze.work_models.registry import families


def test_no_operator_stands_in_two_rows() -> None:
    names = Counter(name for models in families().values() for model in models for name in model.operators)
    assert [name for name, count in names.items() if count > 1] == []


def test_a_formula_is_used_and_says_what_it_counts() -> None:
    used = {model.formula for models in families().values() for model in models}
    assert [name for name, formula in FORMULAS.items() if formula not in used or not formula.__doc__] == []


def test_what_a_model_tells_its_formula_is_what_it_takes() -> None:
    for models in families().values():
        for model in models:
            for setting in ("read", "written", "of"):
                roles = model.settings.get(setting, [])
                if isinstance(roles, list):
                    assert set(roles) <= set(model.operands), (model.operators, setting)
            assert model.source
            assert all(index >= 0 for index in model.operands.values())
