"""The product holds to what tests/budgets.toml says it may hold: growth is a decision, and is written down.

`python -m tests.test_budgets` lowers budgets to what is counted.
"""

from __future__ import annotations

import ast
import re
import tempfile
import tomllib
import zlib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.files_run import TRACE, files_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_REPO = Path(__file__).resolve().parents[1]
_BUDGETS = _REPO / "tests" / "budgets.toml"
_PACKAGES = ("xsp", "xsp_model", "xsp_ingest", "xsp_analyze", "runners")
_KINDS = (".py", ".js", ".css")
_SLACK = 0.03  # of a budget: less is not worth a change of its file
_RAISED = re.compile(r"^- Budget `(\w+)`: (\d+) to (\d+), for .{10,}", re.MULTILINE)


def _product_files() -> Sequence[Path]:
    paths = (path for package in _PACKAGES for path in sorted((_REPO / package).rglob("*")))
    return [path for path in paths if path.suffix in _KINDS and "__pycache__" not in path.parts]


def _lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def _header_lines(path: Path) -> int:
    """Lines of a module before its code: docstring, imports, those for types, `__all__`."""
    last = 0
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        text = ast.unparse(node)
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (is_docstring or isinstance(node, ast.Import | ast.ImportFrom) or text.startswith(_HEADS)):
            break
        last = node.end_lineno or 0
    return last


_HEADS = ("if TYPE_CHECKING:", "__all__ = ")


def _header_percent() -> int:
    modules = [path for path in _product_files() if path.suffix == ".py"]
    return round(100 * sum(map(_header_lines, modules)) / sum(map(_lines, modules)))


def _largest_folder() -> int:
    return max(Counter(path.parent for path in _product_files() if path.name != "__init__.py").values())


def _packed_kilobytes() -> int:
    """What the packages take when packed, as a wheel packs them."""
    paths = (path for package in _PACKAGES for path in (_REPO / package).rglob("*"))
    shipped = (path for path in paths if path.is_file() and "__pycache__" not in path.parts)
    return sum(len(zlib.compress(path.read_bytes())) for path in shipped) // 1000


@cache
def _run(*command: str) -> tuple[int, int]:
    files, imported = files_run(*command)
    return len(files), imported


_COUNTS: Mapping[str, Callable[[], int]] = {
    "product_files": lambda: len(_product_files()),
    "product_lines": lambda: sum(map(_lines, _product_files())),
    "header_percent": _header_percent,
    "modules_flat_in_a_folder": _largest_folder,
    "files_run_by_analyze": lambda: _run("analyze", TRACE, "-a", "A10", "-f", "json")[0],
    "files_run_by_top": lambda: _run("top", TRACE)[0],
    "modules_imported_by_top": lambda: _run("top", TRACE)[1],
    "modules_imported_by_report": lambda: _run(
        "report", TRACE, "-o", str(Path(tempfile.gettempdir()) / "xsp-budget.html")
    )[1],
    "modules_imported_by_info": lambda: _run("info", TRACE)[1],
    "packed_kilobytes": _packed_kilobytes,
}


def _budgets() -> Mapping[str, int]:
    counts: Mapping[str, int] = tomllib.loads(_BUDGETS.read_text(encoding="utf-8"))["counts"]
    return counts


def test_every_budget_is_counted() -> None:
    assert _budgets().keys() == _COUNTS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", _COUNTS)
def test_the_product_holds_to_its_budget(name: str) -> None:
    budget, count = _budgets()[name], _COUNTS[name]()
    assert count <= budget, "make it smaller, or raise the budget with a line in CHANGELOG.md that says for what"
    assert count >= budget * (1 - _SLACK) - 1, "python -m tests.test_budgets lowers the budget to what is counted"


def test_budgets_are_raised_by_a_line_of_the_changelog() -> None:
    """The newest line on a budget, which is the first, says what it may be at most."""
    lines = _RAISED.findall((_REPO / "CHANGELOG.md").read_text(encoding="utf-8"))
    allowed = {name: int(new) for name, _, new in reversed(lines)}
    over = {name: budget for name, budget in _budgets().items() if budget > allowed.get(name, 0)}
    assert not over


def _lower(text: str) -> Iterator[str]:
    for line in text.splitlines():
        name, _, budget = line.partition(" = ")
        if name in _COUNTS and budget.isdecimal():
            yield f"{name} = {min(int(budget), _COUNTS[name]())}"
        else:
            yield line


if __name__ == "__main__":
    _BUDGETS.write_text("".join(f"{line}\n" for line in _lower(_BUDGETS.read_text(encoding="utf-8"))), encoding="utf-8")
