"""The table of formulas that all families make together."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from xsp_analyze.work_models import formulas


def test_no_two_families_name_a_formula_alike() -> None:
    modules = [import_module(f"{formulas.__name__}.{module.name}") for module in iter_modules(formulas.__path__)]
    names = [name for module in modules for name in getattr(module, "FORMULAS", ())]
    assert sorted(names) == sorted(formulas.FORMULAS)
