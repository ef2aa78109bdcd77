"""The table of formulas that all families make together."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from xsp_analyze.work_models import formulas


def test_no_two_families_name_a_formula_alike() -> None:
    modules = [import_module(f"{formulas.__name__}.{module.name}") for module in iter_modules(formulas.__path__)]
    tables = [getattr(module, name) for module in modules for name in module.__all__ if name.isupper()]
    assert sorted(name for table in tables for name in table) == sorted(formulas.FORMULAS)
